import { assert } from "@effect/vitest"
import { Clock, DateTime, Duration, Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { DeliveryQueue, type TimesCorrection } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { Unavailable } from "#src/domain/Errors.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import * as ClockSteps from "#src/infrastructure/webhooks/ClockSteps.ts"
import { leaseFor } from "#src/infrastructure/webhooks/DeliveryWorker.ts"
import { it } from "../../support/it.ts"
import { unavailable } from "./deliveryWorld.ts"

const hour = 3_600_000

/**
 * The worker after its first correction, with a wall clock that can be stepped. Records corrections, wakeups and logs.
 */
const begin = Effect.gen(function* () {
  const asked: Array<TimesCorrection> = []
  const log: Array<string> = []
  const world = { asked, woken: 0, answer: Effect.succeed(0) as Effect.Effect<number, Unavailable> }
  const clock = yield* Clock.Clock
  let ahead = 10 * hour
  const wall = () => clock.currentTimeMillisUnsafe() + ahead
  const services = Layer.mergeAll(
    Layer.mock(DeliveryQueue, {
      correctTimes: (right) => Effect.suspend(() => (asked.push(right), world.answer)),
    }),
    Layer.mock(Wakeups, { deliveries: Effect.sync(() => void world.woken++) }),
    Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
  )
  yield* Layer.build(Layer.provide(ClockSteps.layer, services)).pipe(
    Effect.provideService(Clock.Clock, {
      ...clock,
      currentTimeMillisUnsafe: wall,
      currentTimeMillis: Effect.sync(wall),
    }),
  )
  yield* Effect.yieldNow
  return Object.assign(world, { log: () => log.join("\n"), step: (millis: number) => void (ahead += millis) })
})

it.effect("corrects times at the start, and after the clock steps back until older claims have ended", function* () {
  const world = yield* begin
  assert.lengthOf(world.asked, 1)
  // A step ahead, or back by less than a second, needs no correction.
  yield* TestClock.adjust("10 seconds")
  world.step(hour)
  yield* TestClock.adjust("10 seconds")
  world.step(-900)
  yield* TestClock.adjust("10 seconds")
  assert.lengthOf(world.asked, 1)
  assert.strictEqual(world.log(), "")

  world.step(-hour)
  yield* TestClock.adjust("1 second")
  const [, { leaseUntil, now }] = world.asked as [TimesCorrection, TimesCorrection]
  assert.strictEqual(DateTime.toEpochMillis(now), 10 * hour + 30_000 - 900 + 1_000)
  assert.deepStrictEqual(DateTime.distance(now, leaseUntil), leaseFor(Duration.seconds(15)))
  assert.include(world.log(), "set back by 1h")
  yield* TestClock.adjust("1 minute")
  assert.isAtLeast(world.asked.length, 14)
  assert.isAtMost(world.asked.length, 18)
  assert.strictEqual(world.woken, 0)
})

it.effect("corrects batch by batch, wakes the delivery worker, and continues after failures", function* () {
  const world = yield* begin
  const moved = [5_000, 5_000, 3]
  world.step(-hour)
  world.answer = unavailable
  yield* TestClock.adjust("20 seconds")
  world.answer = Effect.die(new Error("no such column"))
  yield* TestClock.adjust("20 seconds")
  assert.include(world.log(), "The database cannot be reached")
  assert.include(world.log(), "no such column")
  world.asked.length = 0
  world.answer = Effect.sync(() => moved.shift()!)
  yield* TestClock.adjust("1 minute")
  assert.lengthOf(world.asked, 3)
  assert.strictEqual(world.woken, 3)
})
