import { assert, describe, it } from "@effect/vitest"
import { Clock, DateTime, Duration, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { byEarlierClock, makeResting } from "#src/infrastructure/background.ts"
import { databases } from "../support/databases.ts"
import { layer } from "../support/it.ts"

describe("work that takes long", () => {
  // Seen failing without the end of the rest: it never ran again.
  it.effect("rests for twenty times as long, and then runs again", () =>
    Effect.gen(function* () {
      let runs = 0
      const work = Effect.andThen(
        Effect.sleep("10 seconds"),
        Effect.sync(() => ++runs),
      )
      const resting = makeResting<number>()
      const run = Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(resting(work))
        yield* TestClock.adjust("10 seconds")
        return yield* Fiber.join(fiber)
      })
      assert.strictEqual(yield* run, 1)
      yield* TestClock.adjust("180 seconds")
      // At its rest: what it returned last.
      assert.strictEqual(yield* run, 1)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(yield* run, 2)
    }),
  )
})

/** The clock of this process, which is ahead by a time. */
const ahead = (by: Duration.Input) =>
  Effect.map(Clock.Clock, (clock): Clock.Clock => {
    const millis = Duration.toMillis(Duration.fromInputUnsafe(by))
    return Object.assign(Object.create(clock) as Clock.Clock, {
      currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + millis,
      currentTimeMillis: Effect.map(clock.currentTimeMillis, (now) => now + millis),
    })
  })

layer(databases.postgres, { excludeTestServices: true })("what removes old rows", (it) => {
  // Seen failing with the clock of the process alone.
  it.effect(
    "takes the clock of the database when that of the process is ahead, and its own when it is behind",
    function* () {
      const sql = yield* SqlClient.SqlClient
      const hour = Duration.toMillis("1 hour")
      const hoursAhead = Effect.gen(function* () {
        const [row] = yield* sql<{ now: Date }>`SELECT now() AS now`
        const now = yield* byEarlierClock(DateTime.now)
        return Math.round((DateTime.toEpochMillis(now) - row!.now.getTime()) / hour)
      })
      assert.strictEqual(yield* Effect.provideServiceEffect(hoursAhead, Clock.Clock, ahead("3 hours")), 0)
      assert.strictEqual(yield* Effect.provideServiceEffect(hoursAhead, Clock.Clock, ahead("-3 hours")), -3)
    },
  )
})
