import { Clock, Effect, Fiber } from "effect"
import type { Conflict, NotFound, Unavailable } from "../Errors.ts"
import { alternateOrgs, roundRobin, type RoundRobinBatch, type RoundRobinResult } from "../roundRobin.ts"

/** A job whose last lease expired, or that nobody has claimed in time. */
export interface ExhaustedJob {
  readonly orgId: string
  readonly jobId: string
}

/** The result of one batch of expired leases. */
export interface ExpiredLeases {
  /** The number of jobs that are queued again. */
  readonly queued: number
  /**
   * The jobs to fail, because their last lease expired, or another job has their unique key: they are still `running`;
   * or because they expired.
   */
  readonly exhausted: ReadonlyArray<ExhaustedJob>
  readonly next: string | null
}

/** The most expired leases that one statement reads. */
const maxLeaseBatch = 1_000
/** Jobs that are failed at the same time. */
const failConcurrency = 4
/** How long a batch fails jobs, in milliseconds. The next batch returns the rest again. */
const maxFailMillis = 500
/** How long a batch waits for the jobs that it began to fail, in milliseconds. */
const maxWaitMillis = 1_000

/**
 * Queues jobs with an expired lease again, and fails those without another attempt.
 *
 * @param expire runs one batch of the repository
 * @param fail fails one job, unless it was finished or its lease was extended in the meantime
 */
export const makeExpiry = (
  expire: (batch: RoundRobinBatch) => Effect.Effect<ExpiredLeases, Unavailable>,
  fail: (job: ExhaustedJob) => Effect.Effect<void, NotFound | Conflict | Unavailable>,
): Effect.Effect<void, Unavailable> => {
  /** Fails a job. Returns 1, or 0 when it could not. */
  const failOne = (job: ExhaustedJob) =>
    fail(job).pipe(
      Effect.catchTags({ NotFound: () => Effect.void, Conflict: () => Effect.void }),
      Effect.as(1),
      // An error must not stop the other jobs.
      Effect.catchTag("Unavailable", ({ error }) =>
        Effect.as(Effect.logWarning(`Jobs whose last lease expired are not failed yet: ${error}`), 0),
      ),
      Effect.catchDefect((fault) =>
        Effect.as(Effect.logError("A job whose last lease expired is not failed", fault), 0),
      ),
    )
  const inFlight = new Set<ExhaustedJob>()
  // Those that take longer, because of locks of their org, go on alone; until they end, no others of the org begin.
  const failAll = Effect.fnUntraced(function* (jobs: ReadonlyArray<ExhaustedJob>) {
    const busy = new Set([...inFlight].map(({ orgId }) => orgId))
    const deadline = (yield* Clock.currentTimeMillis) + maxFailMillis
    let failed = 0
    const failInTime = Effect.fnUntraced(function* (job: ExhaustedJob) {
      if ((yield* Clock.currentTimeMillis) >= deadline) return
      inFlight.add(job)
      failed += yield* Effect.ensuring(
        failOne(job),
        Effect.sync(() => inFlight.delete(job)),
      )
    })
    const failing = yield* Effect.forEach(
      alternateOrgs(
        jobs.filter(({ orgId }) => !busy.has(orgId)),
        ({ orgId }) => orgId,
      ),
      failInTime,
      { concurrency: failConcurrency, discard: true },
    ).pipe(Effect.forkChild)
    yield* Effect.timeoutOption(Fiber.join(failing), maxWaitMillis)
    return failed
  })
  return roundRobin(
    maxLeaseBatch,
    Effect.fnUntraced(function* (batch) {
      const { exhausted, next, queued } = yield* expire(batch)
      return { moved: queued + (yield* failAll(exhausted)), next }
    }),
  )
}

/** The result of one batch of delayed jobs, or of due schedules. */
export interface QueuedJobs extends RoundRobinResult {
  /** The orgs that have such a job. */
  readonly orgs: ReadonlyArray<string>
}

/**
 * Queues all jobs whose time has come; orgs take turns.
 *
 * @param maxBatch jobs that one statement queues
 * @param queue runs one batch of the repository
 * @param wake signals that an org has queued jobs
 */
export const makeQueuing = (
  maxBatch: number,
  queue: (batch: RoundRobinBatch) => Effect.Effect<QueuedJobs, Unavailable>,
  wake: (orgId: string) => Effect.Effect<void>,
): Effect.Effect<void, Unavailable> =>
  roundRobin(maxBatch, (batch) =>
    Effect.tap(queue(batch), ({ orgs }) => Effect.forEach(new Set(orgs), wake, { discard: true })),
  )
