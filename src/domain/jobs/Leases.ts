import { Clock, DateTime, Effect } from "effect"
import type { Conflict, NotFound, Unavailable } from "../Errors.ts"
import { inTurns, type TurnBatch } from "../orgs/Turns.ts"

/** What one batch of expired leases looks at. */
export interface LeaseBatch extends TurnBatch {
  readonly now: DateTime.Utc
  /** A job that was claimed as often is not queued again. */
  readonly maxAttempts: number
}

/** A job whose last lease ran out. */
export interface EndedJob {
  readonly orgId: string
  readonly jobId: string
}

/** What one batch of expired leases did. */
export interface ExpiredLeases {
  /** How many jobs were queued again. */
  readonly queued: number
  /** The jobs that had their last attempt, still running, to be failed. */
  readonly ended: ReadonlyArray<EndedJob>
  readonly next: string | null
}

/** After how many leases that ran out a job fails. */
const maxAttempts = 3
/** How many leases one statement looks at. */
const batchSize = 1_000
/** How many jobs are failed at the same time. */
const concurrency = 4
/** How long jobs of one batch are failed, in milliseconds; those that are left are in the next batch again. */
const maxFailingMillis = 500

/** The same jobs, the first of each org before the second of any. */
const orgsInTurn = (jobs: ReadonlyArray<EndedJob>): ReadonlyArray<EndedJob> =>
  [...Map.groupBy(jobs, ({ orgId }) => orgId).values()]
    .flatMap((ofOrg) => ofOrg.map((job, rank) => ({ job, rank })))
    .toSorted((a, b) => a.rank - b.rank)
    .map(({ job }) => job)

/**
 * A sweep that queues jobs again whose lease ran out, and fails those that had their last attempt.
 *
 * @param expire one batch of a repository
 * @param fail fails one job, unless it was finished or extended in between
 */
export const expiry = (
  expire: (batch: LeaseBatch) => Effect.Effect<ExpiredLeases, Unavailable>,
  fail: (job: EndedJob) => Effect.Effect<void, NotFound | Conflict | Unavailable>,
): Effect.Effect<void, Unavailable> => {
  const failOne = (job: EndedJob) =>
    fail(job).pipe(
      Effect.catchTags({ NotFound: () => Effect.void, Conflict: () => Effect.void }),
      Effect.as(1),
      // One that cannot be failed holds up no other.
      Effect.catchTag("Unavailable", ({ error }) =>
        Effect.as(Effect.logWarning(`Jobs whose last lease ran out are not failed yet: ${error}`), 0),
      ),
      Effect.catchDefect((fault) =>
        Effect.as(Effect.logError("A job whose last lease ran out is not failed", fault), 0),
      ),
    )
  const failAll = Effect.fnUntraced(function* (jobs: ReadonlyArray<EndedJob>) {
    const until = (yield* Clock.currentTimeMillis) + maxFailingMillis
    const inTime = Effect.map(Clock.currentTimeMillis, (now) => now < until)
    const failed = yield* Effect.forEach(
      orgsInTurn(jobs),
      (job) => Effect.flatMap(inTime, (is) => (is ? failOne(job) : Effect.succeed(0))),
      { concurrency },
    )
    return failed.reduce((sum, one) => sum + one, 0)
  })
  return inTurns(
    batchSize,
    Effect.fnUntraced(function* (batch) {
      const { ended, next, queued } = yield* expire({ ...batch, now: yield* DateTime.now, maxAttempts })
      return { moved: queued + (yield* failAll(ended)), next }
    }),
  )
}
