import { assert, it } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import type { Unavailable } from "#src/domain/Errors.ts"
import { Retention, type RetentionBatch, RetentionDays, RetentionRepository } from "#src/domain/Retention.ts"
import * as RetentionWorker from "#src/infrastructure/retention/RetentionRepository.ts"
import { unavailable } from "../webhooks/deliveryWorld.ts"

it.effect("removes at the start and about every hour, and continues after a failure", () =>
  Effect.gen(function* () {
    const log: Array<string> = []
    const faults = [Effect.succeed(7), Effect.die(new Error("no such column")), unavailable, Effect.succeed(0)]
    let calls = 0
    const services = Layer.mergeAll(
      Layer.mock(Retention, { removeOld: Effect.suspend(() => faults[calls++]!) }),
      Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
    )
    yield* Layer.build(Layer.provide(RetentionWorker.retentionWorker, services))
    for (const expected of [1, 2, 3, 4]) {
      yield* Effect.yieldNow
      assert.strictEqual(calls, expected)
      // An hour, plus or minus a fifth.
      yield* TestClock.adjust("47 minutes")
      assert.strictEqual(calls, expected)
      if (expected < 4) yield* Effect.repeat(TestClock.adjust("1 minute"), { until: () => calls > expected, times: 25 })
    }
    for (const word of ["7 events past RETENTION_DAYS", "no such column", "The database cannot be reached"]) {
      assert.strictEqual(log.filter((line) => line.includes(word)).length, 1, word)
    }
  }),
)

/** A repository with a number of old events, which records its calls. */
const repositoryOf = (
  count: number,
  remove: (ids: ReadonlyArray<string>) => Effect.Effect<number | null, Unavailable>,
) => {
  const asked: Array<RetentionBatch> = []
  const removed: Array<ReadonlyArray<string>> = []
  const events = Array.from({ length: count }, (_, n) => ({ id: `e${n}`, jobId: `j${n}` }))
  const layer = Layer.mock(RetentionRepository, {
    removeCanceled: () => Effect.succeed(0),
    removeEntries: () => Effect.succeed(0),
    findOld: (batch) =>
      Effect.sync(() => {
        asked.push(batch)
        return events.slice(events.findIndex(({ id }) => id === batch.after) + 1).slice(0, Math.min(batch.limit, 4))
      }),
    remove: (old) => {
      const ids = old.map(({ id }) => id)
      removed.push(ids)
      return remove(ids)
    },
  })
  return { asked, removed, layer }
}
const retentionOf = (repository: Layer.Layer<RetentionRepository>) =>
  Effect.provide(Retention, Layer.provide(Retention.layer, [repository, Layer.succeed(RetentionDays, 10)]))

it.effect("continues batch by batch, with a pause between, to the last", () =>
  Effect.gen(function* () {
    const { asked, layer } = repositoryOf(9, ({ length }) => Effect.succeed(length))
    yield* TestClock.setTime(Date.UTC(2026, 10, 20))
    const { removeOld } = yield* retentionOf(layer)
    const running = yield* Effect.forkChild(removeOld)
    for (const expected of [1, 2, 3, 4]) {
      yield* Effect.yieldNow
      assert.strictEqual(asked.length, expected)
      yield* TestClock.adjust("199 millis")
      assert.strictEqual(asked.length, expected)
      yield* TestClock.adjust("1 millis")
    }
    assert.strictEqual(yield* Fiber.join(running), 9)
    assert.deepStrictEqual(
      asked.map(({ after }) => after),
      ["", "e3", "e7", "e8"],
    )
    assert.deepStrictEqual(
      new Set(asked.map(({ before }) => DateTime.formatIso(before))),
      new Set(["2026-11-10T00:00:00.000Z"]),
    )
  }),
)

/** Runs to the end, through all pauses. */
const toTheEnd = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const running = yield* Effect.forkChild(effect)
    yield* TestClock.adjust("1 minute")
    return yield* Fiber.join(running)
  })

// Seen failing without the halving: nothing after the batch was removed.
it.effect.each([
  ["too slow", unavailable],
  ["a fault", Effect.die(new Error("no such column"))],
] as const)("a batch that fails (%s) is halved, then its event is skipped, and the others are removed", ([, failure]) =>
  Effect.gen(function* () {
    const log: Array<string> = []
    const { layer, removed } = repositoryOf(9, (ids) => (ids.includes("e1") ? failure : Effect.succeed(ids.length)))
    const { removeOld } = yield* retentionOf(layer)
    const total = yield* toTheEnd(removeOld).pipe(
      Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))])),
    )
    assert.strictEqual(total, 8)
    assert.deepStrictEqual(removed.slice(0, 5), [["e0", "e1", "e2", "e3"], ["e0", "e1"], ["e0"], ["e1", "e2"], ["e1"]])
    assert.strictEqual(log.length, 1)
    assert.match(log[0]!, /not removed; the next run tries again.*eventId=e1/)
  }),
)

it.effect("leaves it to another replica that is already removing", () =>
  Effect.gen(function* () {
    const { layer, removed } = repositoryOf(9, () => Effect.succeed(null))
    const { removeOld } = yield* retentionOf(layer)
    assert.strictEqual(yield* removeOld, 0)
    assert.strictEqual(removed.length, 1)
  }),
)

it.effect("does nothing without a retention time", () =>
  Effect.gen(function* () {
    const { asked, layer } = repositoryOf(9, () => Effect.succeed(1))
    const { removeOld } = yield* Effect.provide(
      Retention,
      Layer.provide(Retention.layer, [layer, Layer.succeed(RetentionDays, undefined)]),
    )
    assert.strictEqual(yield* removeOld, 0)
    assert.deepStrictEqual(asked, [])
  }),
)
