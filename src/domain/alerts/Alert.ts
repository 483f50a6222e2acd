import { type DateTime, Schema, Struct } from "effect"
import { addressFault, type AddressRules, portFault, urlFault } from "../callableUrls.ts"
import { AlertId, atMost, CreatedAt, Id, Name, Text, Timestamp, UpdatedAt, whole } from "../Schemas.ts"
import { conditions } from "./conditions.ts"

const namesOfOrg = Object.entries(conditions).flatMap(([name, condition]) => ("isOfOrg" in condition ? [name] : []))

const Condition = Schema.Literals(Object.keys(conditions) as ReadonlyArray<keyof typeof conditions>).annotate({
  description:
    "What it watches. The conditions, with the meaning of threshold: " +
    `${Object.entries(conditions)
      .map(([name, { holds }]) => `${name}: ${holds}. `)
      .join("")}` +
    `Only of an org: ${namesOfOrg.join(" and ")}.`,
  examples: ["endpoint_failing"],
})

/** What is wrong with the threshold of a condition, in a sentence. */
export const conditionFault = ({ condition, orgId, threshold }: Pick<Alert, "condition" | "orgId" | "threshold">) => {
  const { range, ...rest } = conditions[condition]
  if (orgId === null && "isOfOrg" in rest) return `condition ${condition} is only of an org. Create it there.`
  if (range === null) return threshold === null ? undefined : `threshold must be absent: ${condition} has none.`
  const [min, max] = range
  const isRight = threshold !== null && threshold >= min && threshold <= max
  return isRight ? undefined : `threshold must be a whole number from ${min} to ${max}: ${condition} needs it.`
}

const Target = Schema.Literals(["slack", "teams", "discord", "email", "webhook"]).annotate({
  description: "Where its messages go: what url is.",
  examples: ["slack"],
})

/** A target as it is encrypted. */
export interface StoredTarget {
  readonly url: string
  readonly signingSecret?: string
}

/** Who sends the e-mails of a target, and who gets them. */
export const mailOf = (url: string) => {
  const { searchParams } = new URL(url)
  const addressesOf = (name: string) => (searchParams.get(name) ?? "").replaceAll(" ", "+").split(",")
  return { from: addressesOf("from").join(), to: addressesOf("to") }
}

const mailServer = /^smtps?:\/\/(?:[^/?#\s@]*@)?([^/?#\s@]+)\/?\?[^#\s]+$/u
const mailAddress = /^[^\s@<>,;:"()]+@[^\s@<>,;:"()]+$/u
const maxMailReceivers = 10

const mailFault = (url: string, rules: AddressRules) => {
  if (URL.parse(url)?.port === "0") return portFault
  const host = `http://${mailServer.exec(url)?.[1] ?? ""}`
  if (URL.canParse(url) && urlFault(host, { httpsOnly: false }) === undefined) {
    const { from, to } = mailOf(url)
    const isRight = [from, ...to].every((one) => mailAddress.test(one)) && to.length <= maxMailReceivers
    if (isRight) return addressFault(host, rules)
  }
  return (
    "must be smtps://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS,ADDRESS or smtp://, with at most " +
    `${maxMailReceivers} addresses to send to; encode special characters of the password`
  )
}

/** What is wrong with the url of a target, in a sentence. */
export const targetFault = (
  target: typeof Target.Type,
  url: string,
  rules: AddressRules & { readonly httpsOnly: boolean },
): string | undefined => {
  const fault = target === "email" ? mailFault(url, rules) : (urlFault(url, rules) ?? addressFault(url, rules))
  return fault && `url ${fault}.`
}

/** How long an alert is quiet if its request does not say. */
export const defaultQuietMinutes = 60
const quietDescription =
  "How long after a message the same alert sends no other, 0 to 10080. A message that all is well is always sent."

const fields = {
  name: Name.annotate({ description: "What messages call it.", examples: ["Webhooks fail"] }),
  threshold: Schema.Int.annotate({ description: "The number that condition needs.", examples: [30] }),
  quietMinutes: whole(0, 10_080).annotate({
    description: quietDescription,
    examples: [defaultQuietMinutes],
  }),
}

export const CreateAlert = Schema.Struct({
  name: fields.name,
  condition: Condition,
  threshold: Schema.optionalKey(fields.threshold),
  target: Target,
  url: Text.check(atMost(2048)).annotate({
    description:
      "The incoming webhook of Slack, Teams or Discord, an endpoint of yours, or for e-mails " +
      "smtps://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS,ADDRESS (smtp:// begins TLS with STARTTLS). It is stored " +
      "encrypted, and no answer shows it. It follows the rules of endpoints.",
    examples: ["https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"],
  }),
  quietMinutes: Schema.optionalKey(fields.quietMinutes).annotateKey({
    description: `${quietDescription} Default: ${defaultQuietMinutes}.`,
  }),
}).annotate({
  identifier: "CreateAlert",
  examples: [
    {
      name: "Webhooks fail",
      condition: "endpoint_failing",
      threshold: 30,
      target: "slack",
      url: "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    },
  ],
})

/** The changes of an alert. What it watches stays, and so does its target. */
export const UpdateAlert = Schema.Struct({
  ...Struct.map(fields, Schema.optionalKey),
  active: Schema.optionalKey(Schema.Boolean).annotate({
    description: "false: it sends no messages. true: it does again, also after its target failed for a day.",
  }),
})
  .check(
    Schema.makeFilter((change: object) => Object.keys(change).length > 0, {
      expected: "at least one field",
      toJsonSchema: () => ({ minProperties: 1 }),
    }),
  )
  .annotate({ identifier: "UpdateAlert", examples: [{ active: true }] })

const timeOrNull = (description: string) => Schema.NullOr(Timestamp).annotate({ description, examples: [null] })

export const Alert = Schema.Struct({
  alertId: AlertId,
  orgId: Schema.NullOr(Id).annotate({ description: "null: it is of the administrator, and watches every org." }),
  name: fields.name,
  condition: Condition,
  threshold: Schema.NullOr(fields.threshold.annotate({ description: "null: the condition has none." })),
  target: Target,
  receiver: Schema.String.annotate({
    description: "The host of the target's url; of an e-mail, who gets it.",
    examples: ["hooks.slack.com"],
  }),
  quietMinutes: fields.quietMinutes,
  active: Schema.Boolean.annotate({
    description: "false: it sends no messages. With failingSince: the service turned it off.",
  }),
  firingSince: timeOrNull("Since when what it watches is found wrong. null: all is well."),
  lastToldAt: timeOrNull("When it last sent a message that something is wrong. null: never."),
  failingSince: timeOrNull("Since when its target fails. null: it was reached the last time, or never needed."),
  lastError: Schema.NullOr(Schema.String).annotate({
    description: "Why its target was not reached the last time. null: it was.",
    examples: [null],
  }),
  createdAt: CreatedAt,
  updatedAt: UpdatedAt,
}).annotate({ identifier: "Alert" })
export interface Alert extends Schema.Schema.Type<typeof Alert> {}

export const CreatedAlert = Schema.Struct({
  ...Alert.fields,
  signingSecret: Schema.optionalKey(Schema.String).annotate({
    description: "The new secret of a webhook. Only this answer has it.",
  }),
}).annotate({ identifier: "CreatedAlert" })

export const TestedAlert = Schema.Struct({
  error: Schema.NullOr(Schema.String).annotate({
    description: "Why the target was not reached, in a sentence. null: it was.",
    examples: [null],
  }),
}).annotate({ identifier: "TestedAlert" })

/** An alert with what only the service knows. */
export interface StoredAlert extends Alert {
  /** The `StoredTarget` in JSON, encrypted for the alert. */
  readonly secret: string
  /** How often in a row its target was not reached. */
  readonly failures: number
  /** What had happened last when it was last told: replicas have their own clocks. */
  readonly toldOf?: DateTime.Utc
}

/** What an answer shows of an alert. */
export const shown = (alert: StoredAlert): Alert =>
  Struct.pick(alert, Object.keys(Alert.fields) as ReadonlyArray<keyof Alert>)
