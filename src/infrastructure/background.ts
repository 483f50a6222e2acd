import { Clock, type Duration, Effect, Schedule, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import type { Unavailable } from "../domain/Errors.ts"
import { orUnavailable } from "./database/orUnavailable.ts"

/**
 * Runs one pass of background work, and logs what goes wrong: the next pass tries again.
 *
 * @param problem what is not done, as a sentence without its full stop
 * @param shown what of a fault is logged; its cause by default
 */
export const logged = <R>(
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
  shown: (fault: unknown) => unknown = (fault) => fault,
): Effect.Effect<void, never, R> =>
  Effect.asVoid(pass).pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(problem, shown(fault))),
  )

/** Repeats `logged` work until the scope closes, with a pause between two passes. */
export const every = <R>(
  pause: Duration.Input,
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
): Effect.Effect<unknown, never, R | Scope.Scope> =>
  Effect.forkScoped(Effect.repeat(logged(problem, pass), Schedule.spaced(pause)))

/**
 * Gives a pass the clock of this process, or one that is set as that of the database when this process is ahead of it:
 * what removes old rows must not remove them early.
 */
export const byEarlierClock = Effect.fnUntraced(function* <A, E, R>(pass: Effect.Effect<A, E, R>) {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const [database] = yield* orUnavailable(sql<{ now: Date }>`SELECT now() AS now`)
  const ahead = Math.max(0, clock.currentTimeMillisUnsafe() - database!.now.getTime())
  const nanosAhead = BigInt(Math.ceil(ahead)) * 1_000_000n
  return yield* Effect.provideService(pass, Clock.Clock, {
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() - ahead,
    currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis - ahead),
    currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe() - nanosAhead,
    currentTimeNanos: Effect.map(clock.currentTimeNanos, (nanos) => nanos - nanosAhead),
    monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
    monotonicTimeNanos: clock.monotonicTimeNanos,
    sleep: (duration) => clock.sleep(duration),
  })
})

/** Runs what removes old rows, `byEarlierClock` and about every hour. The jitter spreads the work of replicas. */
export const hourly = <R>(
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
  shown?: (fault: unknown) => unknown,
): Effect.Effect<unknown, never, R | Scope.Scope | SqlClient.SqlClient> =>
  logged(problem, byEarlierClock(pass), shown).pipe(
    Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
    Effect.forkScoped,
  )

/** Work that takes less than this is done whenever it is asked for, in milliseconds. */
const shortMillis = 500
/** How long other work rests, as a multiple of its time. */
const restFactor = 20

/**
 * Work that rests when it took long, so that it uses a twentieth of a connection at most: a count reads as many dead
 * index entries as a forgotten transaction keeps (ADR 30).
 *
 * @param resting what it returns while it rests; by default what it returned last
 */
export const makeResting = <A>(resting?: A) => {
  let last: { readonly value: A; readonly until: number } | undefined
  const nowMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

  return <E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.gen(function* () {
      const begun = yield* nowMillis
      if (last !== undefined && begun < last.until) return resting ?? last.value
      const value = yield* work
      const ended = yield* nowMillis
      last = ended - begun < shortMillis ? undefined : { value, until: ended + restFactor * (ended - begun) }
      return value
    })
}
