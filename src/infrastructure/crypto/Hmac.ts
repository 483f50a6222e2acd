import { Layer } from "effect"
import { createHmac, createSecretKey } from "node:crypto"
import { Hmac } from "../../domain/webhooks/Signature.ts"

/** HMAC by Node's OpenSSL: some two microseconds for a body of a kilobyte. */
export const layer = Layer.succeed(Hmac, {
  sha256: (key) => {
    // As an object, which prints nothing of it: a key of bytes, given as it is, costs five times the digest.
    const object = createSecretKey(typeof key === "string" ? Buffer.from(key, "utf8") : key)
    return (message, encoding) => createHmac("sha256", object).update(message, "utf8").digest(encoding)
  },
})
