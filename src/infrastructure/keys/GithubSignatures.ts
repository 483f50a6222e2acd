import { Effect, Layer, Option, Schema } from "effect"
import { createPublicKey, type KeyObject, verify } from "node:crypto"
import { Unavailable } from "../../domain/Errors.ts"
import { ReportSignatures } from "../../domain/keys/LeakedKeys.ts"
import * as PublishedKeys from "../net/PublishedKeys.ts"

/** Where GitHub publishes the keys of its secret scanning. */
export const defaultKeysUrl = "https://api.github.com/meta/public_keys/secret_scanning"

/** Source: GitHub's documentation of the secret scanning partner program. */
const KeyList = Schema.fromJsonString(
  Schema.Struct({
    public_keys: Schema.Array(Schema.Struct({ key_identifier: Schema.NonEmptyString, key: Schema.String })),
  }),
)

/** The key of a PEM text; none unless it is an ECDSA key on P-256. */
const importKey = Option.liftThrowable((pem: string): KeyObject => {
  const key = createPublicKey(pem)
  if (key.asymmetricKeyType !== "ec" || key.asymmetricKeyDetails?.namedCurve !== "prime256v1") {
    throw new Error("The key is not on P-256")
  }
  return key
})

const parse = Effect.fnUntraced(function* (text: string) {
  const { public_keys: listed } = yield* Schema.decodeEffect(KeyList)(text)
  return new Map(
    listed.flatMap(({ key, key_identifier: id }) =>
      Option.toArray(Option.map(importKey(key), (one) => [id, one] as const)),
    ),
  ) as PublishedKeys.Keys<KeyObject>
})

const unavailable = new Unavailable({ error: "GitHub's public keys cannot be fetched; try again later." })

/** The longest signature, in base64 characters; GitHub's have about 96. */
const maxSignatureLength = 256

/** Checks reports with GitHub's published keys: ECDSA with SHA-256 on P-256, in DER. */
export const layer = (url: string) =>
  Layer.effect(
    ReportSignatures,
    Effect.map(
      PublishedKeys.make({
        address: url,
        what: "secret scanning keys",
        read: (client) => Effect.flatMap(PublishedKeys.fetchText(client, url), parse),
      }),
      ({ find }) =>
        ReportSignatures.of({
          verify: ({ body, keyId, signature }) =>
            signature.length > maxSignatureLength || keyId.length > maxSignatureLength
              ? Effect.succeed(false)
              : find(keyId).pipe(
                  Effect.mapError(() => unavailable),
                  Effect.map((key) => Option.isSome(key) && isSigned(key.value, signature, body)),
                ),
        }),
    ),
  )

/** A signature that cannot be read is not valid. */
const isSigned = (key: KeyObject, signature: string, body: Uint8Array) => {
  try {
    return verify("sha256", body, key, Buffer.from(signature, "base64"))
  } catch {
    return false
  }
}
