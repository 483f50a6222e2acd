import { Effect, Option, Redacted } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"
import { call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgs.ts"
import { more, table } from "./output.ts"
import { readSecret } from "./readSecret.ts"

/** The rate limit field of a request. Fails if only one of the two flags is given. */
const rateLimitOf = Effect.fnUntraced(function* (limit: Option.Option<number>, window: Option.Option<number>) {
  if (Option.isNone(limit) && Option.isNone(window)) return {}
  if (Option.isNone(limit) || Option.isNone(window)) {
    return yield* usage(
      "--rate-limit and --window go together. Set both, for example --rate-limit 600 --window 60 for 600 a minute",
    )
  }
  return { rateLimit: { limit: limit.value, window: window.value } }
})

const newKeyOutput = ({ id, key }: { readonly id: string; readonly key: string }, more = "") => ({
  out: key,
  note: `The key has the id ${id}. It is shown only once.${more} To use it here: export GATEHOUSE_TOKEN=<key>`,
})

const create = Command.make(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("A label for the key")),
    project: Flag.String("project").pipe(
      Flag.withDescription("The id of the project, for a project key"),
      Flag.optional,
    ),
    org: Flag.String("org").pipe(Flag.withDescription("The id of the org, for an org key"), Flag.optional),
    expiresAt: Flag.String("expires-at").pipe(
      Flag.withAlias("expires"),
      Flag.withDescription("When the key expires, for example 2027-01-31T00:00:00Z (default: never)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    rateLimit: Flag.Int("rate-limit").pipe(
      Flag.withDescription("How many validations a window allows, for each replica (default: no limit)"),
      Flag.optional,
    ),
    window: Flag.Int("window").pipe(Flag.withDescription("The window of --rate-limit, in seconds"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ expiresAt, name, org, project, rateLimit, window }) {
    if (Option.isSome(org) === Option.isSome(project)) {
      return yield* usage("A key has one owner: set --project <id>, or --org <id> for an org key")
    }
    const payload = { name, ...given({ expiresAt }), ...(yield* rateLimitOf(rateLimit, window)) }
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

const list = Command.make(
  "list",
  { org: orgFlag, ...page },
  Effect.fnUntraced(function* ({ cursor, limit, org }) {
    const orgId = yield* resolveOrg(org)
    yield* call(
      (gatehouse) => gatehouse.keys.list({ params: { orgId }, query: { limit, ...given({ cursor }) } }),
      ({ keys, nextCursor }) => ({
        out: table(
          ["KEY", "NAME", "PREFIX", "PROJECT", "CREATED", "EXPIRES", "RATE LIMIT", "LAST USED"],
          keys.map((key) => [
            key.id,
            key.name,
            key.prefix,
            key.projectId,
            key.createdAt,
            key.expiresAt,
            key.rateLimit && `${key.rateLimit.limit} in ${key.rateLimit.window} s`,
            key.lastUsedAt,
          ]),
        ),
        note: more(nextCursor),
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
  {},
  Effect.fnUntraced(function* () {
    const key = yield* readSecret("The key to validate")
    if (key === undefined) return yield* usage("The key to validate is missing. Pass it on standard input")
    yield* call(
      (gatehouse) => gatehouse.keys.validate({ payload: { key: Redacted.value(key) } }),
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

/** Creates, lists, rotates, deletes and validates API keys. */
export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of projects and orgs"),
  Command.withSubcommands([create, list, rotate, remove, validate]),
)
