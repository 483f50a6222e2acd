import { Cause, Effect, Exit, Request, RequestResolver, Semaphore } from "effect"
import { LRUCache } from "lru-cache"
import { RequestOrg } from "../../domain/Principal.ts"

/** Limit of concurrent statements: one is answered while the next is sent. */
const maxStatements = 2

/** The result of a question: `undefined` if it has no answer. */
export type Found<A, E> = Exit.Exit<A | undefined, E>

interface Question<K, A, E> extends Request.Request<A | undefined, E> {
  readonly question: K
}

/** Logs one line for a batch, however many of its callbacks threw. */
const logFaults = (faults: ReadonlyArray<unknown>) =>
  faults.length === 0
    ? Effect.void
    : Effect.logError(`Callbacks of a batch threw: ${faults.length}`, Cause.die(faults[0]))

/**
 * Combines questions to the database into batches. The questions of one turn of the event loop are one statement,
 * without duplicates. A question never joins a statement that was sent before, so its answer is not older than the
 * question. While two statements run, questions wait for the next one: RequestResolver alone runs any number at once,
 * which would take all connections and exceed the margin of an org's limit.
 *
 * @param ask finds the answers; a question without an answer is absent from the map
 * @param maxSize the maximum number of questions in a statement
 */
export const make = <K, A, E>(
  ask: (questions: ReadonlyArray<K>) => Effect.Effect<ReadonlyMap<K, A>, E>,
  maxSize: number,
) =>
  Effect.gen(function* () {
    const context = yield* Effect.context<never>()
    const statements = yield* Semaphore.make(maxStatements)
    const questionOf = Request.of<Question<K, A, E>>()
    const resolver = RequestResolver.make<Question<K, A, E>>((entries) =>
      // Suspended, so that an exception of `ask` reaches the questions.
      Effect.suspend(() => ask([...new Set(entries.map(({ request }) => request.question))])).pipe(
        statements.withPermit,
        Effect.exit,
        Effect.flatMap((exit) => {
          const faults: Array<unknown> = []
          for (const entry of entries) {
            try {
              entry.completeUnsafe(Exit.map(exit, (answers) => answers.get(entry.request.question)))
            } catch (fault) {
              faults.push(fault)
            }
          }
          return logFaults(faults)
        }),
      ),
    ).pipe(
      RequestResolver.batchN(maxSize),
      RequestResolver.setDelayEffect(Effect.andThen(Effect.yieldNow, statements.withPermit(Effect.void))),
    )

    /**
     * Asks one question and later calls `done` with the result. Returns a function that withdraws an unsent question.
     */
    return (question: K, done: (found: Found<A, E>) => void) => {
      let isWithdrawn = false
      const onExit = (found: Found<A, E>) => {
        if (!isWithdrawn) done(found)
      }
      const remove = Effect.requestUnsafe(questionOf({ question }), { resolver, onExit, context })
      return () => {
        isWithdrawn = true
        remove()
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
 */
export const makeByOrg = <K, A, E>(
  ask: (orgId: string, questions: ReadonlyArray<K>) => Effect.Effect<ReadonlyMap<K, A>, E>,
  maxSize: number,
) =>
  Effect.map(Effect.context<never>(), (context) => {
    const makeOne = (orgId: string) =>
      make((questions: ReadonlyArray<K>) => Effect.provideService(ask(orgId, questions), RequestOrg, orgId), maxSize)
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
