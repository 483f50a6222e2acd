import { Console, Effect, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import { standardKey } from "../domain/webhooks/Signature.ts"
import { readSecret } from "./readSecret.ts"

/** The fewest bytes that Standard Webhooks 1.0 recommends for a key; it recommends 64 at most. */
const recommendedBytes = 24

/** A secret of Standard Webhooks' kind: 24 random bytes. */
export const newSecret = Effect.sync(() => Redacted.make(`whsec_${randomBytes(recommendedBytes).toString("base64")}`))

/**
 * Runs what stores an endpoint's signing secret: GATEHOUSE_WEBHOOK_SECRET, else what is typed or comes on standard input,
 * else one made now. That one is printed on standard error once it is stored; of a short one there is a warning.
 */
export const withSigningSecret = Effect.fnUntraced(function* <A, E, R>(
  store: (secret: string) => Effect.Effect<A, E, R>,
) {
  const given = yield* readSecret("The signing secret (empty: make a new one)", "GATEHOUSE_WEBHOOK_SECRET")
  const secret = Redacted.value(given ?? (yield* newSecret))
  const bytes = Buffer.byteLength(standardKey(secret))
  if (bytes < recommendedBytes) {
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
