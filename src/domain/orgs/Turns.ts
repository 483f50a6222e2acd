import { Effect } from "effect"

/** What one batch looks at, of the rows of all orgs whose time has come. */
export interface TurnBatch {
  /** How many rows at most. */
  readonly limit: number
  /** `null`: the rows that are longest due, of whichever org. Else orgs in turn: those whose id comes after this one. */
  readonly after: string | null
}

/** What one batch did. */
export interface TurnResult {
  /** How many rows are done. */
  readonly moved: number
  /** `null` when there is no more; else what the next batch comes `after`, which is `""` for the first org. */
  readonly next: string | null
}

/** The limit of the next batch: half as large after a batch that failed, twice as large after one that did not. */
export const adaptiveLimit = (maxLimit: number) => {
  let limit = maxLimit
  return <A, E, R>(batch: (limit: number) => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => batch(limit)).pipe(
      Effect.tap(() => Effect.sync(() => (limit = Math.min(maxLimit, limit * 2)))),
      Effect.tapError(() => Effect.sync(() => (limit = Math.max(1, limit >> 1)))),
    )
}

/**
 * Goes through the due rows of all orgs in batches. Most of the time one batch of those that are longest due is all there
 * is. While such a batch is full, each pass also takes every org in turn: however many rows one org has, the others wait for
 * a few batches. A batch that fails ends the run; the next run goes on with the org whose turn it was.
 *
 * @param maxLimit the rows of a batch, at most
 */
export const inTurns = <E, R>(maxLimit: number, take: (batch: TurnBatch) => Effect.Effect<TurnResult, E, R>) => {
  const limited = adaptiveLimit(maxLimit)
  let turn = ""
  const batch = (after: string | null) => limited((limit) => take({ limit, after }))

  return Effect.gen(function* () {
    while (true) {
      const oldest = yield* batch(null)
      if (oldest.next === null) return
      let moved = oldest.moved
      do {
        const taken: TurnResult = yield* batch(turn)
        moved += taken.moved
        turn = taken.next ?? ""
      } while (turn !== "")
      // What cannot be done now is not tried again at once.
      if (moved === 0) return
    }
  })
}
