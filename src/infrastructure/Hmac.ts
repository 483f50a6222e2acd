import { Layer } from "effect"
import { createHmac, createSecretKey } from "node:crypto"
import { Hmac } from "../domain/Signature.ts"

/** HMAC by Node's OpenSSL: some two microseconds for a body of a kilobyte. */
export const layer = Layer.succeed(Hmac, {
  sha256: (key, message, encoding) =>
    // A key of bytes as an object: given as it is, it costs five times the digest.
    createHmac("sha256", typeof key === "string" ? key : createSecretKey(key))
      .update(message, "utf8")
      .digest(encoding),
})
