import { Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { createCipheriv, createDecipheriv, createHash, createSecretKey, type KeyObject } from "node:crypto"
import { Cipher } from "../../domain/Cipher.ts"
import { StartupError } from "../StartupError.ts"

/** Length of an AES-256 key. */
export const keyBytes = 32
// NIST SP 800-38D, 8.2.2 and 8.3: random nonces of 96 bits allow 2^32 secrets per key.
const nonceBytes = 12
const tagBytes = 16
const storedPattern = /^v1\.([0-9a-f]{8})\.([A-Za-z0-9_-]+)$/

/** The id of a key, 8 hex characters, which reveals nothing about it. A stored secret has the id of its key. */
export const keyId = (key: Uint8Array) =>
  createHash("sha256").update("gatehouse encryption key id\0").update(key).digest("hex").slice(0, 8)

/** The prefix of every secret that is encrypted with a key. */
export const prefixOf = (keyId: string) => `v1.${keyId}.`

/**
 * Encrypts with AES-256-GCM (NIST SP 800-38D) and the first key, and decrypts with any of the keys. The format is
 * `v1.<key id>.<base64url of nonce, ciphertext, tag>`, with the owner as associated data. Fails with a `StartupError`
 * if there is no key or a key is not 32 bytes long.
 */
export const layer = (
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
): Layer.Layer<Cipher, StartupError, SecureRandom.SecureRandom> =>
  Layer.effect(
    Cipher,
    Effect.gen(function* () {
      const random = yield* SecureRandom.SecureRandom
      const bytes = keys.map(Redacted.value)
      const [current] = bytes
      if (current === undefined || bytes.some((key) => key.length !== keyBytes)) {
        return yield* new StartupError({
          message: `ENCRYPTION_KEY must be one or more keys of ${keyBytes} bytes in base64; for example ENCRYPTION_KEY=$(openssl rand -base64 32)`,
        })
      }
      // A KeyObject does not print its key.
      const byId = new Map<string, KeyObject>(bytes.map((key) => [keyId(key), createSecretKey(key)]))
      const currentId = keyId(current)
      const currentKey = byId.get(currentId)!

      const encrypt = Effect.fn("Cipher.encrypt")(function* (secret: Redacted.Redacted<string>, owner: string) {
        const nonce = yield* random.randomBytes(nonceBytes)
        const cipher = createCipheriv("aes-256-gcm", currentKey, nonce, { authTagLength: tagBytes })
        cipher.setAAD(Buffer.from(owner, "utf8"))
        const sealed = [nonce, cipher.update(Redacted.value(secret), "utf8"), cipher.final(), cipher.getAuthTag()]
        return `${prefixOf(currentId)}${Buffer.concat(sealed).toString("base64url")}`
      })

      const decrypt = Effect.fnUntraced(function* (text: string, owner: string) {
        const [, id = "", payload = ""] = storedPattern.exec(text) ?? []
        const sealed = Buffer.from(payload, "base64url")
        // Accepts canonical base64url only: this cipher never stores a text with other unused bits.
        if (sealed.length < nonceBytes + tagBytes || sealed.toString("base64url") !== payload) {
          return yield* dieUnreadable(owner, "does not have the format of a stored secret")
        }
        const key = byId.get(id)
        if (key === undefined) {
          return yield* dieUnreadable(
            owner,
            `was encrypted with the key ${id}, which ENCRYPTION_KEY does not have: add that key to ENCRYPTION_KEY, after a comma (the key of the embedded database is in DATA_DIR/encryption.key)`,
          )
        }
        const secret = open(key, sealed, owner)
        return secret ?? (yield* dieUnreadable(owner, "does not decrypt: it was changed, or belongs to another row"))
      })

      return Cipher.of({ keyIds: [currentId, ...bytes.slice(1).map(keyId)], encrypt, decrypt })
    }),
  )

/** Dies, because no request can store such a row. The message contains neither the secret nor a key. */
const dieUnreadable = (owner: string, reason: string) =>
  Effect.die(new Error(`The stored secret of ${owner} ${reason}`))

const open = (key: KeyObject, sealed: Buffer, owner: string) => {
  const decipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(0, nonceBytes), { authTagLength: tagBytes })
  decipher.setAAD(Buffer.from(owner, "utf8"))
  decipher.setAuthTag(sealed.subarray(-tagBytes))
  const start = decipher.update(sealed.subarray(nonceBytes, -tagBytes))
  try {
    // `final` throws if the tag does not match, before any of the text is used.
    return Redacted.make(Buffer.concat([start, decipher.final()]).toString("utf8"))
  } catch {
    return undefined
  }
}
