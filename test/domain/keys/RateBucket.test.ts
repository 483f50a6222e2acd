import { assert, describe, it } from "@effect/vitest"
import type { RateLimit } from "#src/domain/keys/KeySettings.ts"
import * as RateBucket from "#src/domain/keys/RateBucket.ts"

/** A bucket, and a function that returns how many of a number of uses at one time are within the limit. */
const makeUses = (rateLimit: RateLimit) => {
  let bucket = RateBucket.emptyBucket(0)
  return {
    within: (now: number, uses: number) => {
      bucket = RateBucket.advanceBucket(bucket, rateLimit, now)
      const units = Math.min(uses, RateBucket.unitsLeft(bucket, rateLimit))
      bucket = RateBucket.takeUnits(bucket, rateLimit, units)
      return units
    },
    wait: (now: number) => RateBucket.millisUntil(RateBucket.advanceBucket(bucket, rateLimit, now), rateLimit, 1),
  }
}

describe("the rate limit of a key", () => {
  it("allows a full burst after idle time, then an even rate", () => {
    const { wait, within } = makeUses({ limit: 10, window: 60 })
    assert.strictEqual(within(0, 15), 10)
    assert.strictEqual(wait(0), 6_000)
    assert.strictEqual(wait(5_999), 1)
    assert.strictEqual(within(6_000, 3), 1)
    assert.strictEqual(within(30_000, 9), 4)
    // A long rest adds no more than the limit.
    assert.strictEqual(within(86_400_000, 20), 10)
  })

  it("never allows more than its even rate and one burst", () => {
    const { within } = makeUses({ limit: 7, window: 3 })
    let taken = 0
    for (let now = 0; now <= 60_000; now += 13) {
      taken += within(now, 1 + (now % 5))
      assert.isAtMost(taken, 7 + (now * 7) / 3000 + 1e-6)
    }
    assert.isAtLeast(taken, 7 + (60_000 * 7) / 3000 - 2)
  })

  it("is exact at its limits", () => {
    assert.strictEqual(makeUses({ limit: 1_000_000, window: 1 }).within(5, 1_000_001), 1_000_000)
    assert.strictEqual(makeUses({ limit: 1_000_000, window: 86_400 }).within(5, 1_000_001), 1_000_000)
    const { wait, within } = makeUses({ limit: 1, window: 86_400 })
    assert.strictEqual(within(10_000, 1), 1)
    assert.strictEqual(wait(10_000), 86_400_000)
    assert.strictEqual(within(10_000 + 86_399_999, 1), 0)
    assert.strictEqual(within(10_000 + 86_400_000, 1), 1)
  })

  // If leased units drained from the time of the lease, uses at the end of their lifetime would exceed the limit.
  it("drains leased units from the latest time at which they may be used", () => {
    const rateLimit = { limit: 1_000, window: 10 }
    const lifetime = RateBucket.bucketLifetime(rateLimit)
    assert.strictEqual(lifetime, 500)
    for (const leasedAt of [0, 1, 250, 499]) {
      let bucket = RateBucket.advanceBucket(RateBucket.emptyBucket(0), rateLimit, leasedAt)
      bucket = RateBucket.takeUnits(bucket, rateLimit, 1_000)
      bucket = RateBucket.advanceBucket(bucket, rateLimit, leasedAt + lifetime)
      assert.strictEqual(RateBucket.unitsLeft(bucket, rateLimit), 0)
      // From the end of the next slot on, 98 drain in a second.
      bucket = RateBucket.advanceBucket(bucket, rateLimit, 2_000)
      assert.strictEqual(RateBucket.unitsLeft(bucket, rateLimit), 98)
    }
  })

  it("keeps used units when the database's clock steps back, and continues from there", () => {
    const { within } = makeUses({ limit: 10, window: 10 })
    const hour = 3_600_000
    assert.strictEqual(within(hour, 10), 10)
    assert.strictEqual(within(hour - 1_000, 1), 0)
    assert.strictEqual(within(10, 1), 0)
    assert.strictEqual(within(1_010, 5), 1)
  })

  it("keeps used units when the limit changes", () => {
    const [from, to] = [
      { limit: 1_000, window: 10 },
      { limit: 100, window: 60 },
    ]
    const bucket = RateBucket.takeUnits(RateBucket.emptyBucket(5), from!, 30)
    assert.strictEqual(RateBucket.unitsLeft(RateBucket.convert(bucket, from!, to!), to!), 70)
    const full = RateBucket.takeUnits(RateBucket.emptyBucket(5), from!, 500)
    assert.strictEqual(RateBucket.unitsLeft(RateBucket.convert(full, from!, to!), to!), 0)
  })
})
