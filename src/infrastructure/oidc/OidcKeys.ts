import { Effect, Option, Schema } from "effect"
import { type CryptoKey, importJWK, type JWK } from "jose"
import * as PublishedKeys from "../net/PublishedKeys.ts"

export { KeysUnavailable } from "../net/PublishedKeys.ts"

/** A JWK Set (RFC 7517, section 5). As the RFC says, members that are not a usable key are ignored. */
const JwkSet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))
const SigningKey = Schema.Struct({
  kty: Schema.Literal("RSA"),
  kid: Schema.NonEmptyString,
  use: Schema.optionalKey(Schema.Literal("sig")),
  alg: Schema.optionalKey(Schema.Literal("RS256")),
  n: Schema.String,
  e: Schema.String,
})

const importKey = (jwk: unknown): Effect.Effect<Option.Option<readonly [string, CryptoKey]>> =>
  Schema.decodeUnknownEffect(SigningKey)(jwk).pipe(
    // The schema keeps only these members of the JWK.
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
  return new Map(imported.flatMap(Option.toArray)) as PublishedKeys.Keys<CryptoKey>
})

/** The signing keys that a provider publishes as a JWK Set, by `kid`. */
export const make = (url: string) => PublishedKeys.make({ url, what: "OIDC", parse: parseKeys })
