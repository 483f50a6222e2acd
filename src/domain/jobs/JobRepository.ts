import { Context, type DateTime, type Effect, type Result } from "effect"
import { Conflict, InvalidRequest, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { ClaimedJob, Job, JobDetail, JobLine, JobStatus } from "./Job.ts"
import type { ExpiredLeases, QueuedJobs } from "./dueJobs.ts"
import type { JobEnd, JobReport, ReportedChange } from "./JobEnd.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { JobQueue } from "./JobCounts.ts"
import type { JobCause, JobSweep, JobSweepFilter, JobSweepOrder } from "./JobSweep.ts"
import type { JobTemplate } from "./JobTemplates.ts"
import type { Workflow } from "./WorkflowSettings.ts"
import type { RoundRobinBatch } from "../roundRobin.ts"
import type { Counted, Found, Page } from "../Page.ts"

/** A new job. `callbackSecret` is encrypted for the job's id. */
export interface NewJob extends JobTemplate {
  readonly jobId: string
  readonly orgId: string
  readonly idempotencyKey: string | null
  /** Not together with `idempotencyKey`, and only of a job that is inserted alone. */
  readonly unique: UniqueJob | null
  /** When claims may take the job. `null`: now. */
  readonly runAt: DateTime.Utc | null
  readonly now: DateTime.Utc
}

/** What prevents a new job: the newest one of the key in its workflow. */
export interface UniqueJob {
  readonly key: string
  /** While it is in one of these states. */
  readonly states: ReadonlyArray<JobStatus>
  /** While its id is not before this time. `null`: only by its state. */
  readonly since: DateTime.Utc | null
  /** A queued job that was never claimed gets the input and the time of the new one. */
  readonly debounces: boolean
}

export interface CreatedJob {
  readonly jobId: string
  /** Whether it is a new job. */
  readonly created: boolean
}

/** One page of jobs. */
interface FoundJobs extends Found<Job> {
  /** The last id that was read, when the list stopped before it found enough; `null` when it read all. */
  readonly scannedTo: string | null
}

/** What became of a report. */
export type ReportResult<Changed = ReportedChange> = Result.Result<Changed, NotFound | Conflict | LimitReached>

/** What a claim asks for. */
export interface JobClaim {
  /** `undefined` claims jobs of any workflow. */
  readonly workflows: ReadonlyArray<string> | undefined
  readonly limit: number
  readonly now: DateTime.Utc
  readonly leaseUntil: DateTime.Utc
}

/** A heartbeat of a running job. */
interface Heartbeat {
  /** `null` leaves it as it is. */
  readonly leaseUntil: DateTime.Utc | null
  readonly now: DateTime.Utc
  /** The attempt that reports: the fence. `undefined` accepts any attempt. */
  readonly attempt: number | undefined
  /** `undefined` leaves it as it is; so does an absent note. */
  readonly progress: number | undefined
  readonly note: string | undefined
  readonly lines?: ReadonlyArray<JobLine> | undefined
}

/** A finished step of a running job. */
export interface FinishedStep {
  readonly attempt: number
  readonly name: string
  readonly result: unknown
  readonly now: DateTime.Utc
}

/** A change of a job. */
type ChangeEffect<A = void, E = never> = Effect.Effect<A, E | NotFound | Conflict | LimitReached | Unavailable>

/** The jobs of orgs. */
export class JobRepository extends Context.Service<
  JobRepository,
  {
    /**
     * Inserts jobs of one org, all or none of them. For a job with the `idempotencyKey` of an earlier job of the org,
     * or of one before it in the list, returns the earlier one; for one with `unique`, which must be alone, the job
     * that it names. Fails when the org has no room for them within its limits of unfinished jobs and of stored bytes.
     */
    readonly insert: (
      jobs: ReadonlyArray<NewJob>,
    ) => Effect.Effect<ReadonlyArray<CreatedJob>, LimitReached | Unavailable>
    /**
     * Claims queued jobs of the org, the highest priority first, then the oldest, up to `limit` and to the bytes of a
     * page, until `leaseUntil`. Skips jobs whose time to run has not come. Exceeds no limit of a workflow; under a
     * limit for each key, keys take turns.
     */
    readonly claim: (orgId: string, claim: JobClaim) => Effect.Effect<ReadonlyArray<ClaimedJob>, Unavailable>
    /**
     * Returns claimed jobs to the queue as if they had not been claimed. Skips jobs that were finished or claimed again
     * in the meantime.
     */
    readonly release: (
      orgId: string,
      jobs: ReadonlyArray<Pick<ClaimedJob, "job_id" | "attempt">>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /**
     * Extends the lease of a running job, and keeps lines that its worker has logged: the newest within their limit.
     * Fails with a `Conflict` when the job, or the attempt, is not running.
     */
    readonly extendLease: (orgId: string, jobId: string, heartbeat: Heartbeat) => ChangeEffect
    /** Keeps the result of a finished step of a running job. A step of that name that is there stays as it is. */
    readonly finishStep: (orgId: string, jobId: string, step: FinishedStep) => ChangeEffect<void, InvalidRequest>
    /** The newest lines of a job, oldest first. */
    readonly lines: (orgId: string, jobId: string) => Effect.Effect<ReadonlyArray<JobLine>, NotFound | Unavailable>
    /**
     * Changes a job as `decide` says about a report: finishes it, with its event and deliveries, cancels it or queues
     * it again, in one transaction. Fails with the `Conflict` of `decide`, and with `LimitReached` when the org has no
     * room for a long result or error.
     */
    readonly report: (end: JobEnd, report: JobReport) => ChangeEffect<ReportedChange>
    /** Makes reports about jobs of one org, each as `report` does by itself. Returns what became of each. */
    readonly reportAll: (
      orgId: string,
      reports: ReadonlyArray<{ readonly end: JobEnd; readonly report: JobReport }>,
    ) => Effect.Effect<ReadonlyArray<ReportResult>, Unavailable>
    readonly find: (orgId: string, jobId: string) => Effect.Effect<JobDetail, NotFound | Unavailable>
    /** Jobs of the org, newest first. */
    readonly list: (orgId: string, filter: JobSweepFilter, page: Page) => Effect.Effect<FoundJobs, Unavailable>
    /**
     * Queues a failed job again, with as many attempts as it had, and its history. Fails with a `Conflict` when the job
     * has not failed.
     *
     * @param input replaces its input; `undefined` leaves it as it is
     */
    readonly retry: (orgId: string, jobId: string, input: unknown, now: DateTime.Utc, entry: AuditEntry) => ChangeEffect
    /** Counts the jobs that a sweep would change, up to a limit; `isAll` says whether that is all. */
    readonly countSwept: (orgId: string, order: JobSweepOrder) => Effect.Effect<Counted, Unavailable>
    /** Starts a sweep, whose id is the target of the entry. Fails when the org has too many of them. */
    readonly startSweep: (
      orgId: string,
      order: JobSweepOrder & { readonly count: number },
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | Unavailable>
    /** The unfinished sweeps over jobs of the org, newest first. */
    readonly sweeps: (orgId: string) => Effect.Effect<ReadonlyArray<JobSweep>, Unavailable>
    /** Ends a sweep: the jobs that it has not reached stay as they are. */
    readonly endSweep: (orgId: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /** Groups the newest failed jobs by their workflow and message, the most first. */
    readonly causes: (
      orgId: string,
      filter: Pick<JobSweepFilter, "workflow" | "since" | "until">,
    ) => Effect.Effect<ReadonlyArray<JobCause>, Unavailable>
    /**
     * The unfinished jobs of the org, and how many jobs were created since a time. Reads a bounded number of them.
     */
    readonly queue: (orgId: string, createdSince: DateTime.Utc) => Effect.Effect<JobQueue, Unavailable>
    /** Whether claims of the org, as far as this process knows, wait until others end. */
    readonly hasLimits: (orgId: string) => boolean
    /** Sets the settings of a workflow in place of those that it has. Fails when the org has too many of them. */
    readonly setWorkflow: (
      orgId: string,
      settings: Workflow,
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | LimitReached | Unavailable>
    /** The workflows of the org that have settings, by their names; only the one that is named. */
    readonly workflows: (orgId: string, workflow?: string) => Effect.Effect<ReadonlyArray<Workflow>, Unavailable>
    readonly deleteWorkflow: (
      orgId: string,
      workflow: string,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /** Queues the jobs of one batch of expired leases again, and returns those without another attempt. */
    readonly expireLeases: (batch: RoundRobinBatch) => Effect.Effect<ExpiredLeases, Unavailable>
    /** Returns the jobs of one batch that nobody has claimed in time. They are still `queued`. */
    readonly findExpired: (batch: RoundRobinBatch) => Effect.Effect<ExpiredLeases, Unavailable>
    /** Opens the jobs of one batch of delayed jobs, whose time to run has come, to claims. */
    readonly queueDelayed: (batch: RoundRobinBatch) => Effect.Effect<QueuedJobs, Unavailable>
  }
>()("gatehouse/domain/Jobs/JobRepository") {}

export const jobNotFound = () => new NotFound({ error: "There is no such job." })
export const jobNotFailed = (status: JobStatus) =>
  new Conflict({ error: `The job is ${status}: only a failed job is retried.` })
export const keyIsTaken = (holder: string) =>
  new Conflict({ error: `The job ${holder} has the same unique key and is not finished: only one of them may be.` })
export const sweepNotFound = () => new NotFound({ error: "There is no such sweep, or it has ended." })
export const stepsTooLarge = () =>
  new InvalidRequest({ error: "result is too large: the steps of a job have at most 256 KiB of JSON together." })
