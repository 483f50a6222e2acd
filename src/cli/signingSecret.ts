import { Console, Effect, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import { standardKey } from "../domain/webhooks/Signature.ts"
import { readSecret } from "./readSecret.ts"

/** Standard Webhooks 1.0 recommends keys of 24 to 64 bytes. */
const minRecommendedBytes = 24

/** A new signing secret: 24 random bytes in the format of Standard Webhooks. */
export const newSecret = Effect.sync(() =>
  Redacted.make(`whsec_${randomBytes(minRecommendedBytes).toString("base64")}`),
)

/**
 * Calls `store` with the signing secret of an endpoint: GATEHOUSE_WEBHOOK_SECRET, the prompt or standard input, else a new
 * one. Prints a new secret on standard error after it is stored. Warns about a short one.
 */
export const withSigningSecret = Effect.fnUntraced(function* <A, E, R>(
  store: (secret: string) => Effect.Effect<A, E, R>,
) {
  const given = yield* readSecret("The signing secret (empty: make a new one)", "GATEHOUSE_WEBHOOK_SECRET")
  const secret = Redacted.value(given ?? (yield* newSecret))
  const bytes = Buffer.byteLength(standardKey(secret))
  if (bytes < minRecommendedBytes) {
    yield* Console.error(
      `Warning: the signing secret has ${bytes} bytes; Standard Webhooks recommends 24 to 64. Pass no secret to get a new one.`,
    )
  }
  yield* store(secret)
  if (given === undefined) {
    yield* Console.error(
      `This is the new signing secret. It is shown only once: export GATEHOUSE_WEBHOOK_SECRET=${secret}`,
    )
  }
})
