import { Effect, Layer, Redacted } from "effect"
import { Cipher } from "#src/domain/Cipher.ts"

/** A cipher that does not encrypt. It still decrypts a secret only for its owner. */
export const layer = Layer.succeed(Cipher, {
  keyIds: ["fake"],
  encrypt: (secret, owner) => Effect.succeed(JSON.stringify([owner, Redacted.value(secret)])),
  decrypt: (stored, owner) => {
    const [storedOwner, secret]: [string, string] = JSON.parse(stored)
    return storedOwner === owner
      ? Effect.succeed(Redacted.make(secret))
      : Effect.die(new Error("The secret has another owner"))
  },
})
