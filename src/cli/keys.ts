import { Effect, Option, Redacted } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"
import { ask, call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { more, plain, table } from "./output.ts"
import { readSecret } from "./readSecret.ts"

const orgFlag = Flag.String("org").pipe(
  Flag.withDescription("The org's id; not needed while there is one org"),
  Flag.optional,
)

/** The org that is named, or the only one that the caller reaches. */
const theOrg = Effect.fnUntraced(function* (org: Option.Option<string>) {
  if (Option.isSome(org)) return org.value
  const { orgs } = (yield* ask((gatehouse) => gatehouse.orgs.list({ query: { limit: 100 } }))).answer
  if (orgs.length === 1) return orgs[0]!.orgId
  return yield* usage(
    orgs.length === 0
      ? "There is no org yet; gatehouse projects create docs makes the first"
      : `There are several orgs; say which with --org: ${orgs.map(({ name, orgId }) => `${orgId} (${plain(name)})`).join(", ")}`,
  )
})

const create = Command.make(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("A label, to know the key by")),
    project: Flag.String("project").pipe(Flag.withDescription("The id of the project whose key it is"), Flag.optional),
    org: Flag.String("org").pipe(Flag.withDescription("The id of the org whose key it is"), Flag.optional),
    expires: Flag.String("expires").pipe(
      Flag.withDescription("When it stops being valid, as in 2027-01-31T00:00:00Z; never unless told"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ expires, name, org, project }) {
    if (Option.isSome(org) === Option.isSome(project)) {
      return yield* usage("Say whose key it is: --project <id>, or --org <id> for a key of the whole org")
    }
    const payload = { name, ...given({ expiresAt: expires }) }
    yield* call(
      (gatehouse) =>
        Option.isSome(project)
          ? gatehouse.keys.createForProject({ payload: { ...payload, projectId: project.value } })
          : gatehouse.keys.createForOrg({ params: { orgId: Option.getOrThrow(org) }, payload }),
      ({ id, key }) => ({
        out: key,
        note: `The key ${id}: it is shown this once, and stored nowhere. To use it here: export GATEHOUSE_TOKEN=<key>`,
      }),
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
          ["KEY", "NAME", "PREFIX", "PROJECT", "CREATED", "EXPIRES", "LAST USED"],
          keys.map((key) => [
            key.id,
            key.name,
            key.prefix,
            key.projectId,
            key.createdAt,
            key.expiresAt,
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

const validate = Command.make(
  "validate",
  {},
  Effect.fnUntraced(function* () {
    const key = Redacted.value(yield* readSecret("The key to validate"))
    yield* call(
      (gatehouse) => gatehouse.keys.validate({ payload: { key } }),
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

/** Creates, lists, deletes and validates API keys. */
export const keys = Command.make("keys").pipe(
  Command.withDescription("API keys of projects and orgs"),
  Command.withSubcommands([create, list, remove, validate]),
)
