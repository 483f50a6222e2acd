import { Effect, Option, Schema } from "effect"
import { type CryptoKey, importJWK, type JWK } from "jose"
import type { HttpClient } from "effect/http"
import { keysPath } from "../../domain/deployments/providers/knownProviders.ts"
import * as PublishedKeys from "../net/PublishedKeys.ts"

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
 * The kind of key of each algorithm that a provider may use (RFC 7518, section 3.1; RFC 8037; RFC 9864). Symmetric ones
 * never.
 */
export const keyTypes: ReadonlyMap<string, string> = new Map([
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map((alg) => [alg, "RSA"] as const),
  ...["ES256", "ES384", "ES512"].map((alg) => [alg, "EC"] as const),
  ...["EdDSA", "Ed25519"].map((alg) => [alg, "OKP"] as const),
])
/** Keys of one id that are tried: a provider may publish two while it replaces one. */
const maxKeysPerId = 5

/** Where the keys of a provider are: their own address, or the one that the issuer's discovery document names. */
type KeySource = { readonly jwks: string } | { readonly issuer: string }

const nameOf = (kid: string, algorithm: string) => `${algorithm} ${kid}`

/**
 * Whether a key with this `alg` verifies tokens of an algorithm: Ed25519 is the new name of the only EdDSA there is.
 */
const mayVerify = (keyAlg: string | undefined, alg: string) =>
  keyAlg === undefined || keyAlg === alg || (keyTypes.get(keyAlg) === "OKP" && keyTypes.get(alg) === "OKP")

/** The keys of a JWK, one for each algorithm that the provider and the JWK allow. */
const importKey = (jwk: unknown, algorithms: ReadonlyArray<string>) =>
  Schema.decodeUnknownEffect(SigningKey)(jwk).pipe(
    // The schema keeps only these members of the JWK.
    Effect.flatMap((key) =>
      Effect.forEach(
        algorithms.filter((alg) => keyTypes.get(alg) === key.kty && mayVerify(key.alg, alg)),
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
  const found = new Map<string, Array<CryptoKey>>()
  for (const [name, key] of imported.flat()) {
    const known = found.get(name) ?? []
    if (known.length < maxKeysPerId) found.set(name, [...known, key])
  }
  return found as PublishedKeys.Keys<ReadonlyArray<CryptoKey>>
})

/** The members of a discovery document (OpenID Connect Discovery 1.0, section 3) that keys need. */
const Discovery = Schema.Struct({ issuer: Schema.String, jwks_uri: Schema.String })

/**
 * Reads the discovery document of an issuer: the members of a schema. The document must be the issuer's own, and its
 * addresses, whose names end with `_uri` or `_endpoint`, as safe as the issuer's.
 */
export const discover = Effect.fnUntraced(function* <A extends typeof Discovery.Type>(
  client: HttpClient.HttpClient,
  issuer: string,
  schema: Schema.Codec<A, unknown>,
) {
  const document = `${baseOf(issuer)}/.well-known/openid-configuration`
  const text = yield* PublishedKeys.fetchText(client, document)
  const found = yield* Schema.decodeUnknownEffect(Schema.fromJsonString(schema))(text).pipe(
    Effect.mapError(
      () => new PublishedKeys.KeysUnavailable({ reason: `${document} is no JSON with issuer and jwks_uri` }),
    ),
  )
  if (found.issuer !== issuer)
    return yield* new PublishedKeys.KeysUnavailable({
      reason: `${document} is of the issuer ${found.issuer.slice(0, 200)}`,
    })
  const unsafe = Object.entries(found).find(([name, url]) => /_(uri|endpoint)$/.test(name) && !isSafe(url, issuer))
  if (unsafe !== undefined)
    return yield* new PublishedKeys.KeysUnavailable({ reason: `${unsafe[0]} of ${document} must be an https URL` })
  return found
})

const baseOf = (issuer: string) => issuer.replace(/(?<!\/)\/+$/, "")

/** Whether an address is https, or of the origin of an issuer on this machine. */
const isSafe = (url: unknown, issuer: string) =>
  typeof url === "string" &&
  URL.canParse(url) &&
  (url.startsWith("https://") || (!issuer.startsWith("https:") && new URL(issuer).origin === new URL(url).origin))

/** The address of the keys. An issuer without a discovery document (404) has its keys at the path of GitHub's. */
export const keysUrl = (client: HttpClient.HttpClient, source: KeySource) =>
  "jwks" in source
    ? Effect.succeed(source.jwks)
    : discover(client, source.issuer, Discovery).pipe(
        Effect.map(({ jwks_uri }) => jwks_uri),
        Effect.catchIf(
          (error) => error._tag === "KeysUnavailable" && error.status === 404,
          () => Effect.succeed(`${baseOf(source.issuer)}${keysPath}`),
        ),
      )

const describeSource = (source: KeySource) => ("jwks" in source ? source.jwks : source.issuer)

/** The signing keys that a provider publishes as a JWK Set, by `kid` and algorithm. */
export const make = Effect.fnUntraced(function* (source: KeySource, algorithms: ReadonlyArray<string>) {
  const keys = yield* PublishedKeys.make({
    address: describeSource(source),
    what: "OIDC keys",
    read: (client) =>
      keysUrl(client, source).pipe(
        Effect.flatMap((url) => PublishedKeys.fetchText(client, url)),
        Effect.flatMap((text) => parseKeys(text, algorithms)),
      ),
  })
  return { find: (kid: string, algorithm: string) => keys.find(nameOf(kid, algorithm)) }
})
