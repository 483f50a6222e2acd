import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { counted } from "../domain/counted.ts"
import { type OrgDetail } from "../domain/orgs/Org.ts"
import { type OrgLimitName, orgLimitNames } from "../domain/orgs/OrgLimits.ts"
import { call, resolveOrg } from "./call.ts"
import { op } from "./operation.ts"
import { columns, plain, table, usage } from "./output.ts"
import { given, orgFlag } from "./flags.ts"
import { moveOrg } from "./nodesCommand.ts"

const orgArgument = Argument.String("org").pipe(Argument.withDescription("The id of the org"), Argument.optional)

/** The org of a command that takes its id as an argument or in `--org`, if it is given. */
const namedOrg = Effect.fnUntraced(function* (argument: Option.Option<string>, flag: Option.Option<string>) {
  if (Option.isSome(argument) && Option.isSome(flag) && argument.value !== flag.value) {
    return yield* usage("The argument and --org name different orgs: use one of them")
  }
  return Option.orElse(argument, () => flag)
})

const create = op("orgs.create", {
  args: { name: "name" },
  show: ({ orgId }) => ({
    out: orgId,
    note: `The org is created. To create a key: gatehouse keys create gateway --org ${orgId}`,
  }),
})

const list = op("orgs.list", {
  show: ({ orgs }) => columns(orgs, { ORG: "orgId", NAME: "name", CREATED: "createdAt" }),
})

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

const show = Command.make(
  "show",
  { id: orgArgument, org: orgFlag },
  Effect.fnUntraced(function* ({ id, org }) {
    const params = { orgId: yield* resolveOrg(yield* namedOrg(id, org)) }
    yield* call(
      (gatehouse) => gatehouse.orgs.get({ params }),
      (detail) => orgOutput(detail, ""),
    )
  }),
).pipe(Command.withDescription("Show the limits of an org and their current use"))

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

const update = Command.make(
  "update",
  {
    id: orgArgument,
    org: orgFlag,
    name: Flag.String("name").pipe(Flag.withDescription("The new name of the org"), Flag.optional),
    owners: Flag.String("owners").pipe(
      Flag.withDescription(
        "The owners of repositories that belong to the org, separated by commas: octo-org,gitlab:acme; none removes all",
      ),
      Flag.optional,
    ),
    keyPrefix: Flag.String("key-prefix").pipe(
      Flag.withDescription("The prefix of new keys, such as acme_live; default: svc"),
      Flag.optional,
    ),
    retentionDays: Flag.String("retention-days").pipe(
      Flag.withDescription(
        "How many days events and finished jobs are kept, if that is less than RETENTION_DAYS; default: RETENTION_DAYS",
      ),
      Flag.optional,
    ),
    strictEvents: Flag.Boolean("strict-events").pipe(
      Flag.withDescription("Publish only events that are valid for the catalogue; --no-strict-events: any event"),
      Flag.optional,
    ),
    limit: Flag.KeyValuePair("limit").pipe(
      Flag.withDescription(
        `A limit and its value, for example keys=20000 or keys=default; repeat for each limit: ${orgLimitNames.join(", ")}`,
      ),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ id, keyPrefix: prefix, limit, name, org, owners, retentionDays: days, strictEvents }) {
    if (
      Option.isNone(limit) &&
      [name, owners, days, prefix, strictEvents].every((flag) => Option.isNone<unknown>(flag))
    ) {
      return yield* usage(
        "Nothing to change: set --name, --owners, --key-prefix, --retention-days, --strict-events or --limit <limit>=<number>",
      )
    }
    const list = Option.map(owners, (text) => (text === "none" ? [] : text.split(",").map((owner) => owner.trim())))
    if (Option.isSome(days) && days.value !== "default" && !/^\d+$/.test(days.value)) {
      return yield* usage(`--retention-days ${plain(days.value)} must be a whole number or default`)
    }
    const retentionDays = Option.map(days, (text) => (text === "default" ? null : Number(text)))
    const keyPrefix = Option.map(prefix, (text) => (text === "default" ? null : text))
    const limits = Option.isNone(limit) ? {} : { limits: yield* limitsOf(limit.value) }
    const params = { orgId: yield* resolveOrg(yield* namedOrg(id, org)) }
    yield* call(
      (gatehouse) =>
        gatehouse.orgs.update({
          params,
          payload: { ...given({ name, owners: list, keyPrefix, retentionDays, strictEvents }), ...limits },
        }),
      (detail) => orgOutput(detail, " is changed."),
    )
  }),
).pipe(
  Command.withDescription(
    "Change the name, owners, key prefix, retention, strictness or limits of an org; needs the administrator's token",
  ),
  Command.withExamples([
    { command: "gatehouse orgs update --limit keys=20000 --limit projects=default" },
    { command: "gatehouse orgs update --owners octo-org,gitlab:acme" },
    { command: "gatehouse orgs update --retention-days 30" },
  ]),
)

const remove = Command.make(
  "delete",
  { id: orgArgument, org: Flag.String("org").pipe(Flag.withDescription("The same as the argument"), Flag.optional) },
  Effect.fnUntraced(function* ({ id, org }) {
    const named = yield* namedOrg(id, org)
    // Never the only org by default: a deletion is for good.
    if (Option.isNone(named)) return yield* usage("Name the org to delete: gatehouse orgs delete <org>")
    yield* call(
      (gatehouse) => gatehouse.orgs.remove({ params: { orgId: named.value } }),
      () => ({
        out: named.value,
        note: `The org is deleted. All that it had is erased within an hour: gatehouse orgs erasure ${named.value}`,
      }),
    )
  }),
).pipe(Command.withDescription("Delete an org with everything in it, for good; needs the administrator's token"))

const erasure = op("orgs.erasure", {
  args: { org: "orgId" },
  about: "Show how far the erasure of a deleted org is; at its end, the receipt",
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
})

/** Creates, lists, shows, changes and deletes orgs. */
export const orgs = Command.make("orgs").pipe(
  Command.withDescription("Orgs (tenants), their owners and limits"),
  Command.withSubcommands([create, list, show, update, remove, erasure, moveOrg]),
)
