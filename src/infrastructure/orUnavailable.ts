import type { Context } from "effect"
import { Cause, Effect, Fiber } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "../domain/Errors.ts"
import { WaitingRequests } from "../domain/WaitingRequests.ts"
import { measured } from "./databaseMetrics.ts"

/** How many requests may wait for the database at one time: a second's worth or two, on a small machine. */
const maxWaiting = 1024
const busy = new Unavailable({ error: "Too many requests wait for the database; try again." })
const unavailable = new Unavailable({ error: "The database cannot be reached; try again." })

/** SQLSTATEs of a database that is there and cannot serve just now; the connection classes 08 and 28 come typed. */
const passing = new Set([
  "25006", // read-only: a standby that is not promoted yet
  "53100", // disk full
  "53200", // out of memory
  "53300", // too many connections
  "57014", // statement_timeout: it did not get through in time
  "57P01", // shutting down
  "57P02",
  "57P03", // starting up
  "57P05", // idle-session time-out
])

/** Whether an SQL error says that the database cannot be had just now, rather than that the statement is wrong. */
export const isUnreachable = ({ reason }: SqlError.SqlError) =>
  reason._tag === "ConnectionError" ||
  reason._tag === "AuthenticationError" ||
  passing.has((reason.cause as { readonly code?: string } | undefined)?.code ?? "")

/** How long an operation may take, in milliseconds. */
const patience = 4_000

/**
 * Takes an operation back that is not done in time, and fails with `unavailable` when that is done. As `Effect.timeout`,
 * with one fiber in the place of two and the platform's timer: that is a tenth of a read's CPU.
 */
const inTime = <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
  Effect.contextWith((context: Context.Context<R>) =>
    Effect.callback<A, E | Unavailable>((resume) => {
      let late = false
      const running = Effect.runForkWith(context)(operation)
      const timer = setTimeout(() => {
        late = true
        running.interruptUnsafe()
      }, patience)
      running.addObserver((exit) => {
        clearTimeout(timer)
        resume(late ? Effect.fail(unavailable) : exit)
      })
      return Fiber.interrupt(running)
    }),
  )

/** Refuses what is more than may wait, so that a flood is answered and does not pile up in memory. */
const admitted = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
  Effect.flatMap(WaitingRequests, (waiting): Effect.Effect<A, E | Unavailable, R> => {
    if (waiting === undefined) return effect
    if (waiting.count >= maxWaiting) return Effect.fail(busy)
    waiting.count++
    return effect.pipe(
      // Once, also where one operation is a part of another.
      Effect.provideService(WaitingRequests, undefined),
      Effect.onExit(() => Effect.sync(() => void waiting.count--)),
    )
  })

/**
 * Bounds and measures a repository's operation and sorts its faults: a database that cannot be reached, or is not done
 * within 4 seconds, is `Unavailable` (503; a connection gone silent takes 5 seconds more to be given up); any other SQL error is a defect
 * (500). More than 1,024 requests that wait are `Unavailable` at once. Put it around the whole operation, `withTransaction`
 * included: a rollback on a lost connection dies of the SQL error instead of failing with it.
 */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  effect.pipe(
    inTime,
    Effect.catchCause((cause): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
      const faults = cause.reasons
        .map((_) => (_._tag === "Fail" ? _.error : _._tag === "Die" ? _.defect : undefined))
        .filter(SqlError.isSqlError)
      if (faults.length === 0) return Effect.failCause(cause as Cause.Cause<Exclude<E, SqlError.SqlError>>)
      return faults.some(isUnreachable)
        ? Effect.andThen(Effect.logDebug("The database cannot be reached", cause), Effect.fail(unavailable))
        : Effect.die(faults[0])
    }),
    measured,
    admitted,
  )

/**
 * Bounds the wait of one of several whom one operation answers together: 4 seconds, whatever it waits behind, and no more
 * of them at one time than of operations. The operation itself is still to be put in `orUnavailable`.
 *
 * @param wait is called with what is to be called with the answer; gives how to take back what has not begun
 */
export const answerOrUnavailable = <A, E>(
  wait: (done: (answer: Effect.Effect<A, E>) => void) => () => void,
): Effect.Effect<A, E | Unavailable> =>
  admitted(
    Effect.callback<A, E | Unavailable>((resume) => {
      const timer = setTimeout(() => {
        withdraw()
        resume(Effect.fail(unavailable))
      }, patience)
      const withdraw = wait((answer) => {
        clearTimeout(timer)
        resume(answer)
      })
      return Effect.sync(() => {
        clearTimeout(timer)
        withdraw()
      })
    }),
  )
