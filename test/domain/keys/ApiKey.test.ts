import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { crc32 } from "node:zlib"
import { apiKeyLengths, displayPrefix, fromRandomBytes, isWellFormed } from "#src/domain/keys/ApiKey.ts"
import { seededBytes } from "../../fakes/crypto.ts"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const Byte = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
const Bytes = Arbitrary.array(Byte, { minLength: 30, maxLength: 64 })

/** The checksum of a key's random part, computed without the code of the service. */
const checksumOf = (random: string) => {
  const base62 = (n: bigint): string => (n < 62n ? "" : base62(n / 62n)) + alphabet[Number(n % 62n)]!
  return base62(BigInt(crc32(random))).padStart(6, "0")
}

const bytes = seededBytes(3)
const generate = (): string => fromRandomBytes(bytes(48)) ?? generate()

describe("fromRandomBytes", () => {
  it.prop("creates a key that passes the check, from 36 bytes below 248", [Bytes], ([values]) => {
    const key = fromRandomBytes(Uint8Array.from(values))
    const usable = values.filter((value) => value < 248)
    assert.strictEqual(key === undefined, usable.length < 36)
    if (key === undefined) return
    const random = usable.slice(0, 36).map((value) => alphabet[value % 62]!)
    assert.strictEqual(key, `svc_${random.join("")}${checksumOf(random.join(""))}`)
    assert.isTrue(isWellFormed(key))
    assert.match(key, /^svc_[0-9A-Za-z]{42}$/)
    assert.strictEqual(displayPrefix(key), key.slice(0, 12))
  })

  it.each(["abc", "acme_live", "a__9", "z".repeat(24)])("creates keys with the prefix %s", (prefix) => {
    const key = fromRandomBytes(new Uint8Array(36).fill(7), prefix)!
    const secret = "7".repeat(36)
    assert.strictEqual(key, `${prefix}_${secret}${checksumOf(secret)}`)
    assert.isTrue(isWellFormed(key))
    assert.isTrue(key.length >= apiKeyLengths.min && key.length <= apiKeyLengths.max)
    assert.strictEqual(displayPrefix(key), `${prefix}_77777777`)
  })

  it("gives every character the same number of bytes", () => {
    const counts = new Map<string, number>()
    for (let value = 0; value < 256; value++) {
      const character = fromRandomBytes(new Uint8Array(36).fill(value))?.charAt(4) ?? "none"
      counts.set(character, (counts.get(character) ?? 0) + 1)
    }
    assert.sameMembers([...counts.keys()], [...alphabet, "none"])
    counts.forEach((count, character) => assert.strictEqual(count, character === "none" ? 8 : 4))
  })

  it("spreads evenly over the alphabet", () => {
    const counts = new Map([...alphabet].map((character) => [character, 0]))
    const keys = 2_000
    for (let i = 0; i < keys; i++) {
      for (const character of generate().slice(4, 40)) counts.set(character, counts.get(character)! + 1)
    }
    const expected = (keys * 36) / 62
    const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
    // With 61 degrees of freedom, chance exceeds 113 once in 20,000 times; every run has the same bytes.
    assert.isBelow(chiSquare, 113)
  })
})

describe("isWellFormed", () => {
  // The checksums come from Python's zlib.crc32.
  it.each([
    "svc_0000000000000000000000000000000000000etOEM",
    "svc_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0TyBiU",
    "svc_QRSTUVWXYZabcdefghijklmnopqrstuvwxyz0SXxQG",
    "svc_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz1ej79G",
  ])("accepts %s", (key) => assert.isTrue(isWellFormed(key)))

  it("refuses a key with any one character after its prefix changed, left out, doubled, or swapped", () => {
    for (const key of [generate(), generate(), generate(), "svc_0000000000000000000000000000000000000etOEM"]) {
      // Another prefix could be that of another org.
      for (let i = key.indexOf("_"); i < key.length; i++) {
        const [before, after] = [key.slice(0, i), key.slice(i + 1)]
        for (const other of `${alphabet}-_ \n\0é😀`) {
          if (other !== key[i]) assert.isFalse(isWellFormed(before + other + after), `${key} ${i} ${other}`)
        }
        assert.isFalse(isWellFormed(before + after))
        assert.isFalse(isWellFormed(before + key[i]! + key[i]! + after))
        const swapped = before + (after[0] ?? "") + key[i]! + after.slice(1)
        assert.strictEqual(isWellFormed(swapped), swapped === key)
      }
    }
  })

  it.prop("refuses other text", [Schema.String], ([text]) => {
    assert.isFalse(isWellFormed(text))
    assert.isFalse(isWellFormed(`svc_${text}`))
  })

  it.each([(key: string) => `${key}\n`, (key: string) => ` ${key}`, (key: string) => key.toUpperCase()])(
    "refuses a changed key, %#",
    (change) => assert.isFalse(isWellFormed(change(generate()))),
  )
})
