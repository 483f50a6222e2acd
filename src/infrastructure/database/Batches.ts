import { Cause, Effect, Exit, Request, RequestResolver, Semaphore } from "effect"

/** How many statements run at once: one is answered while the next is sent. */
const maxStatements = 2

/** What a question comes to: `undefined` when there is no answer to it. */
export type Found<A, E> = Exit.Exit<A | undefined, E>

interface Question<K, A, E> extends Request.Request<A | undefined, E> {
  readonly question: K
}

/** One line for a batch, however many of its callbacks threw. */
const logFaults = (faults: ReadonlyArray<unknown>) =>
  faults.length === 0
    ? Effect.void
    : Effect.logError(`Callbacks of a batch threw: ${faults.length}`, Cause.die(faults[0]))

/**
 * Questions to the database, gathered: those of one turn of the event loop are one statement, and one that is asked
 * several times is in it once. A question never joins a statement that was sent before it was asked, so its answer is no
 * older than itself. While two statements run, questions gather for the next: RequestResolver by itself runs any number
 * at once, which neither shares connections nor keeps the margin of an org's limit.
 *
 * @param ask finds the answers, those that there are
 * @param maxSize how many questions are one statement at most
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
      // Suspended: what `ask` throws is an answer as well.
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

    /** Asks one question; `done` is called with the answer later. Returns how to withdraw it, unless it has been sent. */
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
