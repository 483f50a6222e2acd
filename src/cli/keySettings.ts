import { Effect, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { usage } from "./CommandFailed.ts"

/** The flags of a key's settings, for commands that create, change or rotate a key. */
export const settingFlags = {
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
export const settingsOf = Effect.fnUntraced(function* (flags: Flags) {
  return {
    ...(flags.permission.length === 0 ? {} : { permissions: flags.permission }),
    ...(Option.isNone(flags.externalId) ? {} : { externalId: flags.externalId.value }),
    ...(yield* metadataOf(flags)),
    ...(yield* rateLimitOf(flags)),
    ...(yield* creditsOf(flags)),
  }
})
