import { Effect, Option, Schema } from "effect"
import { type CryptoKey, importJWK, type JWK } from "jose"
import type { HttpClient } from "effect/http"
import { keysPath } from "../../domain/deployments/providers/presets.ts"
import * as PublishedKeys from "../net/PublishedKeys.ts"
import { fetchText, KeysUnavailable } from "../net/PublishedKeys.ts"

export { KeysUnavailable } from "../net/PublishedKeys.ts"

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

/**
 * The kind of key of each algorithm that a provider may use (RFC 7518, section 3.1; RFC 8037). Symmetric ones never.
 */
export const keyTypes: ReadonlyMap<string, string> = new Map([
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map((alg) => [alg, "RSA"] as const),
  ...["ES256", "ES384", "ES512"].map((alg) => [alg, "EC"] as const),
  ["EdDSA", "OKP"] as const,
])

/** Where the keys of a provider are: their own address, or the one that the issuer's discovery document names. */
export type KeySource = { readonly jwks: string } | { readonly issuer: string }

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
  return new Map(imported.flat()) as PublishedKeys.Keys<CryptoKey>
})

/** The members of a discovery document (OpenID Connect Discovery 1.0, section 3) that are used. */
const Discovery = Schema.fromJsonString(Schema.Struct({ issuer: Schema.String, jwks_uri: Schema.String }))

/**
 * The address of the keys: the one that the issuer's discovery document names. The document must be the issuer's own,
 * and the address as safe as the issuer's. An issuer without a document (404) has its keys at the path of GitHub's.
 */
export const keysUrl = Effect.fnUntraced(function* (client: HttpClient.HttpClient, source: KeySource) {
  if ("jwks" in source) return source.jwks
  const { issuer } = source
  const base = issuer.replace(/(?<!\/)\/+$/, "")
  const document = `${base}/.well-known/openid-configuration`
  const text = yield* fetchText(client, document).pipe(
    Effect.catchIf(
      (error) => error._tag === "KeysUnavailable" && error.status === 404,
      () => Effect.undefined,
    ),
  )
  if (text === undefined) return `${base}${keysPath}`
  const { issuer: named, jwks_uri: url } = yield* Schema.decodeEffect(Discovery)(text).pipe(
    Effect.mapError(() => new KeysUnavailable({ reason: `${document} is no JSON with issuer and jwks_uri` })),
  )
  if (named !== issuer)
    return yield* new KeysUnavailable({ reason: `${document} is of the issuer ${named.slice(0, 200)}` })
  const isSafe =
    url.startsWith("https://") || (!issuer.startsWith("https:") && new URL(issuer).origin === originOf(url))
  return isSafe ? url : yield* new KeysUnavailable({ reason: `jwks_uri of ${document} must be an https URL` })
})

const originOf = (url: string) => (URL.canParse(url) ? new URL(url).origin : undefined)

const describeSource = (source: KeySource) => ("jwks" in source ? source.jwks : source.issuer)

/** The signing keys that a provider publishes as a JWK Set, by `kid` and algorithm. */
export const make = Effect.fnUntraced(function* (source: KeySource, algorithms: ReadonlyArray<string>) {
  const keys = yield* PublishedKeys.make({
    address: describeSource(source),
    what: "OIDC",
    read: (client) =>
      keysUrl(client, source).pipe(
        Effect.flatMap((url) => fetchText(client, url)),
        Effect.flatMap((text) => parseKeys(text, algorithms)),
      ),
  })
  return { find: (kid: string, algorithm: string) => keys.find(nameOf(kid, algorithm)) }
})
