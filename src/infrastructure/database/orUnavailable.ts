import { Cause, Context, Data, Effect, Exit, Fiber, Metric, Option, Predicate } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { RequestOrg } from "../../domain/Principal.ts"
import { deadlines } from "./deadlines.ts"
import { poolSize } from "./PostgresDatabase.ts"

/** The number of requests that wait for the database: of all orgs, and of each org with at least one. */
export interface Waiting {
  count: number
  readonly byOrg: Map<string, number>
}

/**
 * Counts a request. Returns false if it exceeds the limit: `max` for orgs with less than a third of it, two thirds of
 * `max` for the others, so that no org takes all of it.
 */
export const enter = (waiting: Waiting, orgId: string, max: number): boolean => {
  const own = waiting.byOrg.get(orgId) ?? 0
  const third = Math.floor(max / 3)
  if (waiting.count >= (own < third ? max : max - third)) return false
  waiting.count++
  waiting.byOrg.set(orgId, own + 1)
  return true
}

/** Ends the wait of a request that `enter` counted. */
export const leave = (waiting: Waiting, orgId: string) => {
  waiting.count--
  const own = waiting.byOrg.get(orgId)! - 1
  if (own === 0) waiting.byOrg.delete(orgId)
  else waiting.byOrg.set(orgId, own)
}

/** The owner of an operation: an org, `noOrg` for requests without one, or `undefined` for background work. */
export type Owner = string | undefined

/** Limits of the connections that are held at one time. */
interface Shares {
  readonly total: number
  /** Limit of all requests together. The rest is reserved for background work. */
  readonly requests: number
  /** Limit of background work. The rest is reserved for requests. */
  readonly background: number
  /** Limit of one org while no other org waits. The rest of `requests` is free for the next org. */
  readonly org: number
  /** Limit of one org while others wait. */
  readonly orgBesideOthers: number
}

/** The shares of a pool with `total` connections. */
export const sharesOf = (total: number): Shares => ({
  total,
  requests: Math.ceil(total * 0.8),
  background: Math.ceil(total * 0.7),
  org: Math.ceil(total * 0.6),
  orgBesideOthers: Math.floor(total / 3),
})

export interface Ticket {
  readonly owner: Owner
  readonly start: () => void
  state: "waiting" | "holding" | "gone"
}

/**
 * A fair queue in front of the connection pool. An operation within the shares holds a connection at once. Of the
 * waiting owners, the one with the fewest connections is next; owners with equally many take turns.
 */
export class ConnectionShares {
  // Bounded by the number of connections, and by the limit of waiting requests.
  readonly #held = new Map<Owner, number>()
  readonly #queues = new Map<Owner, Set<Ticket>>()
  #total = 0
  #isDraining = false
  readonly #shares: Shares
  constructor(shares: Shares) {
    this.#shares = shares
  }

  /** Requests a connection. The ticket is `holding` at once; otherwise `start` is called later, when it is. */
  enter(owner: Owner, start: () => void): Ticket {
    const ticket: Ticket = { owner, start, state: "waiting" }
    const queue = this.#queues.get(owner)
    if (queue !== undefined) queue.add(ticket)
    else if (this.#mayHold(owner)) this.#hold(ticket)
    else this.#queues.set(owner, new Set([ticket]))
    return ticket
  }

  /** Returns the connection, or stops waiting for one. */
  leave(ticket: Ticket): void {
    if (ticket.state === "waiting") this.#dequeue(ticket)
    if (ticket.state === "holding") {
      const left = this.#heldBy(ticket.owner) - 1
      if (left === 0) this.#held.delete(ticket.owner)
      else this.#held.set(ticket.owner, left)
      this.#total--
    }
    ticket.state = "gone"
    this.#drain()
  }

  #heldBy(owner: Owner) {
    return this.#held.get(owner) ?? 0
  }

  #othersWait(owner: string) {
    return this.#queues.size > (this.#queues.has(owner) ? 1 : 0) + (this.#queues.has(undefined) ? 1 : 0)
  }

  #mayHold(owner: Owner) {
    if (this.#total >= this.#shares.total) return false
    if (owner === undefined) return this.#heldBy(owner) < this.#shares.background
    if (this.#total - this.#heldBy(undefined) >= this.#shares.requests) return false
    return this.#heldBy(owner) < (this.#othersWait(owner) ? this.#shares.orgBesideOthers : this.#shares.org)
  }

  #hold(ticket: Ticket) {
    ticket.state = "holding"
    this.#held.set(ticket.owner, this.#heldBy(ticket.owner) + 1)
    this.#total++
  }

  #dequeue(ticket: Ticket) {
    const queue = this.#queues.get(ticket.owner)!
    queue.delete(ticket)
    // The owner moves to the end, so that owners take turns.
    this.#queues.delete(ticket.owner)
    if (queue.size > 0) this.#queues.set(ticket.owner, queue)
  }

  /** The next ticket. Looks at no more owners than hold a connection, plus one. */
  #next(): Ticket | undefined {
    let best: Set<Ticket> | undefined
    let fewest = Infinity
    for (const [owner, queue] of this.#queues) {
      if (this.#heldBy(owner) >= fewest || !this.#mayHold(owner)) continue
      best = queue
      fewest = this.#heldBy(owner)
      if (fewest === 0) break
    }
    return best?.values().next().value
  }

  /** Starts waiting operations. Not reentrant, because a started operation may end, and leave, at once. */
  #drain() {
    if (this.#isDraining || this.#queues.size === 0) return
    this.#isDraining = true
    for (let ticket = this.#next(); ticket !== undefined; ticket = this.#next()) {
      this.#dequeue(ticket)
      this.#hold(ticket)
      ticket.start()
    }
    this.#isDraining = false
  }
}

type Deadline = keyof typeof deadlines

const inFlight = Metric.gauge("gatehouse_database_operations_in_flight", {
  description: "Database operations in flight, including those that wait for a connection.",
})

type Outcome = "ok" | "unavailable" | "fault" | "interrupted"

const histogram = (outcome: Outcome) =>
  Metric.histogram("gatehouse_database_operation_duration_seconds", {
    description: "Duration of database operations in seconds, by outcome. Includes the wait for a connection.",
    boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    attributes: { outcome },
  })
const durations: Record<Outcome, Metric.Histogram<number>> = {
  ok: histogram("ok"),
  unavailable: histogram("unavailable"),
  fault: histogram("fault"),
  interrupted: histogram("interrupted"),
}

/** Limit of the connection pool. With more operations in flight, some wait. */
export const connectionsMax = Metric.gauge("gatehouse_database_connections_max", {
  description: "Limit of the connections that this process opens for database operations.",
})

/** The outcome label of a failure without an SQL error. A declared error, such as a missing row, is `ok`. */
const outcomeOf = (cause: Cause.Cause<unknown>): Outcome => {
  if (Cause.hasDies(cause)) return "fault"
  if (Cause.hasInterrupts(cause)) return "interrupted"
  return cause.reasons.some((_) => _._tag === "Fail" && Predicate.isTagged(_.error, "Unavailable"))
    ? "unavailable"
    : "ok"
}

/** Limit of requests that wait for the database: one or two seconds of load on a small machine. */
const maxWaitingOperations = 1024
const busy = new Unavailable({ error: "Too many requests wait for the database; try again." })
const unreachable = new Unavailable({ error: "The database cannot be reached; try again." })
const refused = new Unavailable({ error: "The database refused the statement for now; try again." })
const readOnly = new Unavailable({ error: "The database is read-only, as during a failover; try again." })
const stopped = new Unavailable({ error: "The database ended the statement after its own time limit; try again." })

/** The answer while an org moves to another database: nothing of it changes at the old one (ADR 36). */
export const orgMoves = new Unavailable({ error: "The org moves to another database; try again." })

/** SQLSTATEs of transient errors. The connection classes 08 and 28 have typed errors. */
const transientStates: ReadonlyMap<string, Unavailable> = new Map([
  ["25006", readOnly], // such as a standby before its promotion
  ["53100", refused], // disk full
  ["53200", refused], // out of memory
  ["53300", unreachable], // too many connections
  ["55P03", stopped], // lock_timeout
  ["57014", stopped], // statement_timeout
  ["57P01", unreachable], // shutting down
  ["57P02", unreachable],
  ["57P03", unreachable], // starting up
  ["57P05", unreachable], // idle-session timeout
  ["GH001", orgMoves],
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

/** An admission in which nobody waits. */
export const makeAdmission = () => ({
  connections: new ConnectionShares(sharesOf(poolSize)),
  waiting: { count: 0, byOrg: new Map<string, number>() } as Waiting,
})

/**
 * The pool's connections, shared by orgs and background work; and how many requests wait for the database. One for a
 * process: a simulation has several in one.
 */
export const Admission = Context.Reference<ReturnType<typeof makeAdmission>>(
  "gatehouse/infrastructure/orUnavailable/Admission",
  { defaultValue: makeAdmission },
)

/** Tries of an operation that PostgreSQL ends for the sake of another one. */
const maxTries = 3
/** How long an operation waits for others before it runs again, in milliseconds. */
const othersMillis = 25

/** A defect that ends a transaction which waits for others: they may need its connection, so it runs again later. */
export class WaitsForOthers extends Data.TaggedClass("WaitsForOthers")<{
  /** The answer at the deadline. */
  readonly answer: Unavailable
}> {}

/**
 * SQLSTATEs of transactions that lost against another one and changed nothing: serialization failures and deadlocks.
 */
const victimStates = new Set(["40001", "40P01"])

const wasVictim = (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit) &&
  sqlErrorsOf(exit.cause).some(({ reason }) =>
    victimStates.has((reason.cause as { readonly code?: string } | undefined)?.code ?? ""),
  )

/** The wait for others that ended an operation. */
const waitOf = <A, E>(exit: Exit.Exit<A, E>) =>
  Exit.isFailure(exit)
    ? exit.cause.reasons.map((_) => (_._tag === "Die" ? _.defect : undefined)).find((_) => _ instanceof WaitsForOthers)
    : undefined

const sqlErrorsOf = (cause: Cause.Cause<unknown>) =>
  cause.reasons
    .map((_) => (_._tag === "Fail" ? _.error : _._tag === "Die" ? _.defect : undefined))
    .filter(SqlError.isSqlError)

/** Whether the operation is part of another one that holds a connection. */
const IsPart = Context.Reference<boolean>("gatehouse/infrastructure/orUnavailable/IsPart", {
  defaultValue: () => false,
})

/**
 * The org of a request that counts as waiting. Background work does not, because it has its own limits; a part of an
 * operation is counted with the whole operation.
 */
const waiterOf = (context: Context.Context<never>) =>
  Context.get(context, IsPart) ? undefined : Context.get(context, RequestOrg)

/** Counts a request; false when too many wait, so that a flood does not fill the memory. */
const enters = (waiting: Waiting, orgId: string | undefined) =>
  orgId === undefined || enter(waiting, orgId, maxWaitingOperations)
const leaves = (waiting: Waiting, orgId: string | undefined) => orgId === undefined || leave(waiting, orgId)

type Answered<A, E> = Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>

/** The outcome and the answer of an operation that ended. */
const answerOf = <A, E>(exit: Exit.Exit<A, E>): readonly [Outcome, Answered<A, E>] => {
  if (Exit.isSuccess(exit)) return ["ok", exit as Answered<A, E>]
  const { cause } = exit
  const faults = sqlErrorsOf(cause)
  if (faults.length === 0)
    return [waitOf(exit) === undefined ? outcomeOf(cause) : "unavailable", exit as Answered<A, E>]
  const answer = faults.map(transientAnswer).find((transient) => transient !== undefined)
  return answer === undefined
    ? ["fault", Effect.die(withoutRow(faults[0]!))]
    : ["unavailable", Effect.andThen(Effect.logDebug(answer.error, cause), Effect.fail(answer))]
}

/**
 * Limits and measures a repository operation, and classifies its errors. It fails with `Unavailable` (503):
 *
 * - at the deadline, after the operation is canceled and logged once (a dead connection takes 5 seconds more to close);
 * - for a transient SQL error, such as a database that cannot be reached;
 * - at once, if more than 1,024 requests wait for the database, or too many of one org.
 *
 * Runs the operation again, up to twice, when the database ended its transaction because of another one, and until the
 * deadline when it `WaitsForOthers`. Any other SQL error is a defect (500). Orgs and background work share the
 * connections, in turn. Wrap the whole operation, `withTransaction` included: a rollback on a lost connection dies of
 * the SQL error instead of failing with it.
 *
 * The deadline is not PostgreSQL's `statement_timeout`, which a silent connection and a wait for a connection escape,
 * nor `Effect.timeout`, which takes a second fiber: a tenth of the CPU time of a read.
 */
export const orUnavailableWithin =
  (deadline: Deadline) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
    Effect.contextWith((context: Context.Context<R>) =>
      Effect.callback<A, Exclude<E, SqlError.SqlError> | Unavailable>((resume) => {
        const orgId = waiterOf(context)
        const { connections, waiting: waiters } = Context.get(context, Admission)
        if (!enters(waiters, orgId)) return resume(Effect.fail(busy))
        const startedAt = performance.now()
        inFlight.modifyUnsafe(1, context)
        let isLate = false
        let isInterrupted = false
        let running: Fiber.Fiber<A, E> | undefined
        let victims = 0
        let wait: WaitsForOthers | undefined
        let waiting: NodeJS.Timeout | undefined
        const end = (outcome: Outcome) => {
          clearTimeout(timer)
          clearTimeout(waiting)
          if (ticket !== undefined) connections.leave(ticket)
          leaves(waiters, orgId)
          inFlight.modifyUnsafe(-1, context)
          durations[outcome].updateUnsafe((performance.now() - startedAt) / 1000, context)
        }
        const endLate = () => {
          end("unavailable")
          resume(wait === undefined ? failTooSlow(deadline) : Effect.fail(wait.answer))
        }
        const begin = () => {
          running = Effect.runForkWith(Context.add(context, IsPart, true))(operation)
          running.addObserver((exit) => {
            if (isLate) return endLate()
            // A part is not tried again alone: the transaction of the whole has ended.
            const mayTryAgain = !isPart && !isInterrupted
            if (mayTryAgain && wasVictim(exit) && ++victims < maxTries) return begin()
            wait = mayTryAgain ? waitOf(exit) : undefined
            if (wait !== undefined) {
              running = undefined
              connections.leave(ticket!)
              waiting = setTimeout(enterQueue, othersMillis)
              return
            }
            const [outcome, answer] = answerOf(exit)
            end(outcome)
            resume(answer)
          })
        }
        const timer = setTimeout(() => {
          isLate = true
          if (running === undefined) endLate()
          else running.interruptUnsafe()
        }, deadlines[deadline])
        // A part of an operation runs on the connection that the whole operation holds.
        const isPart = Context.get(context, IsPart)
        let ticket: Ticket | undefined
        const enterQueue = () => {
          ticket = connections.enter(Context.get(context, RequestOrg), begin)
          if (ticket.state === "holding") begin()
        }
        if (isPart) begin()
        else enterQueue()
        return Effect.suspend((): Effect.Effect<void> => {
          isInterrupted = true
          if (running !== undefined) return Fiber.interrupt(running)
          end("interrupted")
          return Effect.void
        })
      }),
    )

/** `orUnavailableWithin` with the deadline of requests. */
export const orUnavailable = orUnavailableWithin("request")

/**
 * Waits for an operation that answers several requests together. Applies the deadline of requests, and counts this
 * request as one that waits. Wrap the operation itself in `orUnavailable`, which logs when it is too slow.
 *
 * @param wait calls its argument with the answer; returns a function that withdraws a request that has not started
 */
export const answerOrUnavailable = <A, E>(
  wait: (done: (answer: Effect.Effect<A, E>) => void) => () => void,
): Effect.Effect<A, E | Unavailable> =>
  Effect.contextWith((context) =>
    Effect.callback<A, E | Unavailable>((resume) => {
      const orgId = waiterOf(context)
      const { waiting } = Context.get(context, Admission)
      if (!enters(waiting, orgId)) return resume(Effect.fail(busy))
      const end = () => {
        clearTimeout(timer)
        leaves(waiting, orgId)
      }
      const timer = setTimeout(() => {
        withdraw()
        end()
        resume(Effect.fail(tooSlow("request")))
      }, deadlines.request)
      const withdraw = wait((answer) => {
        end()
        resume(answer)
      })
      return Effect.sync(() => {
        withdraw()
        end()
      })
    }),
  )
