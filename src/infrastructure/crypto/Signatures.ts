import { Layer } from "effect"
import * as Ed25519 from "./Ed25519.ts"
import { createHmac, createSecretKey } from "node:crypto"
import { Hmac } from "../../domain/webhooks/Signature.ts"

/** HMAC with Node's OpenSSL: about two microseconds for a body of a kilobyte. */
const hmac = Layer.succeed(Hmac, {
  sha256: (key) => {
    // A KeyObject does not print its key, and is made once: a key passed as bytes costs five times the digest.
    const keyObject = createSecretKey(typeof key === "string" ? Buffer.from(key, "utf8") : key)
    return (message, encoding) => createHmac("sha256", keyObject).update(message, "utf8").digest(encoding)
  },
})

/** The signatures of webhooks: HMAC and Ed25519. */
export const layer = Layer.merge(hmac, Ed25519.layer)
