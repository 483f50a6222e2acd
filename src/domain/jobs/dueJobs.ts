import { Array as Arr, Clock, Effect, Fiber } from "effect"
import type { Unavailable } from "../Errors.ts"
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

/** Jobs of an org that are failed together. */
interface OfOrg {
  readonly orgId: string
  readonly jobIds: ReadonlyArray<string>
}

/** The most expired leases that one statement reads. */
const maxLeaseBatch = 1_000
/** Jobs of an org that are failed together: one by one, they can come faster than they go. */
const maxFailedTogether = 100
/** How many times that at the same time. */
const failConcurrency = 4
/** How long a batch fails jobs, in milliseconds. The next batch returns the rest again. */
const maxFailMillis = 500
/** How long a batch waits for the jobs that it began to fail, in milliseconds. */
const maxWaitMillis = 1_000

const together = (jobs: ReadonlyArray<ExhaustedJob>): ReadonlyArray<OfOrg> =>
  [...Map.groupBy(jobs, ({ orgId }) => orgId)].flatMap(([orgId, ofOrg]) =>
    Arr.chunksOf(ofOrg, maxFailedTogether).map((some) => ({ orgId, jobIds: some.map(({ jobId }) => jobId) })),
  )

/**
 * Queues jobs with an expired lease again, and fails those without another attempt.
 *
 * @param expire runs one batch of the repository
 * @param fail fails jobs of an org, but for those that were finished or whose lease was extended in the meantime
 */
export const makeExpiry = (
  expire: (batch: RoundRobinBatch) => Effect.Effect<ExpiredLeases, Unavailable>,
  fail: (orgId: string, jobIds: ReadonlyArray<string>) => Effect.Effect<unknown, Unavailable>,
): Effect.Effect<void, Unavailable> => {
  /** Fails jobs. Returns their number, without those for which it could not. */
  const failTogether = ({ jobIds, orgId }: OfOrg): Effect.Effect<number> =>
    fail(orgId, jobIds).pipe(
      Effect.as(jobIds.length),
      // An error must not stop the other jobs.
      Effect.catchTag("Unavailable", ({ error }) =>
        Effect.as(Effect.logWarning(`Jobs whose last lease expired are not failed yet: ${error}`), 0),
      ),
      Effect.catchDefect((fault) =>
        jobIds.length === 1
          ? Effect.as(Effect.logError("A job whose last lease expired is not failed", fault), 0)
          : Effect.map(
              Effect.forEach(jobIds, (id) => failTogether({ orgId, jobIds: [id] })),
              (failed) => failed.reduce((sum, one) => sum + one),
            ),
      ),
    )
  const inFlight = new Set<OfOrg>()
  // An org whose locks make it slow goes on by itself. Until it ends, no other jobs of it begin.
  const failAll = Effect.fnUntraced(function* (jobs: ReadonlyArray<ExhaustedJob>) {
    const busy = new Set([...inFlight].map(({ orgId }) => orgId))
    const deadline = (yield* Clock.currentTimeMillis) + maxFailMillis
    let failed = 0
    const failInTime = Effect.fnUntraced(function* (some: OfOrg) {
      if ((yield* Clock.currentTimeMillis) >= deadline) return
      inFlight.add(some)
      failed += yield* Effect.ensuring(
        failTogether(some),
        Effect.sync(() => inFlight.delete(some)),
      )
    })
    const failing = yield* Effect.forEach(
      alternateOrgs(
        together(jobs).filter(({ orgId }) => !busy.has(orgId)),
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
