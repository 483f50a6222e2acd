import { type Cause, Context, Effect, Exit, Fiber, Option } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import { ConnectionShares, sharesOf } from "./ConnectionShares.ts"
import { measured } from "./databaseMetrics.ts"
import { type Deadline, deadlines } from "./deadlines.ts"
import { poolSize } from "./PostgresDatabase.ts"
import * as Waiting from "./waitingRequests.ts"

/** Limit of requests that wait for the database: one or two seconds of load on a small machine. */
const maxWaitingOperations = 1024
const busy = new Unavailable({ error: "Too many requests wait for the database; try again." })
const unreachable = new Unavailable({ error: "The database cannot be reached; try again." })
const refused = new Unavailable({ error: "The database refused the statement for now; try again." })
const readOnly = new Unavailable({ error: "The database is read-only, as during a failover; try again." })
const stopped = new Unavailable({ error: "The database ended the statement after its own time limit; try again." })

/** SQLSTATEs of transient errors. The connection classes 08 and 28 have typed errors. */
const transientStates: ReadonlyMap<string, Unavailable> = new Map([
  ["25006", readOnly], // such as a standby before its promotion
  ["53100", refused], // disk full
  ["53200", refused], // out of memory
  ["53300", unreachable], // too many connections
  ["57014", stopped], // statement_timeout
  ["57P01", unreachable], // shutting down
  ["57P02", unreachable],
  ["57P03", unreachable], // starting up
  ["57P05", unreachable], // idle-session timeout
])

/** The answer to a transient SQL error; `undefined` for any other error. */
const transientAnswer = ({ reason }: SqlError.SqlError) =>
  reason._tag === "ConnectionError" || reason._tag === "AuthenticationError"
    ? unreachable
    : transientStates.get((reason.cause as { readonly code?: string } | undefined)?.code ?? "")

/** Whether the same operation may succeed later. Other SQL errors are faults of the statement. */
export const isTransient = (error: SqlError.SqlError) => transientAnswer(error) !== undefined

/** Removes the row from a fault of a statement: a worker that logs the fault would log what a tenant has stored. */
const withoutRow = (fault: SqlError.SqlError) => {
  const { cause } = fault.reason
  if (typeof cause === "object" && cause !== null) Object.assign(cause, { detail: undefined, where: undefined })
  return fault
}

const tooSlow = (deadline: Deadline) =>
  new Unavailable({ error: `The database did not answer within ${deadlines[deadline] / 1000} s; try again.` })

/** Logs the name of an operation past its deadline, and fails with `Unavailable`. */
const failTooSlow = (deadline: Deadline) =>
  Effect.option(Effect.currentSpan).pipe(
    Effect.flatMap((span) =>
      Effect.logWarning(`The database did not answer within ${deadlines[deadline] / 1000} s`).pipe(
        Effect.annotateLogs({ operation: Option.match(span, { onNone: () => "unknown", onSome: ({ name }) => name }) }),
      ),
    ),
    Effect.andThen(Effect.fail(tooSlow(deadline))),
  )

/** The pool's connections, shared by orgs and background work. */
const connections = new ConnectionShares(sharesOf(poolSize))

/** Tries of an operation that PostgreSQL ends for the sake of another one. */
const maxTries = 3

/** SQLSTATEs of transactions that lost against another one and changed nothing: serialization failures and deadlocks. */
const victimStates = new Set(["40001", "40P01"])

const wasVictim = (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit) &&
  sqlErrorsOf(exit.cause).some(({ reason }) =>
    victimStates.has((reason.cause as { readonly code?: string } | undefined)?.code ?? ""),
  )

const sqlErrorsOf = (cause: Cause.Cause<unknown>) =>
  cause.reasons
    .map((_) => (_._tag === "Fail" ? _.error : _._tag === "Die" ? _.defect : undefined))
    .filter(SqlError.isSqlError)

/** Whether the operation is part of another one that holds a connection. */
const IsPart = Context.Reference<boolean>("gatehouse/infrastructure/orUnavailable/IsPart", {
  defaultValue: () => false,
})

/**
 * Starts an operation at its org's (or the background work's) turn for a connection. At the deadline it cancels the
 * operation, and fails with `Unavailable` after that has ended. Like `Effect.timeout`, but with one fiber instead of two and
 * the platform's timer, which saves a tenth of the CPU time of a read.
 */
const withDeadline =
  (deadline: Deadline) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
    Effect.contextWith((context: Context.Context<R>) =>
      Effect.callback<A, E | Unavailable>((resume) => {
        let isLate = false
        let running: Fiber.Fiber<A, E> | undefined
        let tries = 0
        const begin = () => {
          tries++
          running = Effect.runForkWith(Context.add(context, IsPart, true))(operation)
          running.addObserver((exit) => {
            // A part is not tried again alone: the transaction of the whole has ended.
            if (!isLate && !isPart && tries < maxTries && wasVictim(exit)) return begin()
            clearTimeout(timer)
            leave()
            resume(isLate ? failTooSlow(deadline) : exit)
          })
        }
        const timer = setTimeout(() => {
          isLate = true
          if (running !== undefined) return running.interruptUnsafe()
          leave()
          resume(failTooSlow(deadline))
        }, deadlines[deadline])
        // A part of an operation runs on the connection that the whole operation holds.
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

/** Counts the requests of this process that wait for the database. */
export const waiting: Waiting.Waiting = { count: 0, byOrg: new Map() }

/** Fails with `Unavailable` if too many requests wait, so that a flood does not fill the memory. */
const admitted = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
  Effect.withFiber<A, E | Unavailable, R>(({ context }) => {
    const orgId = Context.get(context, RequestOrg)
    // Background work has its own limits. A part of an operation is counted with the whole operation.
    if (orgId === undefined || Context.get(context, IsPart)) return effect
    return Effect.uninterruptibleMask((restore): Effect.Effect<A, E | Unavailable, R> => {
      if (!Waiting.enter(waiting, orgId, maxWaitingOperations)) return Effect.fail(busy)
      return Effect.onExit(restore(effect), () => Effect.sync(() => Waiting.leave(waiting, orgId)))
    })
  })

/**
 * Limits and measures a repository operation, and classifies its errors. It fails with `Unavailable` (503):
 *
 * - at the deadline, after the operation is canceled and logged once (a dead connection takes 5 seconds more to close);
 * - for a transient SQL error, such as a database that cannot be reached;
 * - at once, if more than 1,024 requests wait for the database, or too many of one org.
 *
 * Runs the operation again, up to twice, when the database ended its transaction because of another one. Any other SQL error is a
 * defect (500). Orgs and background work share the connections. Wrap the whole operation,
 * `withTransaction` included: a rollback on a lost connection dies of the SQL error instead of failing with it.
 */
export const orUnavailableWithin = (deadline: Deadline) => {
  const bounded = withDeadline(deadline)
  return <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
    effect.pipe(
      bounded,
      Effect.catchCause((cause): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> => {
        const faults = sqlErrorsOf(cause)
        if (faults.length === 0) return Effect.failCause(cause as Cause.Cause<Exclude<E, SqlError.SqlError>>)
        const answer = faults.map(transientAnswer).find((transient) => transient !== undefined)
        return answer === undefined
          ? Effect.die(withoutRow(faults[0]!))
          : Effect.andThen(Effect.logDebug(answer.error, cause), Effect.fail(answer))
      }),
      measured,
      admitted,
    )
}

/** `orUnavailableWithin` with the deadline of requests. */
export const orUnavailable = orUnavailableWithin("request")

/**
 * Waits for an operation that answers several requests together. Applies the deadline of requests, and counts this request
 * as one that waits. Wrap the operation itself in `orUnavailable`, which logs when it is too slow.
 *
 * @param wait calls its argument with the answer; returns a function that withdraws a request that has not started
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
