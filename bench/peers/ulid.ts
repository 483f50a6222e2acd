import { randomBytes } from "node:crypto"

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

/** Returns a ULID: 10 characters of time, 16 random ones. */
export const ulid = (): string => {
  let id = ""
  for (let time = Date.now(), n = 0; n < 10; n++, time = Math.floor(time / 32)) id = alphabet[time % 32] + id
  for (const byte of randomBytes(16)) id += alphabet[byte % 32]
  return id
}
