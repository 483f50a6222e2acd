import { Data, Deferred, Duration, Effect, Option, Schema, Scope, Stream } from "effect"
import { FetchHttpClient, HttpClient, type HttpClientError } from "effect/http"
import { type CryptoKey, importJWK, type JWK } from "jose"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"

/** A key set larger than this is refused: GitHub's has about 10 KiB. */
const maxBytes = 256 * 1024
/** How long one fetch may take, connection and body included. */
const fetchTimeout = Duration.seconds(5)
/** Keys older than this are fetched anew before use, so that a withdrawn key stops working. */
const freshFor = Duration.toMillis("10 minutes")
/** Between two fetches that tokens cause (an unknown kid, keys past their time): strangers can send any kid. */
const refetchPause = Duration.toMillis("30 seconds")
/** Between two attempts while no keys are known at all; shorter, because nothing works until one succeeds. */
const firstFetchPause = Duration.toMillis("5 seconds")

/** The keys cannot be had: the provider is down, or its answer is no key set. */
export class KeysUnavailable extends Data.TaggedError("KeysUnavailable")<{ readonly reason: string }> {
  override get message() {
    return this.reason
  }
}

/** A JWK Set (RFC 7517, section 5); members that are no usable key are passed over, as it says. */
const JwkSet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))
const SigningKey = Schema.Struct({
  kty: Schema.Literal("RSA"),
  kid: Schema.NonEmptyString,
  use: Schema.optionalKey(Schema.Literal("sig")),
  alg: Schema.optionalKey(Schema.Literal("RS256")),
  n: Schema.String,
  e: Schema.String,
})

type Keys = ReadonlyMap<string, CryptoKey>

const importKey = (jwk: unknown): Effect.Effect<Option.Option<readonly [string, CryptoKey]>> =>
  Schema.decodeUnknownEffect(SigningKey)(jwk).pipe(
    // The schema keeps the public members only, so nothing else in the JWK reaches the import.
    Effect.flatMap((key) =>
      Effect.map(
        Effect.tryPromise(() => importJWK(key as JWK, "RS256")),
        (imported) => [key.kid, imported as CryptoKey] as const,
      ),
    ),
    Effect.option,
  )

const parseKeys = Effect.fnUntraced(function* (text: string) {
  const { keys } = yield* Schema.decodeEffect(JwkSet)(text)
  const imported = yield* Effect.forEach(keys, importKey)
  // A Map, so that a kid like "__proto__" finds nothing.
  return new Map(imported.flatMap(Option.toArray)) as Keys
})

/**
 * The provider's published signing keys, by their `kid`: fetched when first needed and kept in memory.
 *
 * `find` gives the key of a `kid`, or none when the provider publishes no such key, and fails with `KeysUnavailable`
 * when that cannot be known. A known kid keeps working while the provider is down. The fetch runs in the scope given
 * here, once for everyone who waits, and goes on when one of them leaves. jose's `createRemoteJWKSet` promises less: with
 * keys past their age and the provider down it refuses every known kid, and fetches once for each token.
 */
export const make = Effect.fnUntraced(function* (url: string) {
  const client = yield* HttpClient.HttpClient
  const scope = yield* Scope.Scope

  const fetchKeys = Effect.fn("OidcKeys.fetch")(
    function* () {
      const response = yield* client.get(url, { headers: { accept: "application/json" } })
      // A redirect has a status of its own and is never followed, whichever HttpClient this is.
      if (response.status !== 200) return yield* new KeysUnavailable({ reason: `status ${response.status}` })
      const bytes = yield* response.stream.pipe(
        Stream.limitBytes<HttpClientError.HttpClientError | KeysUnavailable, never>(maxBytes, () =>
          Stream.fail(new KeysUnavailable({ reason: `more than ${maxBytes} bytes` })),
        ),
        Stream.mkUint8Array,
      )
      return yield* parseKeys(new TextDecoder().decode(bytes))
    },
    Effect.timeout(fetchTimeout),
    Effect.provideService(HttpClient.TracerPropagationEnabled, false),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
    Effect.tapCause((cause) => Effect.logWarning(`The OIDC provider's keys cannot be fetched from ${url}`, cause)),
  )

  let keys: Keys = new Map()
  let fetchedAt: number | undefined
  let attempt: { at: number; failed: boolean; readonly done: Deferred.Deferred<void> } | undefined

  /** Starts a fetch, or joins the one under way; a failure leaves the keys as they were. */
  const refresh = (now: number) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (attempt === undefined || Deferred.isDoneUnsafe(attempt.done)) {
          const current = { at: now, failed: true, done: Deferred.makeUnsafe<void>() }
          attempt = current
          yield* fetchKeys().pipe(
            Effect.map((fetched) => {
              keys = fetched
              fetchedAt = now
              current.failed = false
            }),
            Effect.ignoreCause,
            Effect.ensuring(
              Effect.map(monotonicMillis, (end) => {
                // The pause counts from the end of an attempt, so that a slow provider gets a rest, too.
                current.at = end
                Deferred.doneUnsafe(current.done, Effect.void)
              }),
            ),
            Effect.forkIn(scope),
          )
        }
        yield* restore(Deferred.await(attempt.done))
      }),
    )

  return {
    find: Effect.fn("OidcKeys.find")(function* (
      kid: string,
    ): Effect.fn.Return<Option.Option<CryptoKey>, KeysUnavailable> {
      const now = yield* monotonicMillis
      const mayFetch = (pause: number) =>
        attempt === undefined || !Deferred.isDoneUnsafe(attempt.done) || now - attempt.at >= pause
      if (fetchedAt === undefined) {
        if (mayFetch(firstFetchPause)) yield* refresh(now)
      } else if ((now - fetchedAt >= freshFor || !keys.has(kid)) && mayFetch(refetchPause)) {
        yield* refresh(now)
      }
      const key = keys.get(kid)
      if (key === undefined && attempt?.failed !== false) {
        return yield* new KeysUnavailable({ reason: "the last fetch failed" })
      }
      return Option.fromUndefinedOr(key)
    }),
  }
})
