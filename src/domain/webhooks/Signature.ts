import { Context, Effect, Layer, Redacted, Result } from "effect"
import { Base64 } from "effect/encoding"

/** What the service calls itself at receivers. */
export const userAgent = "Gatehouse/0.1.0"

/** HMAC-SHA256 (RFC 2104). A plain function and not Effect's `Mac`, which costs eight times the digest itself. */
export class Hmac extends Context.Service<
  Hmac,
  {
    /** Prepares a key, and gives the digest of a message under it; text stands for its UTF-8 bytes. */
    readonly sha256: (key: string | Uint8Array) => (message: string, encoding: "hex" | "base64") => string
  }
>()("gatehouse/domain/Signature/Hmac") {}

/** One attempt to deliver, about to be signed. */
export interface Signable {
  /** The same on every retry. */
  readonly deliveryId: string
  /** `job.completed` or `job.failed`. */
  readonly event: string
  /** The exact text that is sent. */
  readonly body: string
  /** When this attempt is made, in whole seconds since 1970. */
  readonly timestamp: number
}

const prefix = "whsec_"
// Padded or not: the reference libraries take both.
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

/**
 * The key of `webhook-signature`: what follows `whsec_`, decoded from base64; of any other secret, one included that
 * begins with `whsec_` and goes on with something else, all its UTF-8 bytes. Never empty, as the secret is not.
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
     * Prepares secrets (the endpoint's, then the one before it while that still signs) for any number of attempts:
     * `x-webhook-signature` is the hex HMAC of the body under the characters of the first one; `webhook-signature` has one
     * signature for each, as Standard Webhooks 1.0 says. No secret at all is a defect.
     */
    readonly prepare: (secrets: ReadonlyArray<Redacted.Redacted<string>>) => Effect.Effect<Sign>
  }
>()("gatehouse/domain/Signature/Signer") {
  static readonly layer = Layer.effect(
    Signer,
    Hmac.useSync(({ sha256 }) => {
      const prepare = (secrets: ReadonlyArray<Redacted.Redacted<string>>) =>
        Effect.sync((): Sign => {
          const [current] = secrets
          if (current === undefined) throw new Error("A delivery has no secret")
          const plain = sha256(Redacted.value(current))
          const standard = secrets.map((secret) => sha256(standardKey(Redacted.value(secret))))
          return ({ body, deliveryId, event, timestamp }) => {
            const content = `${deliveryId}.${timestamp}.${body}`
            return {
              "content-type": "application/json",
              "user-agent": userAgent,
              "x-webhook-signature": plain(body, "hex"),
              "x-event-type": event,
              "webhook-id": deliveryId,
              "webhook-timestamp": String(timestamp),
              "webhook-signature": standard.map((digest) => `v1,${digest(content, "base64")}`).join(" "),
            }
          }
        })
      return Signer.of({ prepare })
    }),
  )
}
