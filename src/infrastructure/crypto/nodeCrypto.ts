import { Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { createHmac, createPrivateKey, createPublicKey, createSecretKey, hash, sign } from "node:crypto"
import { Hmac } from "../../domain/webhooks/Signatures.ts"
import { Ed25519 } from "../../domain/Ed25519.ts"
import { KeyHash } from "../../domain/keys/ApiKeyRepository.ts"

/** The bytes of an Ed25519 public key, at the end of its SPKI form (RFC 8410). */
const publicKeyBytes = 32
/** What comes before the seed in the PKCS #8 form of a private key (RFC 8410). */
const beforeSeed = Buffer.from("302e020100300506032b657004220420", "hex")

/** Ed25519 (RFC 8032) of Node. */
const ed25519 = Layer.succeed(Ed25519, {
  keyPair: (seed) => {
    const privateKey = Buffer.concat([beforeSeed, seed])
    const publicKey = createPublicKey(createPrivateKey({ key: privateKey, type: "pkcs8", format: "der" }))
    return {
      publicKey: publicKey.export({ type: "spki", format: "der" }).subarray(-publicKeyBytes).toString("base64"),
      privateKey: privateKey.toString("base64"),
    }
  },
  sign: (privateKey) => {
    const key = createPrivateKey({ key: Buffer.from(privateKey, "base64"), type: "pkcs8", format: "der" })
    return (message) => sign(null, Buffer.from(message), key).toString("base64")
  },
})

/** HMAC with Node's OpenSSL: about two microseconds for a body of a kilobyte. */
const hmac = Layer.succeed(Hmac, {
  sha256: (key) => {
    // A KeyObject does not print its key, and is made once: a key passed as bytes costs five times the digest.
    const keyObject = createSecretKey(typeof key === "string" ? Buffer.from(key, "utf8") : key)
    return (message, encoding) => createHmac("sha256", keyObject).update(message, "utf8").digest(encoding)
  },
})

/** The signatures of webhooks: HMAC and Ed25519. */
export const signatures = Layer.merge(hmac, ed25519)

/** SHA-256 by Node's OpenSSL. One call takes half the time of a digest object. */
export const keyHash = Layer.succeed(KeyHash, (key) => hash("sha256", key, "hex"))

/** A pool of the system's random bytes. The bytes before `next` were used and are overwritten with zeros. */
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
 * Secure random bytes, requested from the system 4 KiB at a time, as `crypto.randomUUID` does. A request per key took 5
 * % of the time to create a key.
 */
export const secureRandom = Layer.sync(SecureRandom.SecureRandom, () => SecureRandom.make(randomBytes))
