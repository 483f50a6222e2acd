import { assert } from "@effect/vitest"
import { Clock, Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Idempotency } from "#src/domain/Idempotency.ts"
import * as IdempotencyKeysWorker from "#src/infrastructure/idempotency/idempotencySql.ts"
import { it } from "../../support/it.ts"
import { unavailable } from "../webhooks/deliveryWorld.ts"

/** A database that answers with this time. */
const databaseAt = (millis: number) =>
  Layer.succeed(SqlClient.SqlClient, (() => Effect.succeed([{ now: new Date(millis) }])) as never)

it.effect("removes expired records at the start and about every hour, and continues after a failure", function* () {
  const log: Array<string> = []
  const faults = [Effect.void, Effect.die(new Error("no such column")), unavailable, Effect.void]
  let calls = 0
  const services = Layer.mergeAll(
    databaseAt(0),
    Layer.mock(Idempotency, { deleteExpired: Effect.suspend(() => faults[calls++]!) }),
    Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
  )
  yield* Layer.build(Layer.provide(IdempotencyKeysWorker.idempotencyWorker, services))
  yield* Effect.yieldNow
  assert.strictEqual(calls, 1)
  for (const expected of [2, 3, 4]) {
    const before = yield* Clock.currentTimeMillis
    while ((yield* Effect.sync(() => calls)) < expected) yield* TestClock.adjust("1 minute")
    const minutes = ((yield* Clock.currentTimeMillis) - before) / 60_000
    assert.isAtLeast(minutes, 48)
    assert.isAtMost(minutes, 73)
  }
  for (const word of ["no such column", "The database cannot be reached"]) {
    assert.strictEqual(log.filter((line) => line.includes(word)).length, 1, word)
  }
})

// Seen failing: a replica that was ahead by an hour removed them an hour early.
it.effect("goes by its own clock or by that of the database, whichever is behind", function* () {
  yield* TestClock.setTime(7_200_000)
  for (const [database, expected] of [
    [3_600_000, 3_600_000],
    [9_000_000, 7_200_000],
  ] as const) {
    const seen: Array<number> = []
    const deleteExpired = Effect.map(Clock.currentTimeMillis, (millis) => void seen.push(millis))
    const services = Layer.merge(databaseAt(database), Layer.mock(Idempotency, { deleteExpired }))
    yield* Layer.build(Layer.provide(IdempotencyKeysWorker.idempotencyWorker, services))
    yield* Effect.yieldNow
    assert.deepStrictEqual(seen, [expected])
  }
})
