import { assert, it } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { Retention, type RetentionBatch, RetentionDays, RetentionRepository } from "#src/domain/Retention.ts"
import * as RetentionWorker from "#src/infrastructure/workers/Retention.ts"
import { unavailable } from "./deliveryWorld.ts"

it.effect("removes at the start and every hour or so, and no fault stops it", () =>
  Effect.gen(function* () {
    const log: Array<string> = []
    const faults = [Effect.succeed(7), Effect.die(new Error("no such column")), unavailable, Effect.succeed(0)]
    let calls = 0
    const services = Layer.mergeAll(
      Layer.mock(Retention, { removeOld: Effect.suspend(() => faults[calls++]!) }),
      Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
    )
    yield* Layer.build(Layer.provide(RetentionWorker.layer, services))
    for (const expected of [1, 2, 3, 4]) {
      yield* Effect.yieldNow
      assert.strictEqual(calls, expected)
      // An hour, give or take a fifth.
      yield* TestClock.adjust("47 minutes")
      assert.strictEqual(calls, expected)
      if (expected < 4) yield* Effect.repeat(TestClock.adjust("1 minute"), { until: () => calls > expected, times: 25 })
    }
    for (const word of ["7 events past RETENTION_DAYS", "no such column", "The database cannot be reached"]) {
      assert.strictEqual(log.filter((line) => line.includes(word)).length, 1, word)
    }
  }),
)

/** A repository that has so many batches, and what was asked of it. */
const batches = (ends: ReadonlyArray<{ readonly removed: number; readonly next: string | null }>) => {
  const asked: Array<RetentionBatch> = []
  const repository = Layer.mock(RetentionRepository, {
    removeOld: (batch) => Effect.sync(() => ends[asked.push(batch) - 1]!),
  })
  return { asked, repository }
}

it.effect("goes on batch by batch, with a pause in between, to the last", () =>
  Effect.gen(function* () {
    const { asked, repository } = batches([
      { removed: 500, next: "a" },
      { removed: 0, next: "b" },
      { removed: 3, next: null },
    ])
    yield* TestClock.setTime(Date.UTC(2026, 10, 20))
    const { removeOld } = yield* Effect.provide(
      Retention,
      Layer.provide(Retention.layer, [repository, Layer.succeed(RetentionDays, 10)]),
    )
    const running = yield* Effect.forkChild(removeOld)
    for (const expected of [1, 2, 3]) {
      yield* Effect.yieldNow
      assert.strictEqual(asked.length, expected)
      yield* TestClock.adjust("199 millis")
      assert.strictEqual(asked.length, expected)
      yield* TestClock.adjust("1 millis")
    }
    assert.strictEqual(yield* Fiber.join(running), 503)
    assert.deepStrictEqual(
      asked.map(({ after }) => after),
      ["", "a", "b"],
    )
    assert.deepStrictEqual(
      new Set(asked.map(({ before }) => DateTime.formatIso(before))),
      new Set(["2026-11-10T00:00:00.000Z"]),
    )
  }),
)

it.effect("without an end asks for nothing", () =>
  Effect.gen(function* () {
    const { asked, repository } = batches([])
    const { removeOld } = yield* Effect.provide(
      Retention,
      Layer.provide(Retention.layer, [repository, Layer.succeed(RetentionDays, undefined)]),
    )
    assert.strictEqual(yield* removeOld, 0)
    assert.deepStrictEqual(asked, [])
  }),
)
