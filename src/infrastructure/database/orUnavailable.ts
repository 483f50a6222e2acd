import { Cause, Context, Effect, Fiber, Option } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import * as ConnectionShares from "./connectionShares.ts"
import { measured } from "./databaseMetrics.ts"
import { type Deadline, deadlines } from "./deadlines.ts"
import { poolSize } from "./PostgresDatabase.ts"
import * as Waiting from "./waitingRequests.ts"

/** How many requests may wait for the database at one time: a second's worth or two, on a small machine. */
const maxWaiting = 1024
const busy = new Unavailable({ error: "Too many requests wait for the database; try again." })
const unreachable = new Unavailable({ error: "The database cannot be reached; try again." })
const refused = new Unavailable({ error: "The database cannot do this just now; try again." })
const stopped = new Unavailable({ error: "The database stopped the statement after its own time limit; try again." })

/** SQLSTATEs after which the same operation may succeed later; the connection classes 08 and 28 come typed. */
const passingStates: ReadonlyMap<string, Unavailable> = new Map([
  ["25006", refused], // read-only: a standby that is not promoted yet
  ["53100", refused], // disk full
  ["53200", refused], // out of memory
  ["53300", unreachable], // too many connections
  ["57014", stopped], // statement_timeout
  ["57P01", unreachable], // shutting down
  ["57P02", unreachable],
  ["57P03", unreachable], // starting up
  ["57P05", unreachable], // idle-session timeout
])

/** The answer to an SQL error that may pass; none for one that says that the statement is wrong. */
const passingAnswer = ({ reason }: SqlError.SqlError) =>
  reason._tag === "ConnectionError" || reason._tag === "AuthenticationError"
    ? unreachable
    : passingStates.get((reason.cause as { readonly code?: string } | undefined)?.code ?? "")

/** Whether an SQL error may pass, rather than say that the statement is wrong. */
export const isPassing = (error: SqlError.SqlError) => passingAnswer(error) !== undefined

const tooSlow = (deadline: Deadline) =>
  new Unavailable({ error: `The database did not answer within ${deadlines[deadline] / 1000} s; try again.` })

/** Fails with what the caller is told of an operation past its deadline, and logs which operation that was. */
const failTooSlow = (deadline: Deadline) =>
  Effect.option(Effect.currentSpan).pipe(
    Effect.flatMap((span) =>
      Effect.logWarning(`The database did not answer within ${deadlines[deadline] / 1000} s`).pipe(
        Effect.annotateLogs({ operation: Option.match(span, { onNone: () => "unknown", onSome: ({ name }) => name }) }),
      ),
    ),
    Effect.andThen(Effect.fail(tooSlow(deadline))),
  )

/** The connections of this process, shared by orgs and background work. */
const connections = ConnectionShares.make(ConnectionShares.sharesOf(poolSize))

/** Whether the operation at hand is a part of one that has been admitted and holds a connection. */
const IsPart = Context.Reference<boolean>("gatehouse/infrastructure/orUnavailable/IsPart", {
  defaultValue: () => false,
})

/**
 * Begins an operation when its org, or background work, has its turn at a connection, cancels it at its
 * deadline, and fails with `unavailable` when it has ended. As `Effect.timeout`, with one fiber in the place of two and the
 * platform's timer: that is a tenth of a read's CPU.
 */
const inTime =
  (deadline: Deadline) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
    Effect.contextWith((context: Context.Context<R>) =>
      Effect.callback<A, E | Unavailable>((resume) => {
        let late = false
        let running: Fiber.Fiber<A, E> | undefined
        const begin = () => {
          running = Effect.runForkWith(Context.add(context, IsPart, true))(operation)
          running.addObserver((exit) => {
            clearTimeout(timer)
            leave()
            resume(late ? failTooSlow(deadline) : exit)
          })
        }
        const timer = setTimeout(() => {
          late = true
          if (running !== undefined) return running.interruptUnsafe()
          leave()
          resume(failTooSlow(deadline))
        }, deadlines[deadline])
        // A part of an operation runs on the connection that the whole holds.
        const isPart = Context.get(context, IsPart)
        const ticket = isPart ? undefined : connections.enter(Context.get(context, RequestOrg), begin)
        const leave = () => ticket && connections.leave(ticket)
        if (ticket === undefined || ticket.state === "holding") begin()
        return Effect.suspend((): Effect.Effect<void> => {
          if (running !== undefined) return Fiber.interrupt(running)
          clearTimeout(timer)
          leave()
          return Effect.void
        })
      }),
    )

/** The requests of this process that wait for the database. */
export const waiting: Waiting.Waiting = { count: 0, byOrg: new Map() }

/** Refuses what is more than may wait, so that a flood is answered and does not pile up in memory. */
const admitted = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
  Effect.withFiber<A, E | Unavailable, R>(({ context }) => {
    const orgId = Context.get(context, RequestOrg)
    // Background work bounds itself; an operation that is a part of another is counted with it.
    if (orgId === undefined || Context.get(context, IsPart)) return effect
    return Effect.uninterruptibleMask((restore): Effect.Effect<A, E | Unavailable, R> => {
      if (!Waiting.enter(waiting, orgId, maxWaiting)) return Effect.fail(busy)
      return Effect.onExit(restore(effect), () => Effect.sync(() => Waiting.leave(waiting, orgId)))
    })
  })

/**
 * Bounds and measures a repository's operation and sorts its faults. An operation past its deadline is canceled, logged
 * once, and `Unavailable` (503) with a sentence that says so; a connection gone silent takes 5 seconds more to be closed.
 * So is, with its own sentence, a database that cannot be reached or cannot do this just now. Any other SQL error is a
 * defect (500). Orgs and background work share the connections; more than 1,024 requests that
 * wait, or too many of one org, are `Unavailable` at once. Put it around the whole operation,
 * `withTransaction` included: a rollback on a lost connection dies of the SQL error instead of failing with it.
 */
export const orUnavailableWithin = (deadline: Deadline) => {
  const bounded = inTime(deadline)
  return <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
    effect.pipe(
      bounded,
      Effect.catchCause((cause): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
        const faults = cause.reasons
          .map((_) => (_._tag === "Fail" ? _.error : _._tag === "Die" ? _.defect : undefined))
          .filter(SqlError.isSqlError)
        if (faults.length === 0) return Effect.failCause(cause as Cause.Cause<Exclude<E, SqlError.SqlError>>)
        const answer = faults.map(passingAnswer).find((passing) => passing !== undefined)
        return answer === undefined
          ? Effect.die(faults[0])
          : Effect.andThen(Effect.logDebug(answer.error, cause), Effect.fail(answer))
      }),
      measured,
      admitted,
    )
}

/** `orUnavailableWithin` the deadline of requests. */
export const orUnavailable = orUnavailableWithin("request")

/**
 * Bounds the wait of one of several callers whom one operation answers together by the deadline of requests, and counts it
 * as one request that waits. The operation itself is to be put in `orUnavailable`, which logs when it is too slow.
 *
 * @param wait is called with what is to be called with the answer; returns how to withdraw what has not begun
 */
export const answerOrUnavailable = <A, E>(
  wait: (done: (answer: Effect.Effect<A, E>) => void) => () => void,
): Effect.Effect<A, E | Unavailable> =>
  admitted(
    Effect.callback<A, E | Unavailable>((resume) => {
      const timer = setTimeout(() => {
        withdraw()
        resume(Effect.fail(tooSlow("request")))
      }, deadlines.request)
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
