import { Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { createCipheriv, createDecipheriv, createHash, createSecretKey, type KeyObject } from "node:crypto"
import { Cipher } from "../../domain/Cipher.ts"
import { StartupError } from "../StartupError.ts"

/** Bytes of a key: AES-256. */
export const keyLength = 32
// NIST SP 800-38D, 8.2.2 and 8.3: random nonces of 96 bits are good for 2^32 secrets under one key.
const nonceLength = 12
const tagLength = 16
const stored = /^v1\.([0-9a-f]{8})\.([A-Za-z0-9_-]+)$/

/** A name for a key that tells nothing about it, so that the right one of several is found again. */
export const keyId = (key: Uint8Array) =>
  createHash("sha256").update("gatehouse encryption key id\0").update(key).digest("hex").slice(0, 8)

/** What everything begins with that is stored under a key. */
export const prefixOf = (keyId: string) => `v1.${keyId}.`

/**
 * AES-256-GCM (NIST SP 800-38D) under the first of the keys, as `v1.<key id>.<base64url of nonce, ciphertext, tag>`,
 * with the owner as associated data. Any of the keys decrypts. Fails with a `StartupError` when there is no key, or one
 * that is not 32 bytes long.
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
      if (current === undefined || bytes.some((key) => key.length !== keyLength)) {
        return yield* new StartupError({
          message: `ENCRYPTION_KEY must hold at least one key, each of ${keyLength} bytes in base64; for example ENCRYPTION_KEY=$(openssl rand -base64 32)`,
        })
      }
      // Key objects print nothing of what they hold.
      const byId = new Map<string, KeyObject>(bytes.map((key) => [keyId(key), createSecretKey(key)]))
      const currentId = keyId(current)
      const currentKey = byId.get(currentId)!

      const encrypt = Effect.fn("Cipher.encrypt")(function* (secret: Redacted.Redacted<string>, owner: string) {
        const nonce = yield* random.randomBytes(nonceLength)
        const cipher = createCipheriv("aes-256-gcm", currentKey, nonce, { authTagLength: tagLength })
        cipher.setAAD(Buffer.from(owner, "utf8"))
        const sealed = [nonce, cipher.update(Redacted.value(secret), "utf8"), cipher.final(), cipher.getAuthTag()]
        return `${prefixOf(currentId)}${Buffer.concat(sealed).toString("base64url")}`
      })

      const decrypt = Effect.fnUntraced(function* (text: string, owner: string) {
        const [, id = "", payload = ""] = stored.exec(text) ?? []
        const sealed = Buffer.from(payload, "base64url")
        // One spelling only: base64url that ends in other unused bits is not what was stored.
        if (sealed.length < nonceLength + tagLength || sealed.toString("base64url") !== payload) {
          return yield* fault(owner, "is not in the form in which secrets are stored")
        }
        const key = byId.get(id)
        if (key === undefined) {
          return yield* fault(
            owner,
            `was encrypted with the key ${id}, which is not given: add that key to ENCRYPTION_KEY, after a comma (the embedded database's own is in DATA_DIR/encryption.key)`,
          )
        }
        const plain = open(key, sealed, owner)
        return plain ?? (yield* fault(owner, "does not decrypt: it was changed, or belongs to another row"))
      })

      return Cipher.of({ encrypt, decrypt })
    }),
  )

/** A row that no request can have made so: a defect, whose message holds neither the secret nor a key. */
const fault = (owner: string, what: string) => Effect.die(new Error(`The stored secret of ${owner} ${what}`))

const open = (key: KeyObject, sealed: Buffer, owner: string) => {
  const decipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(0, nonceLength), { authTagLength: tagLength })
  decipher.setAAD(Buffer.from(owner, "utf8"))
  decipher.setAuthTag(sealed.subarray(-tagLength))
  const start = decipher.update(sealed.subarray(nonceLength, -tagLength))
  try {
    // Throws when the tag does not match: nothing of the text is used before.
    return Redacted.make(Buffer.concat([start, decipher.final()]).toString("utf8"))
  } catch {
    return undefined
  }
}
