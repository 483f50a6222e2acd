import { assert, describe } from "@effect/vitest"
import { Cause, Effect, Exit, Layer, Redacted, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { inspect } from "node:util"
import { Cipher } from "#src/domain/Cipher.ts"
import * as AesCipher from "#src/infrastructure/crypto/AesCipher.ts"
import { it } from "../../support/it.ts"

const key = (byte: number) => Redacted.make(new Uint8Array(32).fill(byte))
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

const under =
  (...keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>) =>
  <A, E>(effect: Effect.Effect<A, E, Cipher>) =>
    Effect.provide(effect, Layer.provide(AesCipher.layer(keys), SecureRandom.layerWebCrypto))

const encrypt = (text: string, owner: string) => Cipher.use((cipher) => cipher.encrypt(Redacted.make(text), owner))
const decrypt = (stored: string, owner: string) =>
  Cipher.use((cipher) => Effect.map(cipher.decrypt(stored, owner), Redacted.value))

/** The message of the defect. Nothing that a log could print of it holds the secret or a key. */
const defect = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.exit(effect), (exit) => {
    assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
    const error = Cause.squash((exit as Exit.Failure<A, E>).cause) as Error
    assert.notMatch(`${inspect(exit, { depth: 9, showHidden: true })} ${error.stack}`, /MfKQ9r8|AQEBAQ|01 01 01/)
    return error.message
  })

describe("Cipher", () => {
  it.effect.prop("decrypts what it encrypted", [Schema.String, Schema.String], ([text, owner]) =>
    Effect.gen(function* () {
      const stored = yield* encrypt(text, owner)
      assert.match(stored, /^v1\.[0-9a-f]{8}\.[A-Za-z0-9_-]{38,}$/)
      assert.strictEqual(yield* decrypt(stored, owner), text.toWellFormed())
    }).pipe(under(key(1))),
  )

  it.effect("never encrypts the same secret to the same text", () =>
    Effect.gen(function* () {
      const stored = yield* Effect.all(Array.from({ length: 100 }, () => encrypt(secret, "a")))
      assert.strictEqual(new Set(stored.map((text) => text.slice(12, 28))).size, 100)
    }).pipe(under(key(1))),
  )

  it.effect("decrypts for the same owner only", function* () {
    const stored = yield* encrypt(secret, "endpoint-a").pipe(under(key(1)))
    const message = yield* defect(decrypt(stored, "endpoint-b").pipe(under(key(1))))
    assert.strictEqual(
      message,
      "The stored secret of endpoint-b does not decrypt: it was changed, or belongs to another row",
    )
  })

  it.effect("refuses every flipped bit, in nonce, text and tag", () =>
    Effect.gen(function* () {
      const stored = yield* encrypt("ab", "a")
      const bytes = Buffer.from(stored.slice(12), "base64url")
      for (let bit = 0; bit < bytes.length * 8; bit++) {
        const flipped = Buffer.from(bytes)
        flipped[bit >> 3]! ^= 1 << (bit & 7)
        const exit = yield* Effect.exit(decrypt(stored.slice(0, 12) + flipped.toString("base64url"), "a"))
        assert.isTrue(Exit.isFailure(exit), `bit ${bit}`)
      }
    }).pipe(under(key(1))),
  )

  it.effect("encrypts with the first key and decrypts with any", function* () {
    const old = yield* encrypt(secret, "a").pipe(under(key(1)))
    assert.strictEqual(yield* decrypt(old, "a").pipe(under(key(2), key(1))), secret)
    const recent = yield* encrypt(secret, "a").pipe(under(key(2), key(1)))
    assert.strictEqual(yield* decrypt(recent, "a").pipe(under(key(2))), secret)
  })

  it.effect("says which key is missing, and what to do", function* () {
    const stored = yield* encrypt(secret, "a").pipe(under(key(1)))
    const message = yield* defect(decrypt(stored, "a").pipe(under(key(2))))
    assert.include(
      message,
      `the key ${stored.slice(3, 11)}, which ENCRYPTION_KEY does not have: add that key to ENCRYPTION_KEY`,
    )
  })

  it.effect("refuses a known key's id on another key's text", function* () {
    const one = yield* encrypt(secret, "a").pipe(under(key(1)))
    const two = yield* encrypt(secret, "a").pipe(under(key(2)))
    const message = yield* defect(decrypt(two.slice(0, 12) + one.slice(12), "a").pipe(under(key(1), key(2))))
    assert.include(message, "does not decrypt")
  })

  it.effect.each(["", "secret", "v1", "v1..", "v2.00000000.AAAA", "v1.00000000.AAAA", "v1.0000.AAAA", "v1.00000000.%"])(
    "reports that %j is no stored secret",
    function* (stored) {
      const message = yield* defect(decrypt(stored, "a").pipe(under(key(1))))
      assert.strictEqual(message, "The stored secret of a does not have the format of a stored secret")
    },
  )

  it.effect("accepts one spelling only", () =>
    Effect.gen(function* () {
      const stored = yield* encrypt("a", "a") // 29 bytes: the last character has four unused bits.
      const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
      const other = alphabet[alphabet.indexOf(stored.at(-1)!) ^ 1]
      assert.isTrue(Exit.isFailure(yield* Effect.exit(decrypt(stored.slice(0, -1) + other, "a"))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(decrypt(`${stored}=`, "a"))))
    }).pipe(under(key(1))),
  )

  it.effect.each([
    ["no key", []],
    ["a short key", [16]],
    ["a long second key", [32, 33]],
  ] as const)("refuses to start with %s", ([, lengths]) =>
    Effect.gen(function* () {
      const keys = lengths.map((length) => Redacted.make(new Uint8Array(length)))
      const error = yield* Effect.flip(encrypt(secret, "a").pipe(under(...keys)))
      assert.include(error.message, "ENCRYPTION_KEY must be one or more keys of 32 bytes")
    }),
  )
})
