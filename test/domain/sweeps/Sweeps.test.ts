import { assert } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Logger, Stream } from "effect"
import { TestClock } from "effect/testing"
import { Unavailable } from "#src/domain/Errors.ts"
import { isErased, type Sweep, Sweeps, SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { it } from "../../support/it.ts"

interface Stored extends Sweep {
  rows: number
}

/** Sweeps in memory, each with a number of rows and batches of a second. Records the batches and the log. */
const makeWorld = Effect.gen(function* () {
  const sweeps: Array<Stored> = []
  const batches: Array<{ readonly sweepId: string; readonly limit: number }> = []
  const log: Array<string> = []
  const world = {
    sweeps,
    batches,
    waits: (() => false) as (sweepId: string) => boolean,
    fails: (() => Effect.void) as (sweepId: string, limit: number) => Effect.Effect<void, Unavailable>,
    add: (orgId: string, sweepId: string, rows: number, kind: Sweep["kind"] = "cancel") =>
      sweeps.push({ orgId, sweepId, rows, kind }),
    log: () => log.join("\n"),
  }
  const repository = Layer.mock(SweepRepository, {
    next: (afterOrg, setAside) =>
      Effect.sync(() => {
        const open = sweeps.filter(({ rows, sweepId }) => rows > 0 && !setAside.includes(sweepId))
        return open.find(({ orgId }) => orgId > afterOrg) ?? open[0] ?? null
      }),
    advance: (sweepId, _, limit) =>
      Effect.gen(function* () {
        batches.push({ sweepId, limit })
        yield* Effect.sleep("200 millis")
        yield* world.fails(sweepId, limit)
        if (world.waits(sweepId)) return { rows: 0, isDone: false, isWaiting: true }
        const sweep = sweeps.find((one) => one.sweepId === sweepId)!
        const rows = Math.min(limit, sweep.rows)
        sweep.rows -= rows
        return { rows, isDone: sweep.rows === 0 }
      }),
  })
  const services = Layer.mergeAll(
    repository,
    Wakeups.layer,
    Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
  )
  const { run } = yield* Effect.provide(Sweeps, Layer.provide(Sweeps.layer, services))
  /** Runs the open sweeps, and returns whether they signal deliveries. */
  const signals = Effect.gen(function* () {
    const { onDeliveries } = yield* Wakeups
    const signal = yield* Effect.forkChild(Stream.runHead(onDeliveries), { startImmediately: true })
    yield* Effect.forkChild(yield* Effect.map(Sweeps, (sweeps) => sweeps.run))
    yield* TestClock.adjust("1 second")
    return signal.pollUnsafe() !== undefined
  }).pipe(Effect.provide(Layer.provideMerge(Sweeps.layer, services)))
  return Object.assign(world, { run: Effect.provide(run, services), signals })
})

const tooSlow = Effect.fail(new Unavailable({ error: "The database took too long." }))

it.effect("orgs take turns, batch by batch, with a pause as long as the batch", function* () {
  const world = yield* makeWorld
  world.add("a", "large", 10_000)
  world.add("a", "later", 100)
  world.add("b", "small", 100)
  const running = yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 minute")
  yield* Fiber.join(running)
  assert.deepStrictEqual(
    world.batches.map(({ sweepId }) => sweepId),
    ["large", "small", "large", "large", "large", "large", "later"],
  )
})

it.effect("sweeps use half of the time", function* () {
  const world = yield* makeWorld
  world.add("a", "large", 20_000)
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 second")
  assert.lengthOf(world.batches, 3)
})

it.effect("the first batch of an event has no pause, but further events of the same org have one", function* () {
  const world = yield* makeWorld
  for (const org of ["a", "b", "c"]) world.add(org, `one of ${org}`, 100, "deliver")
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("600 millis")
  assert.lengthOf(world.batches, 3)
  for (let n = 0; n < 5; n++) world.add("d", `${n} of d`, 100, "deliver")
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("900 millis")
  assert.lengthOf(world.batches, 6)
})

it.effect("a slow batch is halved, and a sweep whose smallest batch fails pauses for a minute", function* () {
  const world = yield* makeWorld
  world.fails = (sweepId, limit) => (sweepId === "slow" && limit > 600 ? tooSlow : Effect.void)
  world.add("a", "slow", 1_000)
  let running = yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 minute")
  yield* Fiber.join(running)
  assert.deepStrictEqual(
    world.batches.map(({ limit }) => limit),
    [2_000, 1_000, 500, 500],
  )
  assert.strictEqual(world.log(), "")

  world.fails = (sweepId) => (sweepId === "broken" ? Effect.die(new Error("no such column")) : Effect.void)
  world.batches.length = 0
  world.add("a", "broken", 10)
  world.add("b", "well", 10)
  running = yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("30 seconds")
  yield* Fiber.join(running)
  assert.deepStrictEqual(
    world.batches.map(({ sweepId }) => sweepId),
    ["broken", "well"],
  )
  assert.include(world.log(), "no such column")
  assert.include(world.log(), "set aside for a minute")
  world.fails = () => Effect.void
  yield* TestClock.adjust("1 minute")
  running = yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 minute")
  yield* Fiber.join(running)
  assert.strictEqual(world.sweeps.find(({ sweepId }) => sweepId === "broken")!.rows, 0)
})

it.effect("a sweep that inserts deliveries wakes those that send them", function* () {
  const wakes = { deliver: true, emit: true, resend: true, cancel: false, erase: false }
  for (const kind of ["deliver", "emit", "resend", "cancel", "erase"] as const) {
    const world = yield* makeWorld
    world.add("a", kind, 1, kind)
    assert.strictEqual(yield* world.signals, wakes[kind], kind)
  }
})

it.effect("a waiting sweep is tried again after a minute, and others continue", function* () {
  const world = yield* makeWorld
  world.add("a", "erasure", 1, "erase")
  world.add("b", "other", 2_500)
  world.waits = (sweepId) => sweepId === "erasure"
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("30 seconds")
  const ids = world.batches.map(({ sweepId }) => sweepId)
  assert.deepStrictEqual(ids, ["erasure", "other", "other"])
  world.waits = () => false
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 second")
  assert.strictEqual(world.batches.length, 3)
  yield* TestClock.adjust("1 minute")
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("10 seconds")
  assert.strictEqual(world.batches.at(-1)!.sweepId, "erasure")
})

it.effect("a sweep of retries that waits for room is tried again after seconds", function* () {
  const world = yield* makeWorld
  world.add("a", "retries", 1, "retryJobs")
  world.waits = () => true
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 second")
  world.waits = () => false
  yield* TestClock.adjust("3 seconds")
  yield* Effect.forkChild(world.run)
  yield* TestClock.adjust("1 second")
  assert.deepStrictEqual(
    world.batches.map(({ sweepId }) => sweepId),
    ["retries", "retries"],
  )
})

it("an erasure ends with a pass that finds nothing, a minute after the deletion", () => {
  const at = (seconds: number) => DateTime.makeUnsafe(seconds * 1_000)
  assert.deepStrictEqual(
    [isErased(false, at(0), at(59)), isErased(false, at(0), at(60)), isErased(true, at(0), at(3_600))],
    [false, true, false],
  )
})
