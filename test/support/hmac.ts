import { createHmac } from "node:crypto"

/** The `x-webhook-signature` of a body: its HMAC-SHA256 in hexadecimal digits. */
export const hmac = (secret: string, body: string | Uint8Array) =>
  createHmac("sha256", secret).update(body).digest("hex")
