import { Effect, Layer, Redacted } from "effect"
import { Cipher } from "#src/domain/Cipher.ts"

/** Secrets that anybody can read, and that open for their owner alone. */
export const layer = Layer.succeed(Cipher, {
  encrypt: (secret, owner) => Effect.succeed(JSON.stringify([owner, Redacted.value(secret)])),
  decrypt: (stored, owner) => {
    const [of, secret]: [string, string] = JSON.parse(stored)
    return of === owner ? Effect.succeed(Redacted.make(secret)) : Effect.die(new Error("The secret is another's"))
  },
})
