import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"

const usage = Effect.provide(OrgUsage, OrgUsage.layer)

it.effect("a count is used for a quarter of the units below the margin, and for ten seconds", () =>
  Effect.gen(function* () {
    const { counted, take, owns } = yield* usage
    assert.isFalse(take("keys", "o"))
    counted("keys", "o", 10_000, 10_000 - 256 - 12)
    owns("project", "o")
    assert.deepStrictEqual([take("keys", "o"), take("keys", "project"), take("keys", "o")], [true, true, true])
    assert.deepStrictEqual([take("keys", "o"), take("keys", "project"), take("projects", "o")], [false, false, false])
    counted("keys", "o", 10_000, 5_000)
    assert.isTrue(take("keys", "o"))
    yield* TestClock.adjust("10 seconds")
    assert.isTrue(take("keys", "o"))
    yield* TestClock.adjust("1 millis")
    assert.isFalse(take("keys", "o"))
  }),
)

it.effect("a background count grows with new rows, refuses at the limit, and is forgotten when unused", () =>
  Effect.gen(function* () {
    const { addWatched, counted, forget, takeUsed } = yield* usage
    const names = () => takeUsed().map(({ name, orgId }) => `${name} ${orgId}`)
    assert.deepStrictEqual(
      [1, 2, 3].map(() => addWatched("unfinishedJobs", "o", 2)),
      [true, true, false],
    )
    assert.deepStrictEqual(names(), ["unfinishedJobs o"])
    counted("unfinishedJobs", "o", 2, 1)
    assert.deepStrictEqual(names(), [])
    counted("unfinishedJobs", "o", 2, 1)
    assert.deepStrictEqual(
      [1, 2].map(() => addWatched("unfinishedJobs", "o", 2)),
      [true, false],
    )
    forget("o")
    assert.isTrue(addWatched("unfinishedJobs", "o", 1))
    assert.isFalse(addWatched("unfinishedJobs", "o", 1))
  }),
)

it.effect("the number of counts is bounded: the oldest are dropped first", () =>
  Effect.gen(function* () {
    const { counted, known, notePending, takeWithPending } = yield* usage
    for (let n = 0; n < 10_001; n++) {
      counted("keys", `o${n}`, 10_000, 1_000)
      notePending(`o${n}`)
    }
    assert.isUndefined(known("keys", "o0"))
    assert.isDefined(known("keys", "o1"))
    assert.deepStrictEqual(takeWithPending(2), ["o1", "o2"])
    assert.strictEqual(takeWithPending(20_000).length, 9_998)
    assert.deepStrictEqual(takeWithPending(1), [])
  }),
)

it.effect("a count far below the limit is used for a minute, while the limit stays the same", () =>
  Effect.gen(function* () {
    const { confirm, counted, known } = yield* usage
    counted("unfinishedJobs", "o", 1_000_000, 400_000)
    for (let seconds = 5; seconds < 60; seconds += 5) {
      yield* TestClock.adjust("5 seconds")
      assert.isTrue(confirm(known("unfinishedJobs", "o")!, 1_000_000))
      assert.isFalse(confirm(known("unfinishedJobs", "o")!, 900_000))
    }
    yield* TestClock.adjust("5 seconds")
    assert.isFalse(confirm(known("unfinishedJobs", "o")!, 1_000_000))
    counted("unfinishedJobs", "o", 1_000_000, 500_000)
    assert.isFalse(confirm(known("unfinishedJobs", "o")!, 1_000_000))
  }),
)
