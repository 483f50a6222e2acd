import { Effect, Layer } from "effect"
import { createPrivateKey, generateKeyPairSync, sign } from "node:crypto"
import { Ed25519 } from "../../domain/webhooks/Signature.ts"

/** The bytes of an Ed25519 public key, at the end of its SPKI form (RFC 8410). */
const publicKeyBytes = 32

/** Ed25519 (RFC 8032) of Node. */
export const layer = Layer.succeed(Ed25519, {
  generate: Effect.sync(() => {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519")
    return {
      publicKey: publicKey.export({ type: "spki", format: "der" }).subarray(-publicKeyBytes).toString("base64"),
      privateKey: privateKey.export({ type: "pkcs8", format: "der" }).toString("base64"),
    }
  }),
  sign: (privateKey) => {
    const key = createPrivateKey({ key: Buffer.from(privateKey, "base64"), type: "pkcs8", format: "der" })
    return (message) => sign(null, Buffer.from(message), key).toString("base64")
  },
})
