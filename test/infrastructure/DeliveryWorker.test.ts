import { assert, describe, it } from "@effect/vitest"
import { DateTime, Duration, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { leaseFor } from "#src/infrastructure/workers/Deliveries.ts"
import { answer } from "../fakes/WebhookSender.ts"
import { makeWorld, unavailable } from "./deliveryWorld.ts"

/** Lets everything run that needs no time. */
const settle = Effect.repeat(Effect.yieldNow, { times: 500 })
const adjust = (duration: Duration.Input) => Effect.andThen(Effect.andThen(settle, TestClock.adjust(duration)), settle)
const lease = leaseFor(Duration.seconds(15))

describe("the delivery worker", () => {
  it.effect("delivers what is due at once, and the rest when it is due", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      yield* world.add("a", 3)
      yield* world.add("b", 1, "2 seconds")
      yield* world.start()
      yield* settle
      assert.deepStrictEqual(
        world.sends,
        [0, 1, 2].map((n) => ({ id: `a${n}`, lane: "a", at: 0 })),
      )
      yield* adjust("1999 millis")
      assert.deepStrictEqual(world.sentTo("b"), [])
      yield* adjust("1 millis")
      assert.deepStrictEqual(world.sentTo("b"), [{ id: "b3", lane: "b", at: 2000 }])
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
    }),
  )

  it.effect("is woken by word of new deliveries; without word it finds them in 5 seconds", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      yield* world.start()
      yield* adjust("1 seconds")
      yield* world.add("a")
      yield* adjust("1 seconds")
      assert.strictEqual(world.sends.length, 0)
      yield* world.wake
      yield* settle
      assert.strictEqual(world.sends.length, 1)
      yield* world.add("a")
      yield* adjust("5 seconds")
      assert.strictEqual(world.sends.length, 2)
    }),
  )

  it.effect("asks the database seldom while there is nothing to do", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      yield* world.start()
      yield* adjust("60 seconds")
      assert.isAtMost(world.asked(), 26)
    }),
  )

  it.effect("tries again by the schedule, at the very time that was recorded, until none is left", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.receive = () => Effect.succeed(answer(500))
      yield* world.add("a")
      yield* world.start()
      yield* adjust("2 hours")
      const times = world.sends.map(({ at }) => at)
      const planned = world.batches.map(([made]) => made!.nextAttemptAt)
      assert.deepStrictEqual(times, [0, ...planned.flatMap((at) => (at === null ? [] : [DateTime.toEpochMillis(at)]))])
      const waits = times.slice(1).map((at, n) => (at - times[n]!) / 1000)
      assert.strictEqual(waits.length, 3)
      for (const [n, delay] of [30, 300, 1800].entries()) assert.closeTo(waits[n]!, delay, delay * 0.2)
      assert.strictEqual(world.delivery("a0").row.state, "failed")
    }),
  )

  it.effect("has at most ten attempts of a lane in flight, one after a failure, ten again after a success", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      let status = 200
      world.receive = () =>
        Effect.delay(
          Effect.sync(() => answer(status)),
          "1 second",
        )
      yield* world.add("a", 100)
      yield* world.start()
      yield* settle
      const inFlight: Array<number> = []
      const second = Effect.gen(function* () {
        inFlight.push(world.inFlight("a"))
        yield* adjust("1 second")
      })
      yield* Effect.repeat(second, { times: 2 })
      status = 500
      yield* Effect.repeat(second, { times: 2 })
      status = 200
      yield* Effect.repeat(second, { times: 2 })
      assert.deepStrictEqual(inFlight, [10, 10, 10, 10, 1, 1, 1, 10, 10])
    }),
  )

  it.effect("has no more in flight than it may in all, and leaves the database alone while it is full", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.receive = () => Effect.delay(Effect.succeed(answer(200)), "14 seconds")
      for (const lane of ["a", "b", "c", "d"]) yield* world.add(lane, 10)
      yield* world.start({ maxInFlight: 25 })
      yield* adjust("1 second")
      const before = world.asked()
      yield* adjust("12 seconds")
      assert.deepStrictEqual([world.inFlight(), world.asked() - before], [25, 0])
      yield* adjust("1 second")
      assert.strictEqual(world.inFlight(), 15)
      yield* adjust("14 seconds")
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
    }),
  )

  it.effect("asks no faster than it breathes while others hold what is due", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.isLocked = true
      yield* world.add("a")
      yield* world.start()
      yield* adjust("1 second")
      assert.isAtMost(world.claims.length, 1_001)
      world.isLocked = false
      yield* adjust("1 millis")
      assert.strictEqual(world.sends.length, 1)
    }),
  )

  it.effect("a lane that hangs delays no other", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.receive = ({ lane }) => (lane === "hangs" ? Effect.never : Effect.succeed(answer(200)))
      yield* world.add("hangs", 1000)
      yield* world.start()
      yield* settle
      for (let n = 1; n <= 20; n++) {
        yield* world.add("well")
        yield* world.wake
        yield* settle
        assert.strictEqual(world.sentTo("well").length, n)
      }
      assert.deepStrictEqual([world.inFlight("hangs"), world.sentTo("hangs").length], [10, 10])
    }),
  )

  it.effect("records in batches", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      for (let lane = 0; lane < 50; lane++) yield* world.add(`lane${lane}`, 10)
      world.receive = () => Effect.delay(Effect.succeed(answer(200)), "10 millis")
      world.onRecord = () => Effect.sleep("5 millis")
      yield* world.start()
      yield* adjust("1 second")
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
      assert.isAtMost(world.batches.length, 6)
      assert.isAtMost(Math.max(...world.batches.map((made) => made.length)), 256)
    }),
  )

  it.effect("keeps what it cannot record until the database is back, however long, and claims nothing meanwhile", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      let away = true
      world.onRecord = () => (away ? unavailable : Effect.void)
      // Their lanes have room for them once more.
      for (let lane = 0; lane < 80; lane++) yield* world.add(`lane${lane}`, 5)
      yield* world.start()
      // More than a lease: the claims are free to be taken up again.
      yield* adjust(Duration.times(lease, 3))
      assert.deepStrictEqual([world.sends.length, world.batches.length], [400, 0])
      away = false
      yield* world.add("later")
      yield* adjust("2 seconds")
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
      assert.strictEqual(world.sends.length, 401)
      assert.strictEqual(new Set(world.sends.map(({ id }) => id)).size, 401)
    }),
  )

  it.effect("a record that cannot be written takes no other with it", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.onRecord = (records) =>
        records.some(({ delivery }) => delivery.deliveryId === "a5") ? Effect.die(new Error("bad byte")) : Effect.void
      yield* world.add("a", 10)
      yield* world.start()
      yield* settle
      const states = world.states()
      assert.deepStrictEqual(
        states,
        states.map((_, n) => (n === 5 ? "pending" : "delivered")),
      )
      assert.include(world.log(), "bad byte")
      world.onRecord = () => Effect.void
      yield* adjust(Duration.sum(lease, Duration.seconds(5)))
      assert.strictEqual(world.delivery("a5").row.state, "delivered")
      assert.strictEqual(world.sends.length, 11)
    }),
  )

  it.effect("an attempt that dies is logged, frees its place, and is made again when its lease ends", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      let broken = true
      world.receive = ({ lane }) =>
        lane === "bad" && broken ? Effect.die(new Error("no such key")) : Effect.succeed(answer(200))
      yield* world.add("bad", 10)
      yield* world.add("good", 1, "1 millis")
      yield* world.start({ maxInFlight: 10 })
      yield* adjust("1 second")
      assert.strictEqual(world.delivery("good10").row.state, "delivered")
      assert.include(world.log(), "no such key")
      assert.include(world.log(), "deliveryId=bad0")
      broken = false
      yield* adjust(Duration.sum(lease, Duration.seconds(5)))
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
    }),
  )

  it.effect.each(["onClaim", "onLook"] as const)("goes on after a database that is away or faulty: %s", (what) =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      yield* world.start()
      yield* settle
      for (const fault of [unavailable, Effect.die(new Error("no such column"))]) {
        world[what] = fault
        yield* world.wake
        yield* adjust("20 seconds")
        world[what] = Effect.void
        yield* world.add("a")
        yield* adjust("1 second")
        assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
      }
      assert.include(world.log(), "The database cannot be reached")
      assert.include(world.log(), "no such column")
      // Once a second, not faster.
      assert.isAtMost(
        world
          .log()
          .split("\n")
          .filter((line) => line.includes("No deliveries")).length,
        42,
      )
    }),
  )

  it.effect("at its end claims no more, and waits until what is in flight is finished and recorded", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.receive = () => Effect.delay(Effect.succeed(answer(200)), "3 seconds")
      world.onRecord = () => Effect.sleep("1 second")
      yield* world.add("a", 25)
      const { stop } = yield* world.start()
      yield* adjust("1 second")
      const end = yield* Effect.forkChild(stop)
      yield* adjust("2 seconds")
      assert.isUndefined(end.pollUnsafe())
      yield* adjust("2 seconds")
      assert.isDefined(end.pollUnsafe())
      assert.deepStrictEqual([world.sends.length, world.batches.flat().length], [10, 10])
      yield* adjust("1 minute")
      assert.strictEqual(world.sends.length, 10)
    }),
  )

  it.effect("at its end waits for a database that is away no longer than an attempt may take and 5 seconds", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld
      world.onRecord = () => unavailable
      yield* world.add("a", 3)
      const { stop } = yield* world.start({ attemptTimeout: Duration.seconds(2) })
      yield* adjust("1 second")
      const end = yield* Effect.forkChild(stop)
      yield* adjust("6 seconds")
      assert.isUndefined(end.pollUnsafe())
      yield* adjust("1 second")
      yield* Fiber.join(end)
      assert.include(world.log(), "3 attempts are not recorded")
    }),
  )

  it.effect(
    "what a stalled worker holds is delivered by another when its lease ends, and stays as that recorded it",
    () =>
      Effect.gen(function* () {
        const world = yield* makeWorld
        let first = true
        world.receive = () => {
          const stalls = first
          first = false
          return Effect.delay(Effect.succeed(answer(stalls ? 500 : 200)), stalls ? Duration.times(lease, 2) : 0)
        }
        yield* world.add("a")
        yield* world.start()
        yield* adjust(Duration.subtract(lease, Duration.seconds(1)))
        yield* world.start()
        yield* settle
        assert.strictEqual(world.sends.length, 1)
        yield* adjust("6 seconds")
        assert.deepStrictEqual([world.sends.length, world.delivery("a0").row.state], [2, "delivered"])
        yield* adjust(Duration.times(lease, 2))
        assert.deepStrictEqual(
          [world.batches.length, world.delivery("a0").row.state, world.delivery("a0").attempts.length],
          [2, "delivered", 1],
        )
      }),
  )
})
