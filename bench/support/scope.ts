type End = () => unknown

/**
 * The ends of everything that runs, newest last. Each is called when its scope closes, or when the whole bench is
 * stopped.
 */
const ends: Array<End> = []
let stopping = false

/** A scope that stops what was started in it. */
export interface Scope {
  /** Runs `end` when the scope closes, after everything that was deferred later. */
  readonly defer: (end: End) => void
}

/** Runs `body`, and then everything that it deferred, newest first, however it ends. */
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
      // A signal may have called this end already.
      const at = ends.lastIndexOf(end)
      if (at !== -1) {
        ends.splice(at, 1)
        await end()
      }
    }
  }
}

/** Stops everything that runs, newest first, after a signal or a time limit. Nothing more can be started. */
export const endAll = async (): Promise<void> => {
  stopping = true
  for (let end = ends.pop(); end !== undefined; end = ends.pop()) await Promise.resolve(end()).catch(() => {})
}
