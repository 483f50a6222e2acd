import { Context, type DateTime, type Effect } from "effect"
import { type Conflict, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { ClaimedJob, Job, JobStatus } from "./Job.ts"
import type { JobEnd, JobOutcome } from "./JobEnd.ts"
import type { JobTemplate } from "./JobTemplates.ts"
import type { ExpiredLeases, LeaseBatch } from "./Leases.ts"
import type { Found, Page } from "../Page.ts"

/** A new job. `callbackSecret` is encrypted for the job's id. */
export interface NewJob extends JobTemplate {
  readonly jobId: string
  readonly orgId: string
  readonly idempotencyKey: string | null
  readonly now: DateTime.Utc
}

export interface JobFilter {
  readonly status?: JobStatus | undefined
  readonly workflow?: string | undefined
}

/** The jobs of orgs. */
export class JobRepository extends Context.Service<
  JobRepository,
  {
    /**
     * Inserts a job, and returns its id. An earlier job of the org with the same `idempotencyKey` is returned instead.
     * Fails when the org has reached its limit of unfinished jobs or of stored bytes.
     */
    readonly insert: (job: NewJob) => Effect.Effect<string, LimitReached | Unavailable>
    /** Claims queued jobs of the org, oldest first, up to `limit` and to the bytes of a page, until `leaseUntil`. */
    readonly claim: (
      orgId: string,
      claim: {
        readonly workflow: string | undefined
        readonly limit: number
        readonly now: DateTime.Utc
        readonly leaseUntil: DateTime.Utc
      },
    ) => Effect.Effect<ReadonlyArray<ClaimedJob>, Unavailable>
    /**
     * Returns claimed jobs to the queue as if they had not been claimed. Skips jobs that were finished or claimed again in
     * the meantime.
     */
    readonly release: (
      orgId: string,
      jobs: ReadonlyArray<Pick<ClaimedJob, "job_id" | "attempt">>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /** Changes the end of a job's lease. Fails with a `Conflict` when the job is not running. */
    readonly extendLease: (
      orgId: string,
      jobId: string,
      leaseUntil: DateTime.Utc,
      now: DateTime.Utc,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /**
     * Finishes a job: writes its outcome, its event and its deliveries in one transaction. Changes nothing when the job has
     * the same outcome; fails with a `Conflict` when it has the other one. Returns whether the transaction also created a
     * sweep, for the deliveries to the rest of many endpoints.
     */
    readonly finish: (end: JobEnd, outcome: JobOutcome) => Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** `finish` with `leaseExpired`. Fails with a `Conflict` also when the lease has not expired. */
    readonly failExpired: (end: JobEnd) => Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    readonly find: (orgId: string, jobId: string) => Effect.Effect<Job, NotFound | Unavailable>
    /** Jobs of the org, newest first. */
    readonly list: (orgId: string, filter: JobFilter, page: Page) => Effect.Effect<Found<Job>, Unavailable>
    /** Queues the jobs of one batch of expired leases again, and returns those without another attempt. */
    readonly expireLeases: (batch: LeaseBatch) => Effect.Effect<ExpiredLeases, Unavailable>
  }
>()("gatehouse/domain/Jobs/JobRepository") {}

export const jobNotFound = () => new NotFound({ error: "There is no such job." })
