import { Context, DateTime, Duration, Effect, Layer, Metric, Struct } from "effect"
import { LRUCache } from "lru-cache"
import type { Unavailable } from "../Errors.ts"
import { Wakeups } from "../Wakeups.ts"

/**
 * A change of many rows, made in batches. `cancel`: cancel the pending deliveries of an endpoint that was deactivated
 * or deleted, which counts at once for every read and claim. `resend`: resend the unsuccessful deliveries of a filter.
 * `deliver`: create the deliveries of an event to the rest of many endpoints. `emit`: create the deliveries of events
 * of the service's own. `erase`: remove the rows of a deleted org or project. `move`: move an org to another database.
 * `retryJobs`, `cancelJobs`: retry failed jobs of a filter, or cancel unfinished ones.
 */
export interface Sweep {
  readonly sweepId: string
  readonly orgId: string
  readonly kind: "cancel" | "resend" | "deliver" | "emit" | "erase" | "move" | "retryJobs" | "cancelJobs"
}

/** The result of one batch. */
interface Swept {
  /** The rows that it read. */
  readonly rows: number
  /** Whether the sweep is finished. */
  readonly isDone: boolean
  /** Whether it has nothing to do for now, and continues after a minute. */
  readonly isWaiting?: boolean
}

/**
 * How long an erasure looks for rows after its org or project was deleted. A request that began before the deletion may
 * commit a row after it; requests have deadlines far below this.
 */
const settleTime = Duration.minutes(1)

/** Whether an erasure is finished after a pass: the pass found nothing, and no request from before can be running. */
export const isErased = (hasFound: boolean, deletedAt: DateTime.Utc, now: DateTime.Utc): boolean =>
  !hasFound && DateTime.isGreaterThanOrEqualTo(now, DateTime.addDuration(deletedAt, settleTime))

/** The open sweeps of all orgs. */
export class SweepRepository extends Context.Service<
  SweepRepository,
  {
    /**
     * The next sweep, of the first org after `afterOrg`; after the last org comes the first again. The sweeps of an org
     * take turns, batch by batch; those of `emit` keep their order. Skips the sweeps in `setAside`. `null` when there
     * is no other.
     */
    readonly next: (afterOrg: string, setAside: ReadonlyArray<string>) => Effect.Effect<Sweep | null, Unavailable>
    /** Runs the next batch in one transaction. `null` when another replica runs the sweep, or it is finished. */
    readonly advance: (sweepId: string, now: DateTime.Utc, limit: number) => Effect.Effect<Swept | null, Unavailable>
    /** The number of open sweeps, counted up to the limit. */
    readonly count: (limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Sweeps/SweepRepository") {}

/** Rows of one batch, which takes a few hundred milliseconds. After a failure a batch of the same sweep has fewer. */
export const maxBatchRows = 2_000
/** Rows of the smallest batch. A sweep is set aside when its smallest batch fails. */
const minBatchRows = 50
/** How long a failing sweep is set aside, or one that waits. */
const setAsideTime = Duration.minutes(1)
/** How long a sweep of retries waits for room. */
const roomTime = Duration.seconds(2)
/** The failed sweeps that this process remembers. */
const maxFailed = 100
/**
 * The limit of the pause after a batch. It is as long as the batch took, which leaves half of the time to other work.
 */
const maxBatchPause = Duration.seconds(1)

/** The sweeps that make deliveries due. */
const makesDue: Record<Sweep["kind"], boolean> = {
  cancel: false,
  resend: true,
  deliver: true,
  emit: true,
  erase: false,
  move: true,
  retryJobs: false,
  cancelJobs: false,
}
const kinds = Struct.keys(makesDue)
const sweptRows = Metric.counter("gatehouse_swept_rows_total", {
  description: "Rows that background sweeps have looked at, by what the sweep does.",
  incremental: true,
})

/** Remembers failed sweeps: the limit of their next batch, and until when they are set aside. */
const makeFailures = () => {
  const failed = new LRUCache<string, { readonly limit: number; readonly until: DateTime.Utc }>({ max: maxFailed })

  const record = Effect.fnUntraced(function* ({ kind, orgId, sweepId }: Sweep, limit: number, why: string) {
    const now = yield* DateTime.now
    const isSmallest = limit <= minBatchRows
    failed.set(sweepId, {
      limit: Math.max(minBatchRows, Math.floor(limit / 2)),
      until: isSmallest ? DateTime.addDuration(now, setAsideTime) : now,
    })
    if (!isSmallest) return
    yield* Effect.logWarning(`A sweep does not advance and is set aside for a minute: ${why}`).pipe(
      Effect.annotateLogs({ orgId, sweepId, kind }),
    )
  })

  /** Sets a sweep aside that has nothing to do for now. */
  const wait = Effect.fnUntraced(function* ({ kind, sweepId }: Sweep) {
    const time = kind === "retryJobs" ? roomTime : setAsideTime
    failed.set(sweepId, { limit: maxBatchRows, until: DateTime.addDuration(yield* DateTime.now, time) })
  })

  return {
    record,
    wait,
    forget: ({ sweepId }: Sweep) => void failed.delete(sweepId),
    limitOf: ({ sweepId }: Sweep) => failed.get(sweepId)?.limit ?? maxBatchRows,
    setAside: (now: DateTime.Utc) =>
      [...failed].filter(([, { until }]) => DateTime.isGreaterThan(until, now)).map(([id]) => id),
  }
}

/** Runs sweeps in the background; orgs take turns, and so do the sweeps of an org. */
export class Sweeps extends Context.Service<Sweeps>()("gatehouse/domain/Sweeps", {
  make: Effect.gen(function* () {
    const repository = yield* SweepRepository
    const wakeups = yield* Wakeups
    // The metrics begin at 0, so that the first rows already have a rate.
    yield* Effect.forEach(kinds, (kind) => Metric.update(Metric.withAttributes(sweptRows, { kind }), 0))
    const failures = makeFailures()

    /** Runs one batch of a sweep. */
    const advance = Effect.fnUntraced(function* (sweep: Sweep, limit: number) {
      const swept = yield* repository.advance(sweep.sweepId, yield* DateTime.now, limit)
      if (swept === null || swept.isDone) failures.forget(sweep)
      if (swept === null) return
      if (swept.isWaiting === true) yield* failures.wait(sweep)
      yield* Metric.update(Metric.withAttributes(sweptRows, { kind: sweep.kind }), swept.rows)
      if (makesDue[sweep.kind]) yield* wakeups.deliveries
      if (sweep.kind === "retryJobs") yield* wakeups.jobs(sweep.orgId)
    })

    return {
      /** Runs the open sweeps until none is left. A sweep that fails is set aside and does not stop the others. */
      run: Effect.gen(function* () {
        let lastOrg = ""
        while (true) {
          const sweep = yield* repository.next(lastOrg, failures.setAside(yield* DateTime.now))
          if (sweep === null) return
          const isSameOrg = lastOrg === sweep.orgId
          lastOrg = sweep.orgId
          const limit = failures.limitOf(sweep)
          const [took] = yield* Effect.timed(
            advance(sweep, limit).pipe(
              Effect.catch((error) => failures.record(sweep, limit, error.error)),
              Effect.catchDefect((fault) =>
                Effect.andThen(
                  Effect.logError("A batch of a sweep failed", fault),
                  failures.record(sweep, minBatchRows, "it failed"),
                ),
              ),
            ),
          )
          // Between events of different orgs there is no pause.
          const isOfEvents = sweep.kind === "deliver" || sweep.kind === "emit"
          if (isSameOrg || !isOfEvents) yield* Effect.sleep(Duration.min(took, maxBatchPause))
        }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
