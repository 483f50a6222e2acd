import { Context, type DateTime, type Effect, type Result } from "effect"
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

/** What became of a report. */
export type ReportOutcome = Result.Result<ReportedChange, NotFound | Conflict | LimitReached>

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
     * Inserts jobs of one org, all or none of them, and returns the id of each. For a job with the `idempotencyKey` of an
     * earlier job of the org, or of one before it in the list, the id is that of the earlier one. Fails when the org has
     * no room for them within its limits of unfinished jobs and of stored bytes.
     */
    readonly insert: (jobs: ReadonlyArray<NewJob>) => Effect.Effect<ReadonlyArray<string>, LimitReached | Unavailable>
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
    /** Makes reports about jobs of one org, each as `report` does by itself. Returns what became of each. */
    readonly reportAll: (
      orgId: string,
      reports: ReadonlyArray<{ readonly end: JobEnd; readonly report: JobReport }>,
    ) => Effect.Effect<ReadonlyArray<ReportOutcome>, Unavailable>
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
