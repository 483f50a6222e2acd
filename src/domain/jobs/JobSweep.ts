import { Schema } from "effect"
import { AnyJson, atMost, CreatedAt, Id, JobId, JobSweepId, NonEmptyText, time } from "../Schemas.ts"
import { JobStatus, StoredWorkflowName, WorkflowName } from "./Job.ts"

/** The fields that select jobs by what they are, and when they were created. */
const jobTimes = {
  since: Schema.optionalKey(time("Only jobs that were created at this time or later.")),
  until: Schema.optionalKey(time("Only jobs that were created before this time.")),
}
const ErrorPrefix = NonEmptyText.check(atMost(200)).annotate({
  description: "Only failed jobs whose error begins with this text, as jobs/causes has it.",
  examples: ["connect ECONNREFUSED"],
})
const workflow = Schema.optionalKey(WorkflowName).annotate({ description: "Only jobs of this workflow." })

export const RetryFilter = Schema.Struct({
  workflow,
  error: Schema.optionalKey(ErrorPrefix),
  ...jobTimes,
}).annotate({ identifier: "RetryFilter", description: "Which failed jobs are retried. Absent fields select all." })
const CancelFilter = Schema.Struct({
  workflow,
  status: Schema.optionalKey(Schema.Literals(["queued", "running"])).annotate({
    description: "Only jobs with this status. Default: queued and running ones.",
  }),
  ...jobTimes,
}).annotate({ identifier: "CancelFilter", description: "Which jobs are canceled. Absent fields select all." })

const dryRun = Schema.optionalKey(Schema.Boolean).annotate({ description: "true: only counts. Not with job_id." })
const oneJob = Schema.optionalKey(Id).annotate({ description: "The job. Not together with filter." })

export const RetryJobs = Schema.Struct({
  job_id: oneJob,
  input: Schema.optionalKey(AnyJson).annotateKey({
    description: "Replaces the input of the job. Absent: unchanged. Only with job_id.",
  }),
  filter: Schema.optionalKey(RetryFilter),
  dry_run: dryRun,
}).annotate({
  identifier: "RetryJobs",
  examples: [{ filter: { workflow: "nightly-report", error: "connect ECONNREFUSED" }, dry_run: true }],
})
export const CancelJobs = Schema.Struct({
  job_id: oneJob,
  filter: Schema.optionalKey(CancelFilter),
  dry_run: dryRun,
}).annotate({ identifier: "CancelJobs", examples: [{ job_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T" }] })

/** What a sweep changes: failed jobs that are retried, or unfinished ones that are canceled. */
export interface JobSweepOrder {
  readonly kind: "retry" | "cancel"
  readonly filter: JobSweepFilter
}

export const JobSweepFilter = Schema.Struct({
  ...RetryFilter.fields,
  status: Schema.optionalKey(JobStatus.annotate({ description: "Only jobs in this state." })),
}).annotate({ identifier: "JobSweepFilter", description: "The jobs that it changes. Absent fields select all." })
export interface JobSweepFilter extends Schema.Schema.Type<typeof JobSweepFilter> {}

/** A retry or a cancellation of many jobs that is not finished. */
export const JobSweep = Schema.Struct({
  sweep_id: JobSweepId,
  kind: Schema.Literals(["retry", "cancel"]).annotate({ description: "What it does with the jobs." }),
  filter: JobSweepFilter,
  count: Schema.Int.annotate({ description: "How many jobs it began with, counted up to 10,000." }),
  done: Schema.Int.annotate({ description: "How many it has changed so far." }),
  created_at: CreatedAt,
}).annotate({ identifier: "JobSweep" })
export interface JobSweep extends Schema.Schema.Type<typeof JobSweep> {}

/** Failed jobs with the same workflow and message. */
export const JobCause = Schema.Struct({
  workflow: StoredWorkflowName,
  error: Schema.String.annotate({
    description: "The first 200 characters of their error: error of a filter selects them.",
    examples: ["connect ECONNREFUSED"],
  }),
  jobs: Schema.Int.annotate({ description: "How many of the newest 10,000 failed jobs." }),
  latest: Schema.Struct({ job_id: JobId, at: time("When the job failed.") }).annotate({
    description: "The newest of them, and its end.",
  }),
}).annotate({ identifier: "JobCause" })
export interface JobCause extends Schema.Schema.Type<typeof JobCause> {}

/** How many jobs a request with a filter changes. */
export interface ChangedJobs {
  readonly count: number
  /** Whether `count` is all of them, or a lower bound. */
  readonly isAll: boolean
  /** The sweep that changes them. `null`: nothing changes. */
  readonly sweepId: string | null
}
