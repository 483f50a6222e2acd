import { Effect, Option, Redacted, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"
import type { ApiKey } from "../domain/keys/ApiKey.ts"
import { table, usage } from "./output.ts"
import { call, callPages } from "./call.ts"
import { given, page } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgs.ts"
import { readSecret } from "./secretInput.ts"

/** The flags of a key's settings, for commands that create, change or rotate a key. */
const settingFlags = {
  permission: Flag.String("permission").pipe(
    Flag.withDescription("What the key may do, for example models.* or files.read; repeat for each"),
    Flag.between(0, 100),
  ),
  externalId: Flag.String("external-id").pipe(Flag.withDescription("Your own id of the key's holder"), Flag.optional),
  metadata: Flag.String("metadata").pipe(Flag.withDescription("A JSON object of your own"), Flag.optional),
  rateLimit: Flag.Int("rate-limit").pipe(
    Flag.withDescription("How many validations a window allows, over all replicas (default: no limit)"),
    Flag.optional,
  ),
  window: Flag.Int("window").pipe(Flag.withDescription("The window of --rate-limit, in seconds"), Flag.optional),
  credits: Flag.Int("credits").pipe(
    Flag.withDescription("What the key may use in all (default: no limit)"),
    Flag.optional,
  ),
  refill: Flag.Literals("refill", ["day", "month"]).pipe(
    Flag.withDescription("When the credits are set to --credits again, at 00:00 UTC (default: never)"),
    Flag.optional,
  ),
}

interface Flags {
  readonly permission: ReadonlyArray<string>
  readonly externalId: Option.Option<string>
  readonly metadata: Option.Option<string>
  readonly rateLimit: Option.Option<number>
  readonly window: Option.Option<number>
  readonly credits: Option.Option<number>
  readonly refill: Option.Option<"day" | "month">
}

/** The rate limit field of a request. Fails if only one of the two flags is given. */
const rateLimitOf = Effect.fnUntraced(function* ({ rateLimit: limit, window }: Flags) {
  if (Option.isNone(limit) && Option.isNone(window)) return {}
  if (Option.isNone(limit) || Option.isNone(window)) {
    return yield* usage(
      "--rate-limit and --window go together. Set both, for example --rate-limit 600 --window 60 for 600 a minute",
    )
  }
  return { rateLimit: { limit: limit.value, window: window.value } }
})

const creditsOf = Effect.fnUntraced(function* ({ credits, refill }: Flags) {
  if (Option.isNone(credits)) {
    if (Option.isNone(refill)) return {}
    return yield* usage("--refill needs --credits, for example --credits 100000 --refill month")
  }
  const remaining = credits.value
  return Option.isNone(refill)
    ? { credits: { remaining } }
    : { credits: { remaining, refill: { amount: remaining, every: refill.value } } }
})

const decodeObject = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown)))

const metadataOf = Effect.fnUntraced(function* ({ metadata }: Flags) {
  if (Option.isNone(metadata)) return {}
  const object = decodeObject(metadata.value)
  if (Option.isNone(object)) return yield* usage(`--metadata must be a JSON object, for example '{"plan":"pro"}'`)
  return { metadata: object.value }
})

/** The settings of a request. */
const settingsOf = Effect.fnUntraced(function* (flags: Flags) {
  return {
    ...(flags.permission.length === 0 ? {} : { permissions: flags.permission }),
    ...(Option.isNone(flags.externalId) ? {} : { externalId: flags.externalId.value }),
    ...(yield* metadataOf(flags)),
    ...(yield* rateLimitOf(flags)),
    ...(yield* creditsOf(flags)),
  }
})

/** Shows the validations of a key, or of all keys of an org. */
const keyUsage = Command.make(
  "usage",
  {
    id: Argument.String("key-id").pipe(
      Argument.withDescription("The id of the key (default: all keys of the org)"),
      Argument.optional,
    ),
    org: orgFlag,
    from: Flag.String("from").pipe(
      Flag.withDescription("The start, for example 2026-11-01T00:00:00Z (default: 24 hours ago)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    to: Flag.String("to").pipe(
      Flag.withDescription("The end, which is not included (default: now)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    every: Flag.Literals("every", ["hour", "day"]).pipe(
      Flag.withDescription("The length of an interval (default: hour)"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ every, from, id, org, to }) {
    const orgId = yield* resolveOrg(org)
    const query = given({ from, to, every })
    yield* call(
      (gatehouse) =>
        Option.isSome(id)
          ? gatehouse.keys.usage({ params: { orgId, id: id.value }, query })
          : gatehouse.keys.orgUsage({ params: { orgId }, query }),
      ({ usage: intervals }) => ({
        out: table(
          ["FROM", "VALID", "FORBIDDEN", "LIMITED", "COST"],
          intervals.map(({ at, cost, forbidden, limited, valid }) => [at, valid, forbidden, limited, cost]),
        ),
        note: "",
      }),
    )
  }),
).pipe(
  Command.withDescription("Show how often keys were validated, by hour or day"),
  Command.withExamples([{ command: "gatehouse keys usage 01KAHBMKZ3D2X7S5QN8W4V6R9T --every day" }]),
)

const newKeyOutput = ({ id, key }: { readonly id: string; readonly key: string }, more = "") => ({
  out: key,
  note: `The key has the id ${id}. It is shown only once.${more} To use it here: export GATEHOUSE_TOKEN=<key>`,
})

const expiresAtFlag = Flag.String("expires-at").pipe(
  Flag.withAlias("expires"),
  Flag.withDescription("When the key expires, for example 2027-01-31T00:00:00Z (default: never)"),
  Flag.withSchema(Timestamp),
  Flag.optional,
)

/** Settings that `--clear` sets to null. */
const clearable = ["expiresAt", "permissions", "externalId", "metadata", "rateLimit", "credits"] as const

const create = Command.make(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("A label for the key")),
    project: Flag.String("project").pipe(
      Flag.withDescription("The id of the project, for a project key"),
      Flag.optional,
    ),
    org: Flag.String("org").pipe(Flag.withDescription("The id of the org, for an org key"), Flag.optional),
    expiresAt: expiresAtFlag,
    ...settingFlags,
  },
  Effect.fnUntraced(function* ({ expiresAt, name, org, project, ...settings }) {
    if (Option.isSome(org) === Option.isSome(project)) {
      return yield* usage("A key has one owner: set --project <id>, or --org <id> for an org key")
    }
    const payload = { name, ...given({ expiresAt }), ...(yield* settingsOf(settings)) }
    yield* call(
      (gatehouse) =>
        Option.isSome(project)
          ? gatehouse.keys.createForProject({ payload: { ...payload, projectId: project.value } })
          : gatehouse.keys.createForOrg({ params: { orgId: Option.getOrThrow(org) }, payload }),
      (created) => newKeyOutput(created),
    )
  }),
).pipe(
  Command.withDescription("Create an API key of a project or of an org, and print it"),
  Command.withExamples([
    { command: "gatehouse keys create ci --project 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
    { command: "export GATEHOUSE_TOKEN=$(gatehouse keys create me --org 01KAHBMKZ3D2X7S5QN8W4V6R9T)" },
  ]),
)

const stateOf = ({ enabled, leakedAt }: Pick<ApiKey, "enabled" | "leakedAt">) => {
  if (leakedAt !== null) return "leaked"
  return enabled ? "enabled" : "disabled"
}

const list = Command.make(
  "list",
  { org: orgFlag, externalId: settingFlags.externalId, ...page },
  Effect.fnUntraced(function* ({ externalId, org, ...page }) {
    const orgId = yield* resolveOrg(org)
    yield* callPages(
      page,
      (gatehouse, query) => gatehouse.keys.list({ params: { orgId }, query: { ...query, ...given({ externalId }) } }),
      ({ keys, nextCursor }) => ({
        table: table(
          ["KEY", "NAME", "PREFIX", "PROJECT", "CREATED", "EXPIRES", "RATE LIMIT", "CREDITS", "STATE", "LAST USED"],
          keys.map((key) => [
            key.id,
            key.name,
            key.prefix,
            key.projectId,
            key.createdAt,
            key.expiresAt,
            key.rateLimit && `${key.rateLimit.limit} in ${key.rateLimit.window} s`,
            key.credits,
            stateOf(key),
            key.lastUsedAt,
          ]),
        ),
        next: nextCursor,
      }),
    )
  }),
).pipe(Command.withDescription("List the keys of an org and its projects, oldest first"))

const remove = Command.make(
  "delete",
  {
    id: Argument.String("key-id").pipe(Argument.withDescription("The id of the key, not the key itself")),
    org: orgFlag,
  },
  Effect.fnUntraced(function* ({ id, org }) {
    const orgId = yield* resolveOrg(org)
    yield* call(
      (gatehouse) => gatehouse.keys.remove({ params: { orgId, id } }),
      () => ({ out: "", note: `The key ${id} is deleted. It is refused from now on.` }),
    )
  }),
).pipe(Command.withDescription("Delete a key; it is refused immediately"))

const update = Command.make(
  "update",
  {
    id: Argument.String("key-id").pipe(Argument.withDescription("The id of the key, not the key itself")),
    org: orgFlag,
    name: Flag.String("name").pipe(Flag.withDescription("The new label of the key"), Flag.optional),
    expiresAt: expiresAtFlag,
    enabled: Flag.Boolean("enabled").pipe(
      Flag.withDescription("Enable the key; --no-enabled disables it"),
      Flag.optional,
    ),
    clear: Flag.Literals("clear", clearable).pipe(
      Flag.withDescription(`A setting to clear; repeat for each: ${clearable.join(", ")}`),
      Flag.between(0, clearable.length),
    ),
    ...settingFlags,
  },
  Effect.fnUntraced(function* ({ clear, enabled, expiresAt, id, name, org, ...settings }) {
    const cleared = Object.fromEntries(clear.map((field) => [field, null]))
    const payload = { ...cleared, ...given({ name, expiresAt, enabled }), ...(yield* settingsOf(settings)) }
    if (Object.keys(payload).length === 0) {
      return yield* usage("Nothing to change: set --name, --no-enabled, --permission or another setting")
    }
    const params = { orgId: yield* resolveOrg(org), id }
    yield* call(
      (gatehouse) => gatehouse.keys.update({ params, payload }),
      () => ({ out: "", note: `The key ${id} is changed. Every replica knows it now.` }),
    )
  }),
).pipe(
  Command.withDescription("Change a key: name, expiry, permissions, limits and other settings"),
  Command.withExamples([
    { command: "gatehouse keys update 01KAHBMKZ3D2X7S5QN8W4V6R9T --no-enabled" },
    { command: "gatehouse keys update 01KAHBMKZ3D2X7S5QN8W4V6R9T --credits 100000 --refill month --clear rateLimit" },
  ]),
)

const rotate = Command.make(
  "rotate",
  {
    id: Argument.String("key-id").pipe(Argument.withDescription("The id of the key to replace, not the key itself")),
    org: orgFlag,
    overlap: Flag.Int("overlap").pipe(
      Flag.withDescription("How many seconds the old key stays valid, 0 to 604800 (default: one day)"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ id, org, overlap }) {
    const orgId = yield* resolveOrg(org)
    yield* call(
      (gatehouse) => gatehouse.keys.rotate({ params: { orgId, id }, payload: given({ overlapSeconds: overlap }) }),
      (created) => newKeyOutput(created, ` It replaces ${id}, which stays valid for the overlap.`),
    )
  }),
).pipe(
  Command.withDescription("Replace a key with a new one, and print it; the old one stays valid for the overlap"),
  Command.withExamples([{ command: "gatehouse keys rotate 01KAHBMKZ3D2X7S5QN8W4V6R9T --overlap 3600" }]),
)

const validate = Command.make(
  "validate",
  {
    permission: Flag.String("permission").pipe(
      Flag.withDescription("A permission that the use needs; repeat for each"),
      Flag.between(0, 20),
    ),
    cost: Flag.Int("cost").pipe(Flag.withDescription("What the use takes of the limits (default: 1)"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ cost, permission }) {
    const key = yield* readSecret("The key to validate")
    if (key === undefined) return yield* usage("The key to validate is missing. Pass it on standard input")
    yield* call(
      (gatehouse) =>
        gatehouse.keys.validate({
          payload: {
            key: Redacted.value(key),
            ...(permission.length === 0 ? {} : { permissions: permission }),
            ...given({ cost }),
          },
        }),
      ({ keyId, orgId, projectId }) => ({
        out: table(["KEY", "ORG", "PROJECT"], [[keyId, orgId, projectId]]),
        note: projectId === "" ? "The key is valid: an org key." : "The key is valid: a project key.",
      }),
    )
  }),
).pipe(
  Command.withDescription("Validate a key from standard input, and print its owner"),
  Command.withExamples([{ command: 'printf %s "$KEY" | gatehouse keys validate' }]),
)

/** Creates, lists, changes, rotates, deletes and validates API keys, and shows their usage. */
export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of projects and orgs"),
  Command.withSubcommands([create, list, update, rotate, remove, validate, keyUsage]),
)
