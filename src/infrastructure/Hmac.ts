import { Layer } from "effect"
import { createHmac } from "node:crypto"
import { Hmac } from "../domain/Signature.ts"

/** HMAC by Node's OpenSSL: some two microseconds for a body of a kilobyte. */
export const layer = Layer.succeed(Hmac, {
  sha256: (key, message, encoding) => createHmac("sha256", key).update(message, "utf8").digest(encoding),
})
