import { Effect, Option, Redacted } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"
import { call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { orgFlag, theOrg } from "./orgs.ts"
import { more, table } from "./output.ts"
import { readSecret } from "./readSecret.ts"

/** A rate limit, of both flags or neither. */
const rateLimitOf = Effect.fnUntraced(function* (limit: Option.Option<number>, window: Option.Option<number>) {
  if (Option.isNone(limit) && Option.isNone(window)) return {}
  if (Option.isNone(limit) || Option.isNone(window)) {
    return yield* usage("--rate-limit and --window go together: as in --rate-limit 600 --window 60, 600 times a minute")
  }
  return { rateLimit: { limit: limit.value, window: window.value } }
})

const shownOnce = ({ id, key }: { readonly id: string; readonly key: string }, more = "") => ({
  out: key,
  note: `The key ${id}: it is shown this once, and stored nowhere.${more} To use it here: export GATEHOUSE_TOKEN=<key>`,
})

const create = Command.make(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("A label, to know the key by")),
    project: Flag.String("project").pipe(Flag.withDescription("The id of the project whose key it is"), Flag.optional),
    org: Flag.String("org").pipe(Flag.withDescription("The id of the org whose key it is"), Flag.optional),
    expiresAt: Flag.String("expires-at").pipe(
      Flag.withAlias("expires"),
      Flag.withDescription("When it stops being valid, as in 2027-01-31T00:00:00Z; never unless told"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    rateLimit: Flag.Int("rate-limit").pipe(
      Flag.withDescription(
        "How often it may be validated in a window, by each replica; as often as one likes unless told",
      ),
      Flag.optional,
    ),
    window: Flag.Int("window").pipe(Flag.withDescription("That window, in seconds"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ expiresAt, name, org, project, rateLimit, window }) {
    if (Option.isSome(org) === Option.isSome(project)) {
      return yield* usage("Say whose key it is: --project <id>, or --org <id> for a key of the whole org")
    }
    const payload = { name, ...given({ expiresAt }), ...(yield* rateLimitOf(rateLimit, window)) }
    yield* call(
      (gatehouse) =>
        Option.isSome(project)
          ? gatehouse.keys.createForProject({ payload: { ...payload, projectId: project.value } })
          : gatehouse.keys.createForOrg({ params: { orgId: Option.getOrThrow(org) }, payload }),
      (created) => shownOnce(created),
    )
  }),
).pipe(
  Command.withDescription("Create an API key of a project or of an org; prints it"),
  Command.withExamples([
    { command: "gatehouse keys create ci --project 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
    { command: "export GATEHOUSE_TOKEN=$(gatehouse keys create me --org 01KAHBMKZ3D2X7S5QN8W4V6R9T)" },
  ]),
)

const list = Command.make(
  "list",
  { org: orgFlag, ...page },
  Effect.fnUntraced(function* ({ cursor, limit, org }) {
    const orgId = yield* theOrg(org)
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
).pipe(Command.withDescription("List an org's keys and its projects', oldest first"))

const remove = Command.make(
  "delete",
  { id: Argument.String("key-id").pipe(Argument.withDescription("The key's id, not the key")), org: orgFlag },
  Effect.fnUntraced(function* ({ id, org }) {
    const orgId = yield* theOrg(org)
    yield* call(
      (gatehouse) => gatehouse.keys.remove({ params: { orgId, id } }),
      () => ({ out: "", note: `The key ${id} is deleted, and refused from now on.` }),
    )
  }),
).pipe(Command.withDescription("Delete a key: it is refused from then on"))

const rotate = Command.make(
  "rotate",
  {
    id: Argument.String("key-id").pipe(Argument.withDescription("The id of the key to replace, not the key")),
    org: orgFlag,
    overlap: Flag.Int("overlap").pipe(
      Flag.withDescription("For how many seconds the old key stays good, 0 to 604800; a day unless told"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ id, org, overlap }) {
    const orgId = yield* theOrg(org)
    yield* call(
      (gatehouse) => gatehouse.keys.rotate({ params: { orgId, id }, payload: given({ overlapSeconds: overlap }) }),
      (created) => shownOnce(created, ` It replaces ${id}, which ends after the overlap.`),
    )
  }),
).pipe(
  Command.withDescription("Make a new key in the place of another, which stays good for a while; prints it"),
  Command.withExamples([{ command: "gatehouse keys rotate 01KAHBMKZ3D2X7S5QN8W4V6R9T --overlap 3600" }]),
)

const validate = Command.make(
  "validate",
  {},
  Effect.fnUntraced(function* () {
    const key = yield* readSecret("The key to validate")
    if (key === undefined) return yield* usage("The key to validate is missing; give it on standard input")
    yield* call(
      (gatehouse) => gatehouse.keys.validate({ payload: { key: Redacted.value(key) } }),
      ({ keyId, orgId, projectId }) => ({
        out: table(["KEY", "ORG", "PROJECT"], [[keyId, orgId, projectId]]),
        note: projectId === "" ? "Valid: a key of the whole org." : "Valid: a key of the project.",
      }),
    )
  }),
).pipe(
  Command.withDescription("Check a key and tell whose it is; the key comes on standard input, or is asked for"),
  Command.withExamples([{ command: 'printf %s "$KEY" | gatehouse keys validate' }]),
)

/** Creates, lists, rotates, deletes and validates API keys. */
export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of projects and orgs"),
  Command.withSubcommands([create, list, rotate, remove, validate]),
)
