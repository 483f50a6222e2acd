import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { outcomeOf } from "../domain/support.ts"
import { until } from "../support/wait.ts"

/** Runs two writes at the same time; returns the outcome of each: `ok`, or the class of its error. */
export const meet = Effect.fnUntraced(function* <E extends Tagged, F extends Tagged, R, S>(
  first: Effect.Effect<unknown, E, R>,
  second: Effect.Effect<unknown, F, S>,
) {
  // One of the two starts up to a millisecond earlier, at random.
  const lead = Math.random() * 2 - 1
  const one = yield* Effect.forkChild(outcomeOf(Effect.delay(first, Math.max(0, lead))))
  const other = yield* Effect.forkChild(outcomeOf(Effect.delay(second, Math.max(0, -lead))))
  return [yield* Fiber.join(one), yield* Fiber.join(other)] as const
})
interface Tagged {
  readonly _tag: string
}

/** Asserts that one of two writes won, and that the other failed with this class of error. */
export const assertOneWon = (outcomes: ReadonlyArray<string>, lost: string) =>
  assert.deepStrictEqual(outcomes.toSorted(), [lost, "ok"].sort())

/** Waits until this number of database sessions wait for a lock. */
export const untilWaiting = Effect.fnUntraced(function* (sessions: number) {
  const sql = yield* SqlClient.SqlClient
  const waiting = Effect.andThen(
    sql`SELECT pg_stat_clear_snapshot()`,
    sql<{ count: number }>`
      SELECT count(*)::int AS count FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`,
  )
  yield* until(`${sessions} sessions that wait for a lock`, waiting, ([row]) => row!.count >= sessions)
})

/**
 * Starts the second effect after the work of the first one's transaction, and commits that once the second waits, or
 * has ended without.
 */
export const meanwhile = Effect.fnUntraced(function* <A, E, R, A2, E2, R2>(
  first: Effect.Effect<A, E, R>,
  second: Effect.Effect<A2, E2, R2>,
) {
  const sql = yield* SqlClient.SqlClient
  const [done, ended] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  const holder = yield* Effect.tap(first, () =>
    Effect.andThen(Deferred.succeed(done, undefined), Effect.raceFirst(untilWaiting(1), Deferred.await(ended))),
  ).pipe(sql.withTransaction, Effect.forkChild)
  yield* Deferred.await(done)
  const after = yield* Effect.ensuring(second, Deferred.succeed(ended, undefined))
  return [yield* Fiber.join(holder), after] as const
})
