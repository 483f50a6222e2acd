import { Cause, Effect, Exit } from "effect"

/** How many batches are under way at once: one is answered while the next is asked. */
const maxUnderWay = 2

/** What a question comes to: `undefined` when there is no answer to it. */
export type Found<A, E> = Exit.Exit<A | undefined, E>

type Done<A, E> = (found: Found<A, E>) => void

/** Calls every callback; returns the faults of those that threw, so that one costs the others nothing. */
const callAll = <A, E>(callbacks: ReadonlyArray<Done<A, E>>, found: Found<A, E>): ReadonlyArray<unknown> => {
  const faults: Array<unknown> = []
  for (const done of callbacks) {
    try {
      done(found)
    } catch (fault) {
      faults.push(fault)
    }
  }
  return faults
}

/** One line for a batch, however many of its callbacks threw. */
const logFaults = (faults: ReadonlyArray<unknown>) =>
  faults.length === 0
    ? Effect.void
    : Effect.logError(`Callbacks of a batch threw: ${faults.length}`, Cause.die(faults[0]))

/**
 * Questions to the database, gathered: those of one turn of the event loop are one statement, and one that is asked
 * several times is in it once. A question never joins a statement that was sent before it was asked, so its answer is no
 * older than itself.
 *
 * @param ask finds the answers, those that there are
 * @param maxSize how many questions are one statement at most
 */
export const make = <K, A, E>(
  ask: (questions: ReadonlyArray<K>) => Effect.Effect<ReadonlyMap<K, A>, E>,
  maxSize: number,
) =>
  Effect.map(Effect.context<never>(), (context) => {
    const run = Effect.runForkWith(context)
    type Waiting = Map<K, Array<Done<A, E>>>
    let waiting: Waiting = new Map()
    let underWay = 0

    const take = (): Waiting => {
      const all = waiting
      // A new map, not this one emptied: V8 ties the tables that a map outgrows together, and a chain of them that has
      // grown old keeps whatever was ever in it (the requests, that is) from being collected young.
      waiting = new Map()
      if (all.size <= maxSize) return all
      const entries = [...all]
      waiting = new Map(entries.slice(maxSize))
      return new Map(entries.slice(0, maxSize))
    }

    const drain: Effect.Effect<void> = Effect.suspend(() => {
      const batch = take()
      if (batch.size === 0) return Effect.sync(() => void underWay--)
      // Suspended: what `ask` throws is an answer as well, and the slot is kept.
      return Effect.flatMap(Effect.exit(Effect.suspend(() => ask([...batch.keys()]))), (exit) => {
        const faults: Array<unknown> = []
        for (const [question, all] of batch) {
          const found = Exit.map(exit, (answers) => answers.get(question))
          faults.push(...callAll(all, found))
        }
        return Effect.andThen(logFaults(faults), drain)
      })
    })

    return {
      /** Asks one question; `done` is called with the answer later, never at once. */
      add: (question: K, done: Done<A, E>) => {
        const all = waiting.get(question)
        if (all !== undefined) return void all.push(done)
        waiting.set(question, [done])
        if (waiting.size > 1 || underWay === maxUnderWay) return
        underWay++
        // After a yield: the requests that have come in the same turn are asked with it.
        run(Effect.andThen(Effect.yieldNow, drain))
      },

      /** Takes a question back, for all who asked it, unless it has been sent. */
      withdraw: (question: K) => void waiting.delete(question),
    }
  })
