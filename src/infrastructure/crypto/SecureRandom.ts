import { Layer } from "effect"
import { SecureRandom } from "effect/crypto"

/** Bytes of the system's that nobody has yet, from `next` on; what is given out is wiped. */
const pool = new Uint8Array(4096)
let next = pool.length

const randomBytes = (size: number) => {
  if (size > pool.length) return SecureRandom.randomBytesUnsafe(size)
  if (next + size > pool.length) {
    crypto.getRandomValues(pool)
    next = 0
  }
  const bytes = pool.slice(next, next + size)
  pool.fill(0, next, next + size)
  next += size
  return bytes
}

/**
 * Secure random bytes, asked of the system 4 KiB at a time, as `crypto.randomUUID` does: a call to it for every key took a
 * twentieth of what creating one does.
 */
export const layer = Layer.sync(SecureRandom.SecureRandom, () => SecureRandom.make(randomBytes))
