type End = () => unknown

/** What is under way, newest last: ended when its scope is, or when the whole bench is told to stop. */
const ends: Array<End> = []
let stopping = false

/** Something that ends what was started. */
export interface Scope {
  /** Runs `end` when the scope closes, after everything that was deferred later. */
  readonly defer: (end: End) => void
}

/** Runs `body`, and then, however it ends, all that it deferred, newest first. */
export const scoped = async <A>(body: (scope: Scope) => Promise<A>): Promise<A> => {
  const mine: Array<End> = []
  try {
    return await body({
      defer: (end) => {
        if (stopping) {
          void end()
          throw new Error("The bench is told to stop")
        }
        mine.push(end)
        ends.push(end)
      },
    })
  } finally {
    for (const end of mine.toReversed()) {
      // One that was ended by a signal already is not ended again.
      const at = ends.lastIndexOf(end)
      if (at !== -1) {
        ends.splice(at, 1)
        await end()
      }
    }
  }
}

/** Ends everything that is under way, newest first, for a signal or a time limit: nothing more can be started. */
export const endAll = async (): Promise<void> => {
  stopping = true
  for (let end = ends.pop(); end !== undefined; end = ends.pop()) await Promise.resolve(end()).catch(() => {})
}
