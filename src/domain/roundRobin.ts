import { DateTime, Effect } from "effect"

/** The request of one batch of the due rows of all orgs. */
export interface RoundRobinBatch {
  /** The maximum of rows. */
  readonly limit: number
  /** `null` for the longest due rows of any org. Else the batch takes orgs in turn: those with an id after this one. */
  readonly after: string | null
  /** Rows are due whose time is not later. */
  readonly now: DateTime.Utc
}

/** The result of one batch. */
export interface RoundRobinResult {
  /** The finished rows. */
  readonly moved: number
  /** The `after` of the next batch, which is `""` for the first org; `null` when no due row is left. */
  readonly next: string | null
}

/** Runs batches with a limit that halves after a failure and doubles after a success, up to `maxLimit`. */
export const adaptiveLimit = (maxLimit: number) => {
  let limit = maxLimit
  return <A, E, R>(batch: (limit: number) => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => batch(limit)).pipe(
      Effect.tap(() => Effect.sync(() => (limit = Math.min(maxLimit, limit * 2)))),
      Effect.tapError(() => Effect.sync(() => (limit = Math.max(1, limit >> 1)))),
    )
}

/**
 * Processes the due rows of all orgs in batches. Usually one batch of the longest due rows is enough. When that batch
 * is full, the run also takes every org in turn, so that other orgs wait only a few batches for an org with many rows.
 * A batch that fails ends the run; the next run continues with the same org.
 *
 * @param maxLimit the maximum of rows of a batch
 */
export const roundRobin = <E, R>(
  maxLimit: number,
  take: (batch: RoundRobinBatch) => Effect.Effect<RoundRobinResult, E, R>,
) => {
  const limited = adaptiveLimit(maxLimit)
  let turn = ""
  const batch = (after: string | null) =>
    limited((limit) => Effect.flatMap(DateTime.now, (now) => take({ limit, after, now })))

  return Effect.gen(function* () {
    while (true) {
      const oldest = yield* batch(null)
      if (oldest.next === null) return
      let moved = oldest.moved
      do {
        const taken: RoundRobinResult = yield* batch(turn)
        moved += taken.moved
        turn = taken.next ?? ""
      } while (turn !== "")
      // Rows that cannot be finished now wait for the next run.
      if (moved === 0) return
    }
  })
}

/** Returns the first item of each org, then the second of each, so that no item is behind hundreds of another org. */
export const alternateOrgs = <A>(items: ReadonlyArray<A>, orgOf: (item: A) => string): ReadonlyArray<A> =>
  [...Map.groupBy(items, orgOf).values()]
    .flatMap((ofOrg) => ofOrg.map((item, turn) => ({ item, turn })))
    .toSorted((a, b) => a.turn - b.turn)
    .map(({ item }) => item)
