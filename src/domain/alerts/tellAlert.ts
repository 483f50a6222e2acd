import { Context, DateTime, Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cipher } from "../Cipher.ts"
import { cut } from "../Schemas.ts"
import { envelopeBody, makeNonce } from "../ServiceEvent.ts"
import { isDelivered } from "../webhooks/RetryDecision.ts"
import { Signer, userAgent } from "../webhooks/Signatures.ts"
import { WebhookSender } from "../webhooks/WebhookSender.ts"
import { mailOf, type StoredAlert, type StoredTarget } from "./Alert.ts"
import { type Finding, short } from "./conditions.ts"

/** The address of the console, without the last `/`. */
export const ConsoleUrl = Context.Reference("gatehouse/domain/alerts/ConsoleUrl", { defaultValue: () => "/console" })

/** Sends e-mails. */
export class MailSender extends Context.Service<
  MailSender,
  {
    /**
     * Sends an e-mail with TLS, which only a server on loopback may lack. Never fails: returns why it was not sent, in
     * a sentence without what is secret.
     *
     * @param url of the mail server, with its credentials
     */
    readonly send: (mail: {
      readonly url: Redacted.Redacted<string>
      readonly from: string
      readonly to: ReadonlyArray<string>
      readonly subject: string
      readonly text: string
    }) => Effect.Effect<string | null>
  }
>()("gatehouse/domain/alerts/MailSender") {}

/** What is told of an alert. `off` is of another alert, whose target failed for a day. */
type Told = "firing" | "resolved" | "test" | "off"

/** The lines of a message; the name of the alert comes before the first. */
const linesOf = (told: Told, { firingSince, lastError }: StoredAlert, found: Finding | null): ReadonlyArray<string> => {
  const since = firingSince && DateTime.formatIso(firingSince)
  switch (told) {
    case "firing":
      return [found!.summary, ...found!.items.map((item) => `- ${item}`), `This alert began at ${since}.`]
    case "resolved":
      return ["all is well again", `It began at ${since}.`]
    case "test":
      return ["a test", "Nothing is wrong."]
    case "off":
      return [
        "the alert is off",
        `Its target failed for a day: ${lastError}`,
        "Fix the target, and turn the alert on again.",
      ]
  }
}

/** Discord refuses more characters. Escaped, a message of names alone can be longer. */
const maxDiscordLength = 2_000

type Format = (lines: ReadonlyArray<string>, link: string) => object

const entities: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" }

/**
 * A line for Slack, which has no escape for its markup. A word joiner parts what would be markup, a link or a mention,
 * also where a compatible service ignores `mrkdwn` and `parse`.
 */
const slackLine = (line: string) =>
  line.replace(/[&<>]/g, (one) => entities[one]!).replace(/[*_~`@[\]]|:(?=\/\/)/g, "$&\u2060")

/** A message in the format of each chat. What tenants wrote is neither markup nor a mention. */
const bodies: Readonly<Record<"slack" | "teams" | "discord", Format>> = {
  slack: (lines, link) => ({
    text: [...lines.map(slackLine), `<${link}|Open the console>`].join("\n"),
    mrkdwn: false,
    parse: "none",
    link_names: false,
    unfurl_links: false,
    unfurl_media: false,
  }),
  discord: (lines, link) => {
    const text = lines.map((line) => line.replace(/[\\`*_~|[\]()<>#@:]/g, "\\$&")).join("\n")
    const end = `\n<${link}>`
    return {
      content: `${cut(text, maxDiscordLength - end.length)}${end}`,
      allowed_mentions: { parse: [] },
    }
  },
  // A workflow of Teams posts adaptive cards. The text of a TextRun is no Markdown, as that of a TextBlock would be.
  teams: (lines, link) => {
    const body = lines.map((text) => ({ type: "RichTextBlock", inlines: [{ type: "TextRun", text }] }))
    const actions = [{ type: "Action.OpenUrl", title: "Open the console", url: link }]
    const content = { type: "AdaptiveCard", version: "1.4", body, actions }
    return { type: "message", attachments: [{ contentType: "application/vnd.microsoft.card.adaptive", content }] }
  },
}

/** Makes `tell`, which tells an alert's target something, and returns why it was not reached, in a sentence. */
export const makeTeller = Effect.gen(function* () {
  const cipher = yield* Cipher
  const sender = yield* WebhookSender
  const mail = yield* MailSender
  const signer = yield* Signer
  const random = yield* SecureRandom.SecureRandom
  const consoleUrl = yield* ConsoleUrl

  /** The body and the headers for a webhook: those of events of your own. */
  const signed = Effect.fnUntraced(function* (type: string, secret: string, data: object) {
    const [now, id] = [yield* DateTime.now, yield* random.ulid]
    const body = envelopeBody({ id, type, createdAt: now }, yield* makeNonce(random), JSON.stringify(data))
    const sign = yield* signer.prepare([Redacted.make(secret)])
    const timestamp = Math.floor(now.epochMilliseconds / 1000)
    return { body, headers: sign({ deliveryId: id, event: type, body, timestamp }) }
  })

  return Effect.fnUntraced(function* (
    told: Told,
    alert: StoredAlert,
    found: Finding | null,
    /** Whose target is told: an alert's own, or of another alert of its owner. */
    at: StoredAlert = alert,
  ) {
    const secret = yield* Effect.catchDefect(cipher.decrypt(at.secret, at.alertId), () => Effect.succeed(null))
    if (secret === null)
      return "The target cannot be read: ENCRYPTION_KEY does not have its key. Create the alert again."
    const { signingSecret, url } = JSON.parse(Redacted.value(secret)) as StoredTarget
    const { alertId, condition, firingSince, name, orgId } = alert
    const [first, ...lines] = linesOf(told, alert, found)
    const subject = `${short(name)}: ${first}`
    const link = orgId === null ? consoleUrl : `${consoleUrl}/orgs/${orgId}`
    const all = [`${subject}.`, ...lines]
    if (at.target === "email") {
      const text = [...all, link].join("\n")
      return yield* mail.send({ url: Redacted.make(url), ...mailOf(url), subject, text })
    }
    const about = { alert_id: alertId, name, org_id: orgId, condition }
    const data = { ...about, summary: subject, lines, since: firingSince, url: link }
    const request =
      at.target === "webhook"
        ? yield* signed(`alert.${told}`, signingSecret!, data)
        : {
            body: JSON.stringify(bodies[at.target](all, link)),
            headers: { "content-type": "application/json", "user-agent": userAgent },
          }
    const outcome = yield* sender.send({ url, owner: orgId ?? "", ...request })
    if (isDelivered(outcome)) return null
    return outcome.failure?.message ?? `The target answered with status ${outcome.status}.`
  })
})
