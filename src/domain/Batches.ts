import { Effect, Exit } from "effect"

/** How many batches are under way at once: one is answered while the next is asked. */
const maxUnderWay = 2
/** How many keys one batch asks for at most. */
const maxSize = 256

/** What a look-up comes to: `undefined` when there is nothing under the key. */
export type Found<A, E> = Exit.Exit<A | undefined, E>

type Done<A, E> = (found: Found<A, E>) => void

/**
 * Look-ups by key, gathered: those of one turn of the event loop are one question to the database, and a key that is
 * asked for several times is in it once. A look-up never joins a question that was sent before it began, so what it
 * finds is no older than itself.
 *
 * @param ask finds the values of the keys, those that there are
 */
export const make = <A, E>(ask: (keys: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, A>, E>) =>
  Effect.map(Effect.context<never>(), (context) => {
    const run = Effect.runForkWith(context)
    type Waiting = Map<string, Array<Done<A, E>>>
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
      return Effect.flatMap(Effect.exit(ask([...batch.keys()])), (exit) => {
        for (const [key, all] of batch) {
          const found = Exit.map(exit, (values) => values.get(key))
          for (const done of all) done(found)
        }
        return drain
      })
    })

    /** Finds one value; `done` is called with it later, never at once. */
    return (key: string, done: Done<A, E>) => {
      const all = waiting.get(key)
      if (all !== undefined) return void all.push(done)
      waiting.set(key, [done])
      if (waiting.size > 1 || underWay === maxUnderWay) return
      underWay++
      // After a yield: the requests that have come in the same turn are asked with it.
      run(Effect.andThen(Effect.yieldNow, drain))
    }
  })
