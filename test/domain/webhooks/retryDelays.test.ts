import { assert, describe } from "@effect/vitest"
import { Arbitrary, Clock, Duration, Effect, Fiber, Random, Schema } from "effect"
import { TestClock } from "effect/testing"
import { defaultDelays, delayAfter, fromDelays, RetryDelays } from "#src/domain/webhooks/RetryDecision.ts"
import { it } from "../../support/it.ts"

const minutes = 60
const hours = 60 * minutes
const seconds = [5, 5 * minutes, 30 * minutes, 2 * hours, 5 * hours, 10 * hours, 14 * hours, 20 * hours, 24 * hours]

/** Randomness that always returns the same number. */
const always = (value: number) =>
  Effect.provideService(Random.Random, { nextIntUnsafe: () => 0, nextDoubleUnsafe: () => value })
const delay = (tries: number, delays = defaultDelays) =>
  Effect.map(delayAfter(delays, tries), (duration) =>
    duration === undefined ? undefined : Duration.toSeconds(duration),
  )

const Seed = Arbitrary.schema(Schema.Int)
const Tries = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 9 })))

describe("the schedule of retries", () => {
  it.effect("waits 5 s, 5 min, 30 min, 2, 5, 10, 14, 20 and 24 h: ten attempts in all", function* () {
    const delays = yield* RetryDelays
    for (const [n, expected] of seconds.entries()) {
      // Exact at 0.5; at least 20 % shorter, and at most almost 20 % longer.
      assert.strictEqual(yield* always(0.5)(delay(n + 1, delays)), expected)
      assert.strictEqual(yield* always(0)(delay(n + 1, delays)), expected * 0.8)
      assert.approximately((yield* always(1 - 2 ** -53)(delay(n + 1, delays)))!, expected * 1.2, 0.001)
    }
    for (const tries of [10, 11, 1000]) assert.isUndefined(yield* delay(tries, delays))
  })

  it.effect.prop("stays within 20 %, with any seed", [Seed, Tries], ([seed, tries]) =>
    Effect.gen(function* () {
      const waited = (yield* Random.withSeed(delay(tries), seed))!
      const expected = seconds[tries - 1]!
      assert.isTrue(waited >= expected * 0.8 && waited <= expected * 1.2, `${waited} for ${expected}`)
    }),
  )

  it.effect("is not always the same", function* () {
    const waits = yield* Effect.forEach(
      Array.from({ length: 20 }, (_, seed) => seed),
      (seed) => Random.withSeed(delay(3), seed),
    )
    assert.strictEqual(new Set(waits).size, 20)
  })

  it.effect.prop("the n-th wait depends only on delays, attempt and seed", [Seed, Tries], ([seed, tries]) =>
    Effect.gen(function* () {
      const again = yield* Random.withSeed(delay(tries), seed)
      // In any order of the calls.
      yield* delay(7)
      assert.strictEqual(yield* Random.withSeed(delay(tries), seed), again)
    }),
  )

  it.effect("its n-th wait is the same as with Effect.retry", function* () {
    for (const random of [0, 0.25, 0.9].map(always)) {
      const policy = fromDelays(defaultDelays)
      const attempts: Array<number> = []
      const failing = Effect.flatMap(Clock.currentTimeMillis, (now) => {
        attempts.push(now)
        return Effect.fail("no")
      })
      const retrying = yield* Effect.forkChild(random(Effect.flip(Effect.retry(failing, policy))))
      yield* TestClock.adjust(Duration.days(5))
      assert.strictEqual(yield* Fiber.join(retrying), "no")
      assert.strictEqual(attempts.length, 10)
      for (let tries = 1; tries <= 9; tries++) {
        const waited = attempts[tries]! - attempts[tries - 1]!
        // The test clock counts whole milliseconds.
        assert.approximately(waited, (yield* random(delay(tries)))! * 1000, 1)
      }
    }
  })

  it.effect("is the list of delays; an empty list has no retry", function* () {
    const delays = [Duration.millis(100), Duration.days(30), Duration.zero]
    const waits = yield* always(0.5)(Effect.forEach([1, 2, 3, 4], (tries) => delay(tries, delays)))
    assert.deepStrictEqual(waits, [0.1, 30 * 24 * hours, 0, undefined])
    assert.isUndefined(yield* delay(1, []))
  })
})
