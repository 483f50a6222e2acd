import { Context, type DateTime, type Effect } from "effect"
import { type Conflict, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { ClaimedJob, Job, JobStatus } from "./Job.ts"
import type { DelayedBatch, ExpiredLeases, LeaseBatch, QueuedJobs } from "./Leases.ts"
import type { JobEnd, JobReport, ReportedChange } from "./JobEnd.ts"
import type { JobTemplate } from "./JobTemplates.ts"
import type { Found, Page } from "../Page.ts"

/** A new job. `callbackSecret` is encrypted for the job's id. */
export interface NewJob extends JobTemplate {
  readonly jobId: string
  readonly orgId: string
  readonly idempotencyKey: string | null
  /** When claims may take the job. `null`: now. */
  readonly runAt: DateTime.Utc | null
  readonly now: DateTime.Utc
}

export interface JobFilter {
  readonly status?: JobStatus | undefined
  readonly workflow?: string | undefined
}

/** A heartbeat of a running job. */
export interface Heartbeat {
  readonly leaseUntil: DateTime.Utc
  readonly now: DateTime.Utc
  /** The attempt that reports: the fence. `undefined` accepts any attempt. */
  readonly attempt: number | undefined
  /** `undefined` leaves it as it is; so does an absent note. */
  readonly progress: number | undefined
  readonly note: string | undefined
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
    /**
     * Claims queued jobs of the org, the highest priority first, then the oldest, up to `limit` and to the bytes of a
     * page, until `leaseUntil`. Skips jobs whose time to run has not come.
     */
    readonly claim: (
      orgId: string,
      claim: {
        /** `undefined` claims jobs of any workflow. */
        readonly workflows: ReadonlyArray<string> | undefined
        readonly limit: number
        readonly now: DateTime.Utc
        readonly leaseUntil: DateTime.Utc
      },
    ) => Effect.Effect<ReadonlyArray<ClaimedJob>, Unavailable>
    /**
     * Returns claimed jobs to the queue as if they had not been claimed. Skips jobs that were finished or claimed again
     * in the meantime.
     */
    readonly release: (
      orgId: string,
      jobs: ReadonlyArray<Pick<ClaimedJob, "job_id" | "attempt">>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /** Extends the lease of a running job. Fails with a `Conflict` when the job, or the attempt, is not running. */
    readonly extendLease: (
      orgId: string,
      jobId: string,
      heartbeat: Heartbeat,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /**
     * Changes a job as `decide` says about a report: finishes it, with its event and deliveries, cancels it or queues
     * it again, in one transaction. Fails with the `Conflict` of `decide`, and with `LimitReached` when the org has no
     * room for a long result or error.
     */
    readonly report: (
      end: JobEnd,
      report: JobReport,
    ) => Effect.Effect<ReportedChange, NotFound | Conflict | LimitReached | Unavailable>
    readonly find: (orgId: string, jobId: string) => Effect.Effect<Job, NotFound | Unavailable>
    /** Jobs of the org, newest first. */
    readonly list: (orgId: string, filter: JobFilter, page: Page) => Effect.Effect<Found<Job>, Unavailable>
    /** Queues the jobs of one batch of expired leases again, and returns those without another attempt. */
    readonly expireLeases: (batch: LeaseBatch) => Effect.Effect<ExpiredLeases, Unavailable>
    /** Opens the jobs of one batch of delayed jobs, whose time to run has come, to claims. */
    readonly queueDelayed: (batch: DelayedBatch) => Effect.Effect<QueuedJobs, Unavailable>
  }
>()("gatehouse/domain/Jobs/JobRepository") {}

export const jobNotFound = () => new NotFound({ error: "There is no such job." })
