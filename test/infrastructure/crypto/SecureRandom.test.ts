import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import { secureRandom } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { it } from "../../support/it.ts"

const bytes = (size: number) => SecureRandom.SecureRandom.use((random) => random.randomBytes(size))
const hex = (some: Uint8Array) => Buffer.from(some).toString("hex")

describe("secure random bytes", () => {
  // Seen failing with a pool that is not refilled, one that returns its short rest, and one that returns views of
  // itself.
  it.effect("have the requested length, and are never the same twice", () =>
    Effect.gen(function* () {
      for (const size of [0, 1, 48, 4095, 4096, 4097, 100_000]) assert.strictEqual((yield* bytes(size)).length, size)
      const all = yield* Effect.forEach(Array.from({ length: 5_000 }), () => bytes(48))
      assert.strictEqual(new Set(all.map(hex)).size, all.length)
      // 240,000 bytes have each value about 940 times; a fifth more or less is beyond six deviations.
      const counts = new Map<number, number>()
      for (const byte of all.flatMap((some) => [...some])) counts.set(byte, (counts.get(byte) ?? 0) + 1)
      assert.deepStrictEqual(
        [...counts.values()].filter((count) => count < 750 || count > 1_125),
        [],
      )
      assert.strictEqual(counts.size, 256)
    }).pipe(Effect.provide(secureRandom)),
  )
})
