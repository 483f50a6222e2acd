import { Cause, Effect, Exit, Option } from "effect"
import { LRUCache } from "lru-cache"
import { RequestOrg } from "../../domain/Principal.ts"
import type { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import { answerOrUnavailable, orgMoves } from "./orUnavailable.ts"

/** Limit of concurrent statements: one is answered while the next is sent. */
const maxConcurrent = 2

/** The result of a question: `undefined` if it has no answer. */
type Found<A, E> = Exit.Exit<A | undefined, E>

/** One caller's question. */
interface Asked<K, A, E> {
  readonly question: K
  readonly done: (found: Found<A, E>) => void
}

/** Calls each callback; logs one line for a batch, however many of them threw. */
const answer = <K, A, E>(batch: ReadonlyArray<Asked<K, A, E>>, exit: Exit.Exit<ReadonlyMap<K, A>, E>) => {
  const faults: Array<unknown> = []
  for (const { done, question } of batch) {
    try {
      done(Exit.map(exit, (answers) => answers.get(question)))
    } catch (fault) {
      faults.push(fault)
    }
  }
  return faults.length === 0
    ? Effect.void
    : Effect.logError(`Callbacks of a batch threw: ${faults.length}`, Cause.die(faults[0]))
}

/**
 * Combines questions to the database into batches. The questions of one turn of the event loop are one statement,
 * without duplicates. A question never joins a statement that was sent before, so its answer is not older than the
 * question. While two statements run, questions wait for the next one: any number at once would take all connections
 * and exceed the margin of an org's limit. Not by RequestResolver, whose sets are used again and again: what was in
 * them grows old with them, and garbage collection takes 4 µs more of a validation.
 *
 * @param ask finds the answers; a question without an answer is absent from the map
 * @param maxSize the maximum number of questions in a statement
 * @param maxStatements the maximum number of statements at once
 */
export const make = <K, A, E>(
  ask: (questions: ReadonlyArray<K>) => Effect.Effect<ReadonlyMap<K, A>, E>,
  maxSize: number,
  maxStatements = maxConcurrent,
) =>
  Effect.map(Effect.context<never>(), (context) => {
    const run = Effect.runForkWith(context)
    let waiting = new Set<Asked<K, A, E>>()
    let statements = 0
    let isStarting = false

    const take = () => {
      const all = [...waiting]
      waiting = new Set(all.slice(maxSize))
      return all.slice(0, maxSize)
    }
    /** Asks what waits, statement by statement, until nothing does. */
    const drain: Effect.Effect<void> = Effect.suspend(() => {
      const batch = take()
      if (batch.length === 0) return Effect.sync(() => void statements--)
      start()
      // Suspended, so that an exception of `ask` reaches the questions.
      return Effect.suspend(() => ask([...new Set(batch.map(({ question }) => question))])).pipe(
        Effect.exit,
        Effect.flatMap((exit) => answer(batch, exit)),
        Effect.andThen(drain),
      )
    })
    const begin = Effect.suspend(() => {
      isStarting = false
      return drain
    })
    const start = () => {
      if (isStarting || waiting.size === 0 || statements === maxStatements) return
      isStarting = true
      statements++
      // After the other requests of this turn of the event loop.
      run(Effect.andThen(Effect.yieldNow, begin))
    }

    /**
     * Asks one question and later calls `done` with the result. Returns a function that withdraws an unsent question.
     */
    return (question: K, done: (found: Found<A, E>) => void) => {
      let isWithdrawn = false
      const asked = { question, done: (found: Found<A, E>) => void (isWithdrawn || done(found)) }
      waiting.add(asked)
      start()
      return () => {
        isWithdrawn = true
        waiting.delete(asked)
      }
    }
  })

/** Limit of the orgs whose batches are in memory. */
const maxOrgs = 1_000

/**
 * Batches for each org, so that a statement that waits for the rows of one org delays no other org.
 *
 * @param ask finds the answers to questions of one org
 * @param maxSize the maximum number of questions in a statement
 * @param maxStatements the maximum number of statements of an org at once
 */
export const makeByOrg = <K, A, E>(
  ask: (orgId: string, questions: ReadonlyArray<K>) => Effect.Effect<ReadonlyMap<K, A>, E>,
  maxSize: number,
  maxStatements?: number,
) =>
  Effect.map(Effect.context<never>(), (context) => {
    const askOf = (orgId: string) => (questions: ReadonlyArray<K>) =>
      Effect.provideService(ask(orgId, questions), RequestOrg, orgId)
    const makeOne = (orgId: string) => make(askOf(orgId), maxSize, maxStatements)
    // A batch that is removed while it runs ends as usual; its org starts with a new one.
    const orgs = new LRUCache<string, Effect.Success<ReturnType<typeof makeOne>>>({ max: maxOrgs })

    return (orgId: string) => {
      const known = orgs.get(orgId)
      if (known !== undefined) return known
      const made = Effect.runSyncWith(context)(makeOne(orgId))
      orgs.set(orgId, made)
      return made
    }
  })

/** Runs several changes in one statement, and returns the result of each. */
export type RunTogether<Wanted, A> = (all: ReadonlyArray<Wanted>) => Effect.Effect<ReadonlyMap<Wanted, A>, Unavailable>

/** The exit of a change; `undefined` for a change that the statement did not make. */
type Outcome<A> = Exit.Exit<A | undefined, Unavailable>

/**
 * Runs changes together. When the statement dies, or one of their orgs moves, each runs again alone, so that no change
 * fails because of another.
 */
export const orAlone =
  <Wanted, A>(run: RunTogether<Wanted, A>) =>
  (all: ReadonlyArray<Wanted>): Effect.Effect<ReadonlyMap<Wanted, Outcome<A>>> =>
    Effect.flatMap(Effect.exit(run(all)), (made) => {
      const outcomes = (exit: typeof made, some: ReadonlyArray<Wanted>) =>
        some.map((wanted): readonly [Wanted, Outcome<A>] => [wanted, Exit.map(exit, (found) => found.get(wanted))])
      const isOfOne = Exit.hasDies(made) || Option.getOrUndefined(Exit.findErrorOption(made)) === orgMoves
      if (all.length === 1 || !isOfOne) return Effect.succeed(new Map(outcomes(made, all)))
      return Effect.map(
        Effect.forEach(all, (wanted) => Effect.map(Effect.exit(run([wanted])), (exit) => outcomes(exit, [wanted]))),
        (each) => new Map(each.flat()),
      )
    })

/**
 * Makes a change in the next batch; in a transaction, alone and in that transaction. Returns `undefined` when the
 * statement did not make it.
 *
 * @param batch adds the change to a batch of `orAlone`
 */
export const inBatch = <Wanted, A>(
  sql: SqlClient.SqlClient,
  run: RunTogether<Wanted, A>,
  batch: (wanted: Wanted, done: (found: Found<Outcome<A>, never>) => void) => () => void,
  wanted: Wanted,
) =>
  Effect.flatMap(Effect.serviceOption(sql.transactionService), (transaction) => {
    if (Option.isSome(transaction)) return Effect.map(run([wanted]), (found) => found.get(wanted))
    return answerOrUnavailable<A | undefined, Unavailable>((done) =>
      batch(wanted, (found) => done(Effect.flatMap(found, (outcome) => outcome!))),
    )
  })
