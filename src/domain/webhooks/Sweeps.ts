import { Context, DateTime, Duration, Effect, Layer, Metric } from "effect"
import { LRUCache } from "lru-cache"
import type { Unavailable } from "../Errors.ts"
import { Wakeups } from "./Wakeups.ts"

/**
 * A change of many rows that is decided, counts for whoever reads or claims, and is made to the rows in batches:
 * `cancel` what an endpoint had pending when it was deactivated or deleted, `recover` what an endpoint did not take,
 * `deliver` an event to the rest of many endpoints.
 */
export interface Sweep {
  readonly sweepId: string
  readonly orgId: string
  readonly kind: "cancel" | "recover" | "deliver"
}

/** What a batch of a sweep did. */
export interface Swept {
  /** How many rows it looked at. */
  readonly rows: number
  /** Whether nothing is left of the sweep. */
  readonly isDone: boolean
}

/** Where sweeps are kept. */
export class SweepRepository extends Context.Service<
  SweepRepository,
  {
    /** The next sweep of the orgs after this one, and around; `null` when there is none but those that are set aside. */
    readonly next: (afterOrg: string, setAside: ReadonlyArray<string>) => Effect.Effect<Sweep | null, Unavailable>
    /** Makes the next batch of a sweep, all or nothing; `null` when another replica is at it, or it is done. */
    readonly advance: (sweepId: string, now: DateTime.Utc, limit: number) => Effect.Effect<Swept | null, Unavailable>
    /** How many sweeps are open, counted up to the limit. */
    readonly count: (limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Sweeps/SweepRepository") {}

/** Rows of one batch: few enough to be done in some hundred milliseconds. */
const batchRows = 2_000
/** The smallest batch: a sweep whose smallest batch fails is set aside. */
const minBatchRows = 50
/** How long a sweep is set aside that cannot be advanced, and how many are at most. */
const setAsideFor = Duration.minutes(1)
const maxSetAside = 100
/** The longest pause between two batches; as long as the batch took, so that half of the time is the others'. */
const maxPause = Duration.seconds(1)

const kinds: ReadonlyArray<Sweep["kind"]> = ["cancel", "recover", "deliver"]
const sweptRows = Metric.counter("gatehouse_swept_rows_total", {
  description: "Rows that background sweeps have looked at, by what the sweep does.",
  incremental: true,
})

/** Makes the changes of many rows that were decided, in the background, orgs in turns. */
export class Sweeps extends Context.Service<
  Sweeps,
  {
    /** Advances open sweeps until none is left; a sweep that fails is set aside and stops no other. */
    readonly run: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/Sweeps") {
  static readonly layer = Layer.effect(
    Sweeps,
    Effect.gen(function* () {
      const repository = yield* SweepRepository
      const wakeups = yield* Wakeups
      // There from the start, so that a rate can be taken of the first ones.
      yield* Effect.forEach(kinds, (kind) => Metric.update(Metric.withAttributes(sweptRows, { kind }), 0))
      /** Sweeps that failed: how large their next batch is, and until when they are set aside. */
      const failed = new LRUCache<string, { readonly limit: number; readonly until: DateTime.Utc }>({
        max: maxSetAside,
      })

      const setAside = (now: DateTime.Utc) =>
        [...failed].filter(([, { until }]) => DateTime.isGreaterThan(until, now)).map(([id]) => id)

      const fail = (sweep: Sweep, limit: number, why: string) =>
        Effect.gen(function* () {
          const now = yield* DateTime.now
          const isSmallest = limit <= minBatchRows
          failed.set(sweep.sweepId, {
            limit: Math.max(minBatchRows, Math.floor(limit / 2)),
            until: isSmallest ? DateTime.addDuration(now, setAsideFor) : now,
          })
          if (isSmallest) {
            yield* Effect.logWarning(`A sweep does not advance and is set aside for a minute: ${why}`).pipe(
              Effect.annotateLogs({ orgId: sweep.orgId, sweepId: sweep.sweepId, kind: sweep.kind }),
            )
          }
        })

      /** Makes one batch of a sweep. */
      const advance = Effect.fnUntraced(function* (sweep: Sweep) {
        const limit = failed.get(sweep.sweepId)?.limit ?? batchRows
        const swept = yield* repository.advance(sweep.sweepId, yield* DateTime.now, limit)
        if (swept === null || swept.isDone) failed.delete(sweep.sweepId)
        if (swept === null) return
        yield* Metric.update(Metric.withAttributes(sweptRows, { kind: sweep.kind }), swept.rows)
        if (sweep.kind !== "cancel") yield* wakeups.deliveries
      })

      const run = Effect.gen(function* () {
        let org = ""
        while (true) {
          const sweep = yield* repository.next(org, setAside(yield* DateTime.now))
          if (sweep === null) return
          const isNext = org === sweep.orgId
          org = sweep.orgId
          const limit = failed.get(sweep.sweepId)?.limit ?? batchRows
          const [took] = yield* Effect.timed(
            advance(sweep).pipe(
              Effect.catch((error) => fail(sweep, limit, error.error)),
              Effect.catchDefect((fault) =>
                Effect.andThen(
                  Effect.logError("A batch of a sweep failed", fault),
                  fail(sweep, minBatchRows, "it failed"),
                ),
              ),
            ),
          )
          // An event that comes alone does not wait; one after the other leave half of the time to others.
          if (isNext || sweep.kind !== "deliver") yield* Effect.sleep(Duration.min(took, maxPause))
        }
      })

      return Sweeps.of({ run })
    }),
  )
}
