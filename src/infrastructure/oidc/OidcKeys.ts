import { Data, Deferred, Duration, Effect, Option, Schema, Scope, Stream } from "effect"
import { FetchHttpClient, HttpClient, type HttpClientError } from "effect/http"
import { type CryptoKey, importJWK, type JWK } from "jose"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"

/** Limit of a key set; GitHub's has about 10 KiB. */
const maxKeySetBytes = 256 * 1024
/** Deadline of a fetch, connection and body included. */
const fetchDeadline = Duration.seconds(5)
/** Keys older than this are fetched again before use, so that a withdrawn key stops working. */
const maxKeyAgeMillis = Duration.toMillis("10 minutes")
/** Minimum time between two fetches because of an unknown kid or old keys: anyone can send any kid. */
const minRefetchMillis = Duration.toMillis("30 seconds")
/** Minimum time between two fetches while no keys are known; shorter, because no token can be verified until then. */
const minFirstFetchMillis = Duration.toMillis("5 seconds")

/** The keys cannot be fetched: the provider is down, or its answer is not a key set. */
export class KeysUnavailable extends Data.TaggedError("KeysUnavailable")<{ readonly reason: string }> {
  override get message() {
    return this.reason
  }
}

/** A JWK Set (RFC 7517, section 5). As the RFC says, members that are not a usable key are ignored. */
const JwkSet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))
const common = {
  kid: Schema.NonEmptyString,
  use: Schema.optionalKey(Schema.Literal("sig")),
  alg: Schema.optionalKey(Schema.String),
}
const SigningKey = Schema.Union([
  Schema.Struct({ ...common, kty: Schema.Literal("RSA"), n: Schema.String, e: Schema.String }),
  Schema.Struct({ ...common, kty: Schema.Literal("EC"), crv: Schema.String, x: Schema.String, y: Schema.String }),
  Schema.Struct({ ...common, kty: Schema.Literal("OKP"), crv: Schema.Literal("Ed25519"), x: Schema.String }),
])

/** The kind of key of each algorithm that a provider may use (RFC 7518, section 3.1; RFC 8037). Symmetric ones never. */
export const keyTypes: ReadonlyMap<string, string> = new Map([
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map((alg) => [alg, "RSA"] as const),
  ...["ES256", "ES384", "ES512"].map((alg) => [alg, "EC"] as const),
  ["EdDSA", "OKP"] as const,
])

/** Where the keys of a provider are: their own address, or the one that the issuer's discovery document names. */
export type KeySource = { readonly jwks: string } | { readonly issuer: string }

type Keys = ReadonlyMap<string, CryptoKey>

const nameOf = (kid: string, algorithm: string) => `${algorithm} ${kid}`

/** The keys of a JWK, one for each algorithm that the provider and the JWK allow. */
const importKey = (jwk: unknown, algorithms: ReadonlyArray<string>) =>
  Schema.decodeUnknownEffect(SigningKey)(jwk).pipe(
    // The schema keeps only these members of the JWK.
    Effect.flatMap((key) =>
      Effect.forEach(
        algorithms.filter((alg) => keyTypes.get(alg) === key.kty && (key.alg ?? alg) === alg),
        (alg) =>
          Effect.option(
            Effect.map(
              Effect.tryPromise(() => importJWK(key as JWK, alg)),
              (imported) => [nameOf(key.kid, alg), imported as CryptoKey] as const,
            ),
          ),
      ),
    ),
    Effect.map((imported) => imported.flatMap(Option.toArray)),
    Effect.orElseSucceed(() => []),
  )

const parseKeys = Effect.fnUntraced(function* (text: string, algorithms: ReadonlyArray<string>) {
  const { keys } = yield* Schema.decodeEffect(JwkSet)(text)
  const imported = yield* Effect.forEach(keys, (key) => importKey(key, algorithms))
  // A Map, because a kid such as "__proto__" must not match.
  return new Map(imported.flat()) as Keys
})

/** The members of a discovery document (OpenID Connect Discovery 1.0, section 3) that are used. */
const Discovery = Schema.fromJsonString(Schema.Struct({ issuer: Schema.String, jwks_uri: Schema.String }))

/** Reads a document of a provider, within the limit of bytes, without redirects. */
const fetchText = Effect.fnUntraced(function* (client: HttpClient.HttpClient, url: string) {
  const response = yield* client.get(url, { headers: { accept: "application/json" } })
  // Redirects are never followed, whichever HttpClient this is: they have another status.
  if (response.status !== 200) return yield* new KeysUnavailable({ reason: `status ${response.status}` })
  const bytes = yield* response.stream.pipe(
    Stream.limitBytes<HttpClientError.HttpClientError | KeysUnavailable, never>(maxKeySetBytes, () =>
      Stream.fail(new KeysUnavailable({ reason: `more than ${maxKeySetBytes} bytes` })),
    ),
    Stream.mkUint8Array,
  )
  return new TextDecoder().decode(bytes)
})

/** The address of the keys. A discovery document must be the issuer's own, and name an address as safe as the issuer's. */
export const keysUrl = Effect.fnUntraced(function* (client: HttpClient.HttpClient, source: KeySource) {
  if ("jwks" in source) return source.jwks
  const { issuer } = source
  const text = yield* fetchText(client, `${issuer.replace(/\/+$/, "")}/.well-known/openid-configuration`)
  const { issuer: named, jwks_uri: url } = yield* Schema.decodeEffect(Discovery)(text)
  if (named !== issuer) return yield* new KeysUnavailable({ reason: "the discovery document is another issuer's" })
  const isSafe =
    url.startsWith("https://") || (!issuer.startsWith("https:") && new URL(issuer).origin === originOf(url))
  return isSafe ? url : yield* new KeysUnavailable({ reason: "jwks_uri must be an https URL" })
})

const originOf = (url: string) => (URL.canParse(url) ? new URL(url).origin : undefined)

const describeSource = (source: KeySource) => ("jwks" in source ? source.jwks : source.issuer)

const fetchKeys = Effect.fn("OidcKeys.fetch")(
  function* (client: HttpClient.HttpClient, source: KeySource, algorithms: ReadonlyArray<string>) {
    const url = yield* keysUrl(client, source)
    return yield* parseKeys(yield* fetchText(client, url), algorithms)
  },
  Effect.timeout(fetchDeadline),
  Effect.provideService(HttpClient.TracerPropagationEnabled, false),
  Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
  (keys, _client, source) =>
    Effect.tapCause(keys, (cause) =>
      Effect.logWarning(`The OIDC keys cannot be fetched from ${describeSource(source)}`, cause),
    ),
)

/**
 * The signing keys that the provider publishes, by `kid` and algorithm. They are fetched on first use and kept in memory.
 *
 * `find` returns the key of a `kid`, or none if the provider does not publish it. It fails with `KeysUnavailable` if that
 * is unknown. A known kid keeps working while the provider is down. A fetch runs in the scope of `make`, once for everyone
 * who waits, and continues when one of them is interrupted. jose's `createRemoteJWKSet` does less: with old keys and the
 * provider down it refuses every known kid, and it fetches once per token.
 */
export const make = Effect.fnUntraced(function* (source: KeySource, algorithms: ReadonlyArray<string>) {
  const client = yield* HttpClient.HttpClient
  const scope = yield* Scope.Scope
  let keys: Keys = new Map()
  let fetchedAt: number | undefined
  let attempt: { at: number; failed: boolean; readonly done: Deferred.Deferred<void> } | undefined

  /** Starts a fetch, or joins the one in flight. A failure does not change the keys. */
  const refresh = (now: number) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (attempt === undefined || Deferred.isDoneUnsafe(attempt.done)) {
          const current = { at: now, failed: true, done: Deferred.makeUnsafe<void>() }
          attempt = current
          yield* fetchKeys(client, source, algorithms).pipe(
            Effect.map((fetched) => {
              keys = fetched
              fetchedAt = now
              current.failed = false
            }),
            Effect.ignoreCause,
            Effect.ensuring(
              Effect.map(monotonicMillis, (end) => {
                // Counted from the end of a fetch, so that a slow provider is not fetched from all the time.
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
      algorithm: string,
    ): Effect.fn.Return<Option.Option<CryptoKey>, KeysUnavailable> {
      const now = yield* monotonicMillis
      const name = nameOf(kid, algorithm)
      const mayFetch = (minMillis: number) =>
        attempt === undefined || !Deferred.isDoneUnsafe(attempt.done) || now - attempt.at >= minMillis
      if (fetchedAt === undefined) {
        if (mayFetch(minFirstFetchMillis)) yield* refresh(now)
      } else if ((now - fetchedAt >= maxKeyAgeMillis || !keys.has(name)) && mayFetch(minRefetchMillis)) {
        yield* refresh(now)
      }
      const key = keys.get(name)
      if (key === undefined && attempt?.failed !== false) {
        return yield* new KeysUnavailable({ reason: "the last fetch failed" })
      }
      return Option.fromUndefinedOr(key)
    }),
  }
})
