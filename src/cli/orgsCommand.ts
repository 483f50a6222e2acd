import { Effect, Option } from "effect"
import { Argument, Flag } from "effect/cli"
import { counted } from "../domain/plural.ts"
import { type OrgDetail } from "../domain/orgs/Org.ts"
import { type OrgLimitName, orgLimitNames } from "../domain/orgs/OrgLimits.ts"
import { resolveOrg } from "./callOperation.ts"
import { op } from "./operation.ts"
import { columns, plain, table, usage } from "./output.ts"
import { given, group, orgFlag, textArgument, textFlag } from "./flags.ts"
import { moveOrg } from "./nodesCommand.ts"

/** The org as an argument, or in `--org`. */
const orgFlags = { argument: Argument.optional(textArgument("org", "The id of the org")), org: orgFlag }

interface OrgFlags {
  readonly argument: Option.Option<string>
  readonly org: Option.Option<string>
}

/** The org that is given. */
const namedOrg = Effect.fnUntraced(function* ({ argument, org }: OrgFlags) {
  if (Option.isSome(argument) && Option.isSome(org) && argument.value !== org.value) {
    return yield* usage("The argument and --org name different orgs: use one of them")
  }
  return Option.orElse(argument, () => org)
})

/** The org that is given, or else the only one. */
const orgOf = (flags: OrgFlags) => Effect.flatMap(namedOrg(flags), resolveOrg)

const orgOutput = (
  { keyPrefix, limits, name, orgId, owners, retentionDays, strictEvents, used }: OrgDetail,
  note: string,
) => ({
  out: table(
    ["LIMIT", "USED", "OF"],
    orgLimitNames.map((limit) => [limit, used[limit], limits[limit]]),
  ),
  note: [
    `${plain(name)} (${orgId})${note}`,
    ...(owners.length === 0 ? [] : [`Owners: ${plain(owners.join(", "))}`]),
    ...(keyPrefix === null ? [] : [`New keys begin with ${keyPrefix}_.`]),
    ...(retentionDays === null
      ? []
      : [`Events and finished jobs are kept for ${counted(retentionDays, "day")} at most.`]),
    ...(strictEvents ? ["Events must be valid for the catalogue of event types."] : []),
  ].join("\n"),
})

const isLimit = (name: string): name is OrgLimitName => (orgLimitNames as ReadonlyArray<string>).includes(name)

/** Parses limits such as keys=20000 and keys=default. */
const limitsOf = Effect.fnUntraced(function* (texts: Readonly<Record<string, string>>) {
  const limits: { [Name in OrgLimitName]?: number | null } = {}
  for (const [name, text] of Object.entries(texts)) {
    if (!isLimit(name)) {
      return yield* usage(`There is no limit ${plain(name)}; the limits are ${orgLimitNames.join(", ")}`)
    }
    if (text !== "default" && !/^\d+$/.test(text)) {
      return yield* usage(`--limit ${name}=${plain(text)} must be a whole number or default`)
    }
    limits[name] = text === "default" ? null : Number(text)
  }
  return limits
})

export const orgs = group("orgs", "Orgs (tenants), their owners and limits", [
  op("orgs.create", {
    args: { name: "name" },
    show: ({ orgId }) => ({
      out: orgId,
      note: `The org is created. To create a key: gatehouse keys create gateway --org ${orgId}`,
    }),
  }),
  op("orgs.list", {
    show: ({ orgs }) => columns(orgs, { ORG: "orgId", NAME: "name", CREATED: "createdAt" }),
  }),
  op("orgs.get", {
    name: "show",
    about: "Show the limits of an org and their current use",
    omit: ["orgId"],
    more: orgFlags,
    run: (send, _, org) => Effect.flatMap(orgOf(org), (orgId) => send({ orgId })),
    show: (detail) => orgOutput(detail, ""),
  }),
  op("orgs.update", {
    about:
      "Change the name, owners, key prefix, retention, strictness or limits of an org; needs the administrator's token",
    examples: [
      "orgs update --limit keys=20000 --limit projects=default",
      "orgs update --owners octo-org,gitlab:acme",
      "orgs update --retention-days 30",
    ],
    omit: ["orgId", "owners", "limits"],
    more: {
      ...orgFlags,
      owners: textFlag(
        "owners",
        "The owners of repositories that belong to the org, separated by commas: octo-org,gitlab:acme; none removes all",
      ),
      limit: Flag.KeyValuePair("limit").pipe(
        Flag.withDescription(
          `A limit and its value, for example keys=20000 or keys=default; repeat for each limit: ${orgLimitNames.join(", ")}`,
        ),
        Flag.optional,
      ),
    },
    run: Effect.fnUntraced(function* (send, fields, { limit, owners, ...org }) {
      const changes = given({
        owners: Option.map(owners, (text) => (text === "none" ? [] : text.split(",").map((owner) => owner.trim()))),
      })
      const limits = Option.isSome(limit) ? { limits: yield* limitsOf(limit.value) } : {}
      return yield* send({ ...fields, ...changes, ...limits, orgId: yield* orgOf(org) })
    }),
    show: (detail) => orgOutput(detail, " is changed."),
  }),
  op("orgs.remove", {
    about: "Delete an org with everything in it, for good; needs the administrator's token",
    omit: ["orgId"],
    more: { ...orgFlags, org: textFlag("org", "The same as the argument") },
    run: Effect.fnUntraced(function* (send, _, flags) {
      const org = yield* namedOrg(flags)
      // Never the only org by default: a deletion is for good.
      if (Option.isNone(org)) return yield* usage("Name the org to delete: gatehouse orgs delete <org>")
      return yield* send({ orgId: org.value })
    }),
    show: (_, { orgId }) => ({
      out: orgId,
      note: `The org is deleted. All that it had is erased within an hour: gatehouse orgs erasure ${orgId}`,
    }),
  }),
  op("orgs.erasure", {
    args: { org: "orgId" },
    show: ({ actor, deletedAt, endedAt, erased, person, progress }) => ({
      out: table(
        ["ERASED", "ROWS"],
        Object.entries(erased).filter(([, rows]) => rows > 0),
      ),
      note: [
        `Deleted by ${plain(person?.email ?? person?.name ?? actor)} at ${deletedAt.toJSON()}.`,
        endedAt === null
          ? progress < 100
            ? `The erasure continues: ${progress} % of its steps are done.`
            : "All steps are done. The erasure ends when no request from before the deletion can be running."
          : `The erasure ended at ${endedAt.toJSON()}.`,
      ].join("\n"),
    }),
  }),
  moveOrg,
])
