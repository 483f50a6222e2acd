import { Context, Effect, Layer, Redacted, Result } from "effect"
import { Base64 } from "effect/encoding"

/** The `user-agent` of every request to a receiver. */
export const userAgent = "Gatehouse/0.1.0"

/** HMAC-SHA256 (RFC 2104). It is a plain function because Effect's `Mac` costs eight times the digest. */
export class Hmac extends Context.Service<
  Hmac,
  {
    /** Prepares a key, and returns a function that digests messages. Text stands for its UTF-8 bytes. */
    readonly sha256: (key: string | Uint8Array) => (message: string, encoding: "hex" | "base64") => string
  }
>()("gatehouse/domain/Signature/Hmac") {}

/** Ed25519 (RFC 8032). */
export class Ed25519 extends Context.Service<
  Ed25519,
  {
    /** A new key pair: the 32 bytes of the public key in base64, and the private key as text for `sign`. */
    readonly generate: Effect.Effect<{ readonly publicKey: string; readonly privateKey: string }>
    /** Prepares a private key, and returns a function that signs messages, in base64. */
    readonly sign: (privateKey: string) => (message: string) => string
  }
>()("gatehouse/domain/Signature/Ed25519") {}

/** The parts of an attempt that are signed. */
export interface Signable {
  readonly deliveryId: string
  /** The type of the event. */
  readonly event: string
  /** The exact request body. */
  readonly body: string
  /** The time of this attempt, in whole seconds since 1970. */
  readonly timestamp: number
}

const prefix = "whsec_"
// With or without padding: the reference libraries accept both.
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

/**
 * The key of `webhook-signature`. A secret of `whsec_` and base64 is the decoded base64; any other secret is its own
 * UTF-8 bytes, including one that continues after `whsec_` with something else. Never empty, because no secret is.
 */
export const standardKey = (secret: string): string | Uint8Array => {
  const rest = secret.slice(prefix.length)
  if (!secret.startsWith(prefix) || !base64.test(rest)) return secret
  return Result.getOrThrow(Base64.decode(rest.padEnd(Math.ceil(rest.length / 4) * 4, "=")))
}

/** Makes the headers of one attempt. */
export type Sign = (attempt: Signable) => Readonly<Record<string, string>>

/** Signs webhooks. */
export class Signer extends Context.Service<
  Signer,
  {
    /**
     * Prepares secrets for any number of attempts: the current secret, then the previous one during its overlap.
     * `x-webhook-signature` is the hex HMAC of the body with the characters of the current secret as the key.
     * `webhook-signature` has one signature for each secret, and one for each Ed25519 key (Standard Webhooks 1.0). No secret
     * is a defect.
     */
    readonly prepare: (
      secrets: ReadonlyArray<Redacted.Redacted<string>>,
      signingKeys?: ReadonlyArray<Redacted.Redacted<string>>,
    ) => Effect.Effect<Sign>
  }
>()("gatehouse/domain/Signature/Signer") {
  static readonly layer = Layer.effect(
    Signer,
    Effect.gen(function* () {
      const { sha256 } = yield* Hmac
      const ed25519 = yield* Ed25519
      const prepare: Signer["Service"]["prepare"] = (secrets, signingKeys = []) =>
        Effect.sync((): Sign => {
          const [current] = secrets
          if (current === undefined) throw new Error("A delivery has no secret")
          const plain = sha256(Redacted.value(current))
          const standard = secrets.map((secret) => sha256(standardKey(Redacted.value(secret))))
          const keys = signingKeys.map((key) => ed25519.sign(Redacted.value(key)))
          return ({ body, deliveryId, event, timestamp }) => {
            const content = `${deliveryId}.${timestamp}.${body}`
            return {
              "content-type": "application/json",
              "user-agent": userAgent,
              "x-webhook-signature": plain(body, "hex"),
              "x-event-type": event,
              "webhook-id": deliveryId,
              "webhook-timestamp": String(timestamp),
              "webhook-signature": [
                ...standard.map((digest) => `v1,${digest(content, "base64")}`),
                ...keys.map((sign) => `v1a,${sign(content)}`),
              ].join(" "),
            }
          }
        })
      return Signer.of({ prepare })
    }),
  )
}
