import { Schema } from "effect"
import { Conflict } from "../Errors.ts"
import { FinishedAt, jobFields, StoredJobStatus, type JobStatus, sharedFields, StoredWorkflowName } from "./Job.ts"
import { atMost, CreatedAt, JobId, NonEmptyText, ScheduleId, Timestamp } from "../Schemas.ts"

const Cron = NonEmptyText.check(atMost(255)).annotate({
  description:
    "A cron expression of five fields (minute, hour, day, month, weekday), or six with seconds first; or " +
    "@hourly, @daily, @weekly, @monthly, @yearly. Ranges of names may wrap, as in FRI-MON. L, W, # and ? are not supported.",
  examples: ["0 4 * * *"],
})
const TimeZone = NonEmptyText.check(atMost(64))

/** What a schedule does at its time while its last job is unfinished. */
export const Overlap = Schema.Literals(["allow", "skip"])
export type Overlap = typeof Overlap.Type

const optionalFields = {
  timezone: Schema.optionalKey(TimeZone).annotate({
    description: "An IANA time zone, or an offset of at most 14 hours, as in +05:30. Default: UTC.",
    examples: ["Europe/Berlin"],
  }),
  overlap: Schema.optionalKey(Overlap).annotate({
    description: "skip: a run creates no job while the last job of this schedule is queued or running. Default: allow.",
    examples: ["skip"],
  }),
  active: Schema.optionalKey(Schema.Boolean).annotate({
    description:
      "false: the schedule is paused and does not run. Runs of the pause are not made up for. Default: true.",
  }),
}

export const CreateJobSchedule = Schema.Struct({
  ...jobFields,
  cron: Cron,
  ...optionalFields,
}).annotate({ identifier: "CreateJobSchedule" })

const { workflow, ...otherJobFields } = jobFields
const changeFields = {
  workflow: Schema.optionalKey(workflow),
  ...otherJobFields,
  cron: Schema.optionalKey(Cron),
  ...optionalFields,
}

/** The changes of a schedule. An absent field does not change. */
export const UpdateJobSchedule = Schema.Struct({ schedule_id: ScheduleId, ...changeFields })
  .check(
    Schema.makeFilter((update: object) => Object.keys(changeFields).some((key) => key in update), {
      expected: `schedule_id with at least one of ${Object.keys(changeFields).join(", ")}`,
      toJsonSchema: () => [{}, true],
    }),
  )
  .annotate({
    identifier: "UpdateJobSchedule",
    examples: [{ schedule_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T", active: false }],
  })

/** A schedule: each run creates a job. */
export const JobSchedule = Schema.Struct({
  schedule_id: ScheduleId,
  workflow: StoredWorkflowName,
  cron: Schema.String.annotate({
    description: "The times of the schedule, as a cron expression.",
    examples: ["0 4 * * *"],
  }),
  timezone: Schema.String.annotate({
    description: "The time zone of the cron expression: an IANA name, or an offset from UTC.",
    examples: ["Europe/Berlin"],
  }),
  ...sharedFields,
  expires_in_seconds: Schema.NullOr(Schema.Int).annotate({
    description: "After how long a job fails that nobody claims. null: as the workflow says, or never.",
    examples: [null],
  }),
  overlap: Overlap.annotate({
    description: "What a run does while the last job of the schedule is queued or running. skip: it creates no job.",
    examples: ["allow"],
  }),
  active: Schema.Boolean.annotate({ description: "Whether the schedule runs. false: it is paused.", examples: [true] }),
  next_at: Schema.NullOr(Timestamp).annotate({ description: "The next run. null: the schedule is paused." }),
  created_at: CreatedAt,
}).annotate({ identifier: "JobSchedule" })
export interface JobSchedule extends Schema.Schema.Type<typeof JobSchedule> {}

export const LastJob = Schema.Struct({
  job_id: JobId,
  status: StoredJobStatus,
  created_at: CreatedAt,
  finished_at: FinishedAt,
}).annotate({ identifier: "LastJob" })
export interface LastJob extends Schema.Schema.Type<typeof LastJob> {}

/** A schedule with its next runs and its last job. */
export const JobScheduleDetail = Schema.Struct({
  ...JobSchedule.fields,
  next_times: Schema.Array(Timestamp).annotate({ description: "The next five runs. None while it is paused." }),
  last_job: Schema.NullOr(LastJob).annotate({
    description: "The last job that the schedule created. null: none, or it is past its retention.",
  }),
}).annotate({ identifier: "JobScheduleDetail" })
export interface JobScheduleDetail extends Schema.Schema.Type<typeof JobScheduleDetail> {}

/** Whether a schedule must not create a job, because its last job is unfinished. */
export const isBlocked = (overlap: Overlap, lastStatus: JobStatus | null) =>
  overlap === "skip" && (lastStatus === "queued" || lastStatus === "running")

export const lastJobUnfinished = () =>
  new Conflict({
    error:
      "The last job of this schedule is unfinished, and the schedule's overlap is skip. Wait until the job ends, or cancel it.",
  })
