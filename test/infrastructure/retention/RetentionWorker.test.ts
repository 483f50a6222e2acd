import { assert } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { Unavailable } from "#src/domain/Errors.ts"
import { AuditRetentionDays, Retention, RetentionDays, RetentionRepository } from "#src/domain/Retention.ts"
import * as RetentionWorker from "#src/infrastructure/retention/retentionSql.ts"
import { it } from "../../support/it.ts"
import { unavailable } from "../webhooks/deliveryWorld.ts"

/**
 * Promise (Retention): An org with a retention of its own loses what is older, and nothing that is pending; no other
 * org loses anything.
 */

it.effect("removes at the start and about every minute, and continues after a failure", function* () {
  const log: Array<string> = []
  const faults = [Effect.succeed(7), Effect.die(new Error("no such column")), unavailable, Effect.succeed(0)]
  let calls = 0
  const services = Layer.mergeAll(
    Layer.mock(Retention, { removeOld: Effect.suspend(() => faults[calls++]!), removeOfOrgs: Effect.succeed(0) }),
    Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
  )
  yield* Layer.build(Layer.provide(RetentionWorker.retentionWorker, services))
  for (const expected of [1, 2, 3, 4]) {
    yield* Effect.yieldNow
    assert.strictEqual(calls, expected)
    // A minute, plus or minus a fifth.
    yield* TestClock.adjust("47 seconds")
    assert.strictEqual(calls, expected)
    if (expected < 4) yield* Effect.repeat(TestClock.adjust("1 second"), { until: () => calls > expected, times: 25 })
  }
  for (const word of ["7 events past RETENTION_DAYS", "no such column", "The database cannot be reached"]) {
    assert.strictEqual(log.filter((line) => line.includes(word)).length, 1, word)
  }
})

/** Retention over a repository with two old ranges, which records its calls. */
const retentionOf = Effect.fnUntraced(function* (days: number | undefined, auditDays: number | undefined) {
  const calls: Array<string> = []
  let ranges = 2
  const call = <A>(text: string, of: () => A) => Effect.sync(() => (calls.push(text), of()))
  const repository = Layer.mock(RetentionRepository, {
    prepare: (records, _, range) => call(`prepare ${records} ${Duration.toMinutes(range)}`, () => undefined),
    removeOldest: (records, _, age) =>
      call(`${records} ${Duration.toDays(age)}`, () => (ranges-- > 0 ? 5 : ((ranges = 2), null))),
    removeLeft: (limit) => call(`left ${limit}`, () => 0),
  })
  const settings = [Layer.succeed(RetentionDays, days), Layer.succeed(AuditRetentionDays, auditDays)] as const
  const { removeOld } = yield* Effect.provide(Retention, Layer.provide(Retention.layer, [repository, ...settings]))
  const running = yield* Effect.forkChild(removeOld)
  yield* TestClock.adjust("1 second")
  return { calls, removed: yield* Fiber.join(running) }
})

it.effect("prepares ranges of a twelfth of the retention, and removes old ranges, then what stayed", function* () {
  const { calls, removed } = yield* retentionOf(90, 1)
  assert.strictEqual(removed, 10)
  assert.deepStrictEqual(calls, [
    "prepare audit 120",
    ...Array(3).fill("audit 1"),
    "prepare webhooks 10800",
    ...Array(3).fill("webhooks 90"),
    "left 1000",
  ])
})

it.effect("does nothing without a retention time", function* () {
  assert.deepStrictEqual(yield* retentionOf(undefined, undefined), { calls: [], removed: 0 })
})

it.effect("removes what is past the retention of an org, batch by batch, unless RETENTION_DAYS is less", function* () {
  const calls: Array<string> = []
  const repository = Layer.mock(RetentionRepository, {
    shorterOrgs: (after) =>
      Effect.succeed(
        ["a", "b", "c"].filter((orgId) => orgId > after).map((orgId, n) => ({ orgId, days: 30 * (n + 1) })),
      ),
    removeOfOrg: (orgId, _now, age, after) =>
      Effect.sync(
        () => (
          calls.push(`${orgId} ${Duration.toDays(age)} ${after}`),
          { removed: 5, next: after === "" ? "1" : null }
        ),
      ),
    removeJobsOfOrg: (orgId, _now, age) =>
      orgId === "a"
        ? Effect.fail(new Unavailable({ error: "It moves." }))
        : Effect.sync(() => (calls.push(`${orgId} ${Duration.toDays(age)} jobs`), { removed: 1, next: null })),
  })
  const { removeOfOrgs } = yield* Effect.provide(
    Retention,
    Layer.provide(Retention.layer, [repository, Layer.succeed(RetentionDays, 90)]),
  )
  // The second org although the first one cannot be changed.
  assert.strictEqual(yield* removeOfOrgs, 11)
  assert.deepStrictEqual(calls, ["a 30 ", "a 30 1", "b 60 ", "b 60 1", "b 60 jobs"])
})
