import { Context, type DateTime, type Effect } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { type Conflict, type InvalidRequest, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { RoundRobinBatch } from "../roundRobin.ts"
import type { Found, Page } from "../Page.ts"
import type { JobSchedule, LastJob, Overlap } from "./JobSchedule.ts"
import type { JobTemplate } from "./JobTemplates.ts"
import type { QueuedJobs } from "./dueJobs.ts"

/** A new schedule. `callbackSecret` is encrypted for the schedule's id. */
export interface NewJobSchedule extends JobTemplate {
  readonly scheduleId: string
  readonly orgId: string
  readonly cron: string
  readonly timezone: string
  readonly overlap: Overlap
  /** `null`: the schedule is paused. */
  readonly nextAt: DateTime.Utc | null
  readonly now: DateTime.Utc
}

/** The changes of a schedule. An absent field does not change. */
export interface JobScheduleChanges extends Partial<JobTemplate> {
  readonly cron?: string
  readonly timezone?: string
  readonly overlap?: Overlap
  readonly active?: boolean
}

/** The schedules of orgs. */
export class JobScheduleRepository extends Context.Service<
  JobScheduleRepository,
  {
    /** Inserts a schedule. Fails when the org has reached its limit of schedules or of stored bytes. */
    readonly insert: (schedule: NewJobSchedule, entry: AuditEntry) => Effect.Effect<void, LimitReached | Unavailable>
    /** Schedules of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<JobSchedule>, Unavailable>
    /** A schedule with the last job that it created. */
    readonly find: (
      orgId: string,
      scheduleId: string,
    ) => Effect.Effect<{ readonly schedule: JobSchedule; readonly lastJob: LastJob | null }, NotFound | Unavailable>
    /** Changes a schedule; `changedRun` decides when it runs next. Fails when the org has too many stored bytes. */
    readonly update: (
      orgId: string,
      scheduleId: string,
      changes: JobScheduleChanges,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, InvalidRequest | LimitReached | NotFound | Unavailable>
    readonly remove: (
      orgId: string,
      scheduleId: string,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Creates a job of a schedule now. Its runs stay. Fails with a `Conflict` when `isBlocked`, and when the org has
     * reached its limit of unfinished jobs or of stored bytes.
     */
    readonly run: (
      orgId: string,
      scheduleId: string,
      jobId: string,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Conflict | LimitReached | NotFound | Unavailable>
    /**
     * Runs the due schedules of a batch in one transaction: creates one job for each and sets its next run time.
     * Skips schedules that another replica is running. A schedule creates no job when `isBlocked`, or when its org has
     * reached its limit of unfinished jobs or of stored bytes; its next run time is set all the same. Returns the org
     * of each new job, and counts all schedules that have a new run time.
     */
    readonly runDue: (batch: RoundRobinBatch) => Effect.Effect<QueuedJobs, Unavailable>
  }
>()("gatehouse/domain/JobSchedules/JobScheduleRepository") {}

export const scheduleNotFound = () => new NotFound({ error: "There is no such schedule." })
