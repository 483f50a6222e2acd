import { assert, describe } from "@effect/vitest"
import { Clock, Duration, Effect, Fiber } from "effect"
import { leaseFor } from "#src/infrastructure/webhooks/DeliveryWorker.ts"
import { answer } from "../../fakes/WebhookSender.ts"
import { it } from "../../support/it.ts"
import { adjust, makeWorld, settle, unavailable } from "./deliveryWorld.ts"

const lease = leaseFor(Duration.seconds(15))

describe("the delivery worker, when something fails", () => {
  it.effect(
    "keeps attempts that it cannot record until the database is back, and claims nothing meanwhile",
    function* () {
      const world = yield* makeWorld
      let away = true
      world.onRecord = () => (away ? unavailable : Effect.void)
      world.onLook = Effect.suspend(() => (away ? unavailable : Effect.void))
      // Each lane has free slots left, so that the worker could claim its deliveries again.
      for (let lane = 0; lane < 80; lane++) yield* world.add(`lane${lane}`, 5)
      yield* world.start()
      // Longer than a lease: another worker could claim the deliveries.
      yield* adjust(Duration.times(lease, 3))
      assert.deepStrictEqual([world.sends.length, world.batches.length], [400, 0])
      away = false
      yield* world.add("later")
      yield* adjust("2 seconds")
      assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
      assert.strictEqual(world.sends.length, 401)
      assert.strictEqual(new Set(world.sends.map(({ id }) => id)).size, 401)
    },
  )

  // Seen failing with one record at a time, and with a failure beside another record.
  it.effect("has two records in flight at a time, but only one if it contains a failure", function* () {
    const world = yield* makeWorld
    const began: Array<string> = []
    world.receive = ({ lane }) => Effect.succeed(answer(lane === "failing" ? 500 : 200))
    world.onRecord = ([record]) =>
      Effect.clockWith((clock) => {
        began.push(`${record!.delivery.lane} at ${(clock.currentTimeMillisUnsafe() - since) / 1000}`)
        return Effect.sleep("10 seconds")
      })
    const since = yield* Clock.currentTimeMillis
    yield* world.add("first")
    yield* world.add("second", 1, "1 second")
    yield* world.add("failing", 1, "2 seconds")
    yield* world.add("last", 1, "10500 millis")
    yield* world.start()
    for (let half = 0; half < 50; half++) yield* adjust("500 millis")
    assert.deepStrictEqual(began, ["first at 0", "second at 1", "failing at 11", "last at 21"])
  })

  it.effect("an attempt that cannot be recorded does not affect the others of its batch", function* () {
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
  })

  // Seen failing with records that wait for ever, without a claim meanwhile.
  it.effect("a slow record is split and postponed while the database answers, and claims continue", function* () {
    const world = yield* makeWorld
    let slow = true
    world.onRecord = (records) =>
      slow && records.some(({ delivery }) => delivery.lane === "slow") ? unavailable : Effect.void
    yield* world.add("slow")
    yield* world.add("a", 9)
    yield* world.start()
    yield* settle
    assert.deepStrictEqual(world.sentTo("a").length, 9)
    // All others are recorded at once, and new deliveries are claimed while this record is retried.
    assert.deepStrictEqual(world.states(), ["pending", ...Array.from({ length: 9 }, () => "delivered")])
    yield* world.add("b")
    yield* world.wake
    yield* adjust("1 second")
    assert.strictEqual(world.sentTo("b").length, 1)
    // After some retries the record is postponed, and its delivery is attempted again.
    slow = false
    yield* adjust("20 seconds")
    assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
  })

  it.effect("a delivery whose attempt can never be recorded is released, and frees its slot", function* () {
    const world = yield* makeWorld
    world.onRecord = (records) => (records.some(({ delivery }) => delivery.lane === "slow") ? unavailable : Effect.void)
    yield* world.add("slow")
    yield* world.start()
    yield* adjust("30 seconds")
    assert.include(world.log(), "An attempt could not be recorded")
    assert.include(world.released, world.sentTo("slow")[0]!.id)
    yield* world.add("b", 3)
    yield* world.wake
    yield* adjust("1 second")
    assert.strictEqual(world.sentTo("b").length, 3)
  })

  // Seen failing: a process that was suspended for 59 s sent what another one had sent after the end of its lease.
  it.effect("what was claimed before the process stood still is released and not sent", function* () {
    const world = yield* makeWorld
    let standsStill = true
    world.onClaimed = Effect.suspend(() => (standsStill ? Effect.sleep(lease) : Effect.void))
    yield* world.add("lane", 3)
    yield* world.start()
    yield* adjust(Duration.subtract(lease, Duration.seconds(1)))
    standsStill = false
    yield* adjust("1 second")
    assert.sameMembers(world.released, ["lane0", "lane1", "lane2"])
    yield* adjust("10 seconds")
    assert.sameMembers(
      world.sends.map(({ id }) => id),
      ["lane0", "lane1", "lane2"],
    )
    assert.deepStrictEqual([...new Set(world.states())], ["delivered"])
  })

  it.effect("an attempt that dies is logged, frees its slot, and is repeated when its lease ends", function* () {
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
  })

  it.effect.each(["onClaim", "onLook"] as const)(
    "continues after the database was unavailable or faulty: %s",
    function* (what) {
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
    },
  )

  it.effect("at shutdown claims no more, and waits until attempts in flight are recorded", function* () {
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
  })

  it.effect("at shutdown waits for an unavailable database for the time of an attempt and 5 seconds", function* () {
    const world = yield* makeWorld
    world.onRecord = () => unavailable
    world.onLook = unavailable
    yield* world.add("a", 3)
    const { stop } = yield* world.start({ attemptTimeout: Duration.seconds(2) })
    yield* adjust("1 second")
    const end = yield* Effect.forkChild(stop)
    yield* adjust("6 seconds")
    assert.isUndefined(end.pollUnsafe())
    yield* adjust("1 second")
    yield* Fiber.join(end)
    assert.include(world.log(), "3 attempts are not recorded")
  })

  it.effect(
    "another worker sends the delivery of a stalled worker when its lease ends, and the late record changes nothing",
    function* () {
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
    },
  )
})
