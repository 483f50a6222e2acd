import { DateTime, Effect, Option, Redacted, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { counted } from "../domain/plural.ts"
import type { ApiKey, KeyState } from "../domain/keys/ApiKey.ts"
import { KeyToImport } from "../domain/keys/ImportKeys.ts"
import type { UsageInterval } from "../domain/keys/KeyUsage.ts"
import type { Role } from "../domain/keys/Roles.ts"
import { fit, shapeOf } from "../domain/jsonShape.ts"
import { ask, call, faultsOf, resolveOrg } from "./callOperation.ts"
import { Json, JsonText, group, intFlag, orgFlag, switchFlag, textArgument, textFlag, readText } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, failure, plain, print, table, usage } from "./output.ts"
import { readSecret } from "./secretInput.ts"

/** The limits of a key, each in two flags. */
const limitFlags = {
  rateLimit: intFlag("rate-limit", "How many validations a window allows, over all replicas (default: unlimited)"),
  window: intFlag("window", "The window of --rate-limit, in seconds"),
  credits: intFlag("credits", "What the key may use in all (default: unlimited)"),
  refill: Flag.Literals("refill", ["day", "month", "never"]).pipe(
    Flag.withDescription(
      "When the credits are set to --credits again, at 00:00 UTC (default: never; of a change: as before)",
    ),
    Flag.optional,
  ),
}
const addCredits = intFlag("add-credits", "How many credits to add; a negative number takes them, down to 0")

interface Limits {
  readonly rateLimit: Option.Option<number>
  readonly window: Option.Option<number>
  readonly credits: Option.Option<number>
  readonly refill: Option.Option<"day" | "month" | "never">
}

/** The rate limit field of a request. Fails if only one of the two flags is given. */
const rateLimitOf = Effect.fnUntraced(function* ({ rateLimit: limit, window }: Limits) {
  if (Option.isNone(limit) && Option.isNone(window)) return {}
  if (Option.isNone(limit) || Option.isNone(window)) {
    return yield* usage(
      "--rate-limit and --window go together. Set both, for example --rate-limit 600 --window 60 for 600 a minute",
    )
  }
  return { rateLimit: { limit: limit.value, window: window.value } }
})

/** The credits of a new key. */
const creditsOf = Effect.fnUntraced(function* ({ credits, refill }: Limits) {
  const every = Option.getOrElse(refill, () => "never" as const)
  if (Option.isSome(credits)) {
    const remaining = credits.value
    return { credits: every === "never" ? { remaining } : { remaining, refill: { amount: remaining, every } } }
  }
  if (every === "never") return {}
  return yield* usage("--refill needs --credits, for example --credits 100000 --refill month")
})

/** A change of the credits: what is absent stays. */
const changedCreditsOf = Effect.fnUntraced(function* (flags: Limits & { readonly addCredits: Option.Option<number> }) {
  const { addCredits, credits, refill } = flags
  const none = Option.contains(refill, "never") ? { refill: null } : {}
  if (Option.isSome(addCredits)) {
    if (Option.isSome(credits)) return yield* usage("Set --credits or --add-credits, not both")
    if (Option.isSome(refill) && refill.value !== "never") return yield* usage("--refill needs --credits")
    return { credits: { add: addCredits.value, ...none } }
  }
  const given = yield* creditsOf(flags)
  if (given.credits !== undefined) return { credits: { ...given.credits, ...none } }
  return Option.isSome(refill) ? { credits: none } : {}
})

const changedLimitsOf = Effect.fnUntraced(function* (flags: Parameters<typeof changedCreditsOf>[0]) {
  return { ...(yield* rateLimitOf(flags)), ...(yield* changedCreditsOf(flags)) }
})

/** The limits of a new key. */
const limitsOf = Effect.fnUntraced(function* (flags: Limits) {
  return { ...(yield* rateLimitOf(flags)), ...(yield* creditsOf(flags)) }
})

const usageTable = ({ usage }: { readonly usage: ReadonlyArray<UsageInterval> }) =>
  columns(usage, { FROM: "at", VALID: "valid", FORBIDDEN: "forbidden", LIMITED: "limited", COST: "cost" })

const newKeyOutput = ({ id, key }: { readonly id: string; readonly key: string }, more = "") => ({
  out: key,
  note: `The key has the id ${id}. It is shown only once.${more} To use it here: export GATEHOUSE_TOKEN=<key>`,
})

const KeysToImport = Schema.Array(KeyToImport)
const decodeKeys = Schema.decodeUnknownEffect(KeysToImport, { onExcessProperty: "error" })
const decodeImport = (text: string) =>
  Effect.flatMap(Schema.decodeEffect(JsonText)(text), (json) => decodeKeys(fit(json, shapeOf(KeysToImport.ast))))
/** What one request imports: at most 1,000 keys, and fewer with long settings. A body has at most 1 MiB. */
const maxImportChars = 500_000

/** The positions at which the requests of an import begin. */
const batchStarts = (keys: ReadonlyArray<unknown>) => {
  const starts = [0]
  let chars = 0
  for (const [n, key] of keys.entries()) {
    const length = JSON.stringify(key).length
    if (n === (starts.at(-1) ?? 0) + 1_000 || chars + length > maxImportChars) {
      starts.push(n)
      chars = 0
    }
    chars += length
  }
  return starts
}

const importKeys = Command.make(
  "import",
  {
    file: textArgument("file", "A JSON list of keys: hash, algorithm, name and settings; - is standard input"),
    org: orgFlag,
    dryRun: switchFlag("dry-run", "Check everything and import nothing"),
  },
  Effect.fnUntraced(function* ({ dryRun, file, org }) {
    const text = yield* Effect.try({
      try: () => readText(file === "-" ? 0 : file),
      catch: () => usage(`The file ${plain(file)} cannot be read, or is not UTF-8`),
    })
    const keys = yield* Effect.mapError(decodeImport(text), (fault) =>
      usage(`${plain(file)}: ${plain(faultsOf(fault))}`),
    )
    const params = { orgId: yield* resolveOrg(org) }
    let [imported, existing] = [0, 0]
    const starts = batchStarts(keys)
    for (const [n, start] of starts.entries()) {
      const payload = { keys: keys.slice(start, starts[n + 1]), dryRun }
      const { body, document } = yield* ask((gatehouse) => gatehouse.keys.importKeys({ params, payload })).pipe(
        Effect.mapError((fault) =>
          /\bkeys\.\d/.test(fault.message)
            ? usage(`${fault.message} The index is counted from key ${start} of the file`)
            : fault,
        ),
      )
      imported += body.imported.length
      existing += body.existing.length
      if (yield* Json) yield* print(document, { out: "" })
    }
    // Each request of a dry run has the room that all need together.
    if (dryRun && starts.length > 1) {
      const { limits, used } = (yield* ask((gatehouse) => gatehouse.orgs.get({ params }))).body
      if (used.keys + imported > limits.keys)
        return yield* failure(
          `${imported} more keys would exceed its limit of ${limits.keys}: the org has ${used.keys}. ` +
            "Set another with gatehouse orgs update --limit keys=<number>",
        )
    }
    if (yield* Json) return
    const verb = dryRun ? "can be" : imported === 1 ? "is" : "are"
    const exist = existing === 1 ? "exists" : "exist"
    yield* print("", { out: `${counted(imported, "key")} ${verb} imported, ${existing} ${exist} already.` })
  }),
).pipe(
  Command.withDescription("Import keys that were made elsewhere, by their hashes; safe to repeat"),
  Command.withExamples([{ command: "gatehouse keys import keys.json --dry-run" }]),
)

/** In the words of the filter `--state`. */
const stateOf = ({ enabled, expiresAt, leakedAt }: ApiKey): KeyState => {
  if (leakedAt !== null) return "leaked"
  if (expiresAt !== null && DateTime.isPastUnsafe(expiresAt)) return "expired"
  return enabled ? "valid" : "disabled"
}

const keyTable = (keys: ReadonlyArray<ApiKey>) =>
  columns(keys, {
    KEY: "id",
    NAME: "name",
    PREFIX: "prefix",
    PROJECT: "projectId",
    CREATED: "createdAt",
    EXPIRES: "expiresAt",
    "RATE LIMIT": ({ rateLimit }) => rateLimit && `${rateLimit.limit} in ${rateLimit.window} s`,
    CREDITS: ({ credits }) => credits?.remaining,
    STATE: stateOf,
    "LAST USED": "lastUsedAt",
  })

const one = { args: { "key-id": "id" } } as const

/** Sends a request with the key from standard input. */
const withKey =
  (verb: string) =>
  <F, A, E, R>(send: (fields: F & { readonly key: string }) => Effect.Effect<A, E, R>, fields: F) =>
    readSecret(`The key to ${verb}`).pipe(
      Effect.filterOrFail(
        (key) => key !== undefined,
        () => usage(`The key to ${verb} is missing. Pass it on standard input`),
      ),
      Effect.flatMap((key) => send({ ...fields, key: Redacted.value(key) })),
    )

const oneRole = { args: { role: "name" } } as const

const roleTable = (roles: ReadonlyArray<Role>) =>
  columns(roles, { ROLE: "name", PERMISSIONS: ({ permissions }) => permissions.join(" ") })

export const roles = group("roles", "Roles: named sets of permissions for API keys", [
  op("roles.list", { show: ({ roles }) => roleTable(roles) }),
  op("roles.put", {
    ...oneRole,
    examples: ["roles put reader --permission files.read --permission models.*"],
    show: (role) => ({ out: roleTable([role]), note: "Every replica knows it within seconds." }),
  }),
  op("roles.remove", {
    ...oneRole,
    show: (_, { name }) => `The role ${name} is deleted: it grants nothing.`,
  }),
])

export const keys = group("keys", "API keys of projects and orgs", [
  op("keys.createForProject", {
    name: "create",
    args: { name: "name" },
    about: "Create an API key of a project or of an org, and print it",
    omit: ["projectId", "rateLimit", "credits"],
    more: {
      project: textFlag("project", "The id of the project, for a project key"),
      org: textFlag("org", "The id of the org, for an org key"),
      ...limitFlags,
    },
    run: (send, settings, { org, project, ...flags }) => {
      if (Option.isSome(org) === Option.isSome(project)) {
        return usage("A key has one owner: set --project <id>, or --org <id> for an org key")
      }
      return Effect.flatMap(limitsOf(flags), (limits) => {
        const payload = { ...settings, ...limits }
        if (Option.isSome(project)) return send({ ...payload, projectId: project.value })
        const params = { orgId: Option.getOrThrow(org) }
        return call(
          (gatehouse) => gatehouse.keys.createForOrg({ params, payload }),
          (made) => newKeyOutput(made),
        )
      })
    },
    show: (made) => newKeyOutput(made),
  }).pipe(
    Command.withExamples([
      { command: "gatehouse keys create ci --project 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
      { command: "export GATEHOUSE_TOKEN=$(gatehouse keys create me --org 01KAHBMKZ3D2X7S5QN8W4V6R9T)" },
    ]),
  ),
  importKeys,
  op("keys.list", { show: ({ keys }) => keyTable(keys) }),
  op("keys.get", { ...one, name: "show", show: (key) => keyTable([key]) }),
  op("keys.update", {
    ...one,
    about: "Change a key: name, expiry, permissions, limits and other settings",
    examples: [
      "keys update 01KAHBMKZ3D2X7S5QN8W4V6R9T --no-enabled",
      "keys update 01KAHBMKZ3D2X7S5QN8W4V6R9T --credits 100000 --refill month --clear rateLimit",
    ],
    omit: ["rateLimit", "credits"],
    clearable: ["rateLimit", "credits"],
    more: { ...limitFlags, addCredits },
    run: (send, fields, flags) => Effect.flatMap(changedLimitsOf(flags), (limits) => send({ ...fields, ...limits })),
    show: (_, { id }) => `The key ${id} is changed. Every replica knows it within seconds.`,
  }),
  op("keys.rotate", {
    ...one,
    about: "Replace a key with a new one, and print it; the old one stays valid for the grace period",
    examples: ["keys rotate 01KAHBMKZ3D2X7S5QN8W4V6R9T --overlap 3600"],
    flags: { overlapSeconds: "overlap" },
    omit: ["rateLimit", "credits"],
    clearable: ["rateLimit", "credits"],
    more: { ...limitFlags, addCredits },
    run: (send, fields, flags) => Effect.flatMap(changedLimitsOf(flags), (limits) => send({ ...fields, ...limits })),
    show: (created, { id }) => newKeyOutput(created, ` It replaces ${id}, which stays valid for the grace period.`),
  }),
  op("keys.remove", {
    ...one,
    show: (_, { id }) => `The key ${id} is deleted. It is refused from now on.`,
  }),
  op("keys.validate", {
    about: "Validate a key from standard input, and print its owner",
    examples: ["keys validate"],
    omit: ["key"],
    run: withKey("validate"),
    show: ({ keyId, orgId, projectId }) => ({
      out: table(["KEY", "ORG", "PROJECT"], [[keyId, orgId, projectId]]),
      note: projectId === "" ? "The key is valid: an org key." : "The key is valid: a project key.",
    }),
  }),
  op("keys.token", {
    about: "Exchange a key from standard input for a short-lived token, and print it",
    examples: ["keys token --permission files.read"],
    omit: ["key"],
    run: withKey("exchange"),
    show: ({ expiresAt, token }) => ({
      out: token,
      note: `The token is valid until ${DateTime.formatIso(expiresAt)}. It cannot be revoked.`,
    }),
  }),
  op("keys.orgUsage", {
    name: "usage",
    about: "Show how often keys were validated, by hour or day",
    examples: ["keys usage 01KAHBMKZ3D2X7S5QN8W4V6R9T --every day"],
    more: {
      id: Argument.optional(textArgument("key-id", "The id of the key (default: all keys of the org)")),
    },
    run: (send, fields, { id }) => {
      if (Option.isNone(id)) return send(fields)
      const { orgId, ...query } = fields
      return call((gatehouse) => gatehouse.keys.usage({ params: { orgId, id: id.value }, query }), usageTable)
    },
    show: usageTable,
  }),
])
