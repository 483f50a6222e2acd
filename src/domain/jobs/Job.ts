import { Schema } from "effect"
import {
  AnyJson,
  atMost,
  CreatedAt,
  cut,
  JobId,
  NonEmptyText,
  SigningSecret,
  Text,
  time,
  Timestamp,
  UpdatedAt,
  whole,
} from "../Schemas.ts"

export const JobStatus = Schema.Literals(["queued", "running", "completed", "failed", "canceled"])
export type JobStatus = typeof JobStatus.Type
/** The state of a job in responses. */
export const StoredJobStatus = JobStatus.annotate({ description: "The state of the job." })
/** The end of a job in responses. */
export const FinishedAt = Schema.NullOr(time("When it was completed, failed or canceled. null: it is not finished."))

export const WorkflowName = NonEmptyText.check(atMost(255)).annotate({
  description: "The name of the kind of work.",
  examples: ["nightly-report"],
})
/** The name of a workflow in responses. */
export const StoredWorkflowName = Schema.String.annotate({
  description: "The kind of work: a worker asks for jobs by this name.",
  examples: ["nightly-report"],
})
const Json = Schema.Unknown.annotateKey({ description: "Any JSON value." })

/** An optional field with any JSON value. */
const jsonField = (what: string) =>
  Schema.optionalKey(AnyJson).annotateKey({ description: `${what}: any JSON value, at most 1,000 levels deep.` })

/** Where the event of a finished job goes instead of the org's endpoints. */
const callbackFields = {
  callback_url: Schema.optionalKey(Schema.NullOr(Text.check(atMost(2048)))).annotate({
    description:
      "The URL that receives the event of this job instead of the org's endpoints. Without callback_secret there is no " +
      "callback, and the event goes to the endpoints. It follows the rules of an endpoint's url.",
  }),
  callback_secret: Schema.optionalKey(Schema.NullOr(SigningSecret)).annotate({
    description:
      "Signs the callback. Without callback_url it has no effect. It must contain more than white space. The service stores " +
      "it encrypted and never returns it.",
  }),
  skip_callbacks: Schema.optionalKey(Schema.Boolean).annotate({
    description: "true: nobody receives the event of this job. Default: false.",
  }),
}

/** What a job has if its request does not say. */
export const defaultPriority = 0
export const defaultMaxAttempts = 3
export const defaultRetryDelaySeconds = 10

const Priority = whole(-100, 100).annotate({
  description: `Claims take jobs with a higher priority first, -100 to 100. Default: ${defaultPriority}.`,
  examples: [0],
})
const MaxAttempts = whole(1, 20).annotate({
  description: `How often the job is claimed at most, 1 to 20. Default: ${defaultMaxAttempts}.`,
  examples: [3],
})
const RetryDelaySeconds = whole(1, 86_400).annotate({
  description:
    "How long a failure with retry delays the second attempt, in seconds, 1 to 86400. Each further delay is twice as long. " +
    `No delay is longer than an hour: more than 3600 counts as 3600. Default: ${defaultRetryDelaySeconds}.`,
  examples: [10],
})

/** How long nobody claims a job until it fails. */
export const ExpiresInSeconds = whole(1, 30 * 86_400)

const JobKey = NonEmptyText.check(atMost(200))

/** How a job is queued and tried again. */
const queueFields = {
  concurrency_key: Schema.optionalKey(Schema.NullOr(JobKey)).annotate({
    description:
      "What shares the concurrency_per_key of the workflow, such as a customer's id, at most 200 characters. Default: none.",
    examples: ["customer-17"],
  }),
  priority: Schema.optionalKey(Priority),
  max_attempts: Schema.optionalKey(MaxAttempts),
  retry_delay_seconds: Schema.optionalKey(RetryDelaySeconds),
  expires_in_seconds: Schema.optionalKey(Schema.NullOr(ExpiresInSeconds)).annotate({
    description:
      "The job fails when nobody has claimed it so long after its creation, or after run_at, 1 to 2592000 seconds. Default: " +
      "that of the workflow, or never.",
    examples: [3600],
  }),
}

export const jobFields = {
  workflow: WorkflowName,
  input: jsonField("What the worker gets"),
  deployment_id: Schema.optionalKey(Schema.NullOr(NonEmptyText.check(atMost(255)))).annotate({
    description: "The deployment that the job is about, in your words.",
  }),
  ...callbackFields,
  ...queueFields,
}

/** The states of an unfinished job. */
const UnfinishedState = Schema.Literals(["queued", "running"])

const Unique = Schema.Struct({
  key: JobKey.annotate({
    description: "At most one unfinished job of the workflow has this key, at most 200 characters.",
    examples: ["sync-customer-17"],
  }),
  within_seconds: Schema.optionalKey(whole(1, 86_400)).annotate({
    description: "At most one job of the key is created in this time, finished or not, 1 to 86400 seconds.",
    examples: [600],
  }),
  states: Schema.optionalKey(
    Schema.Array(UnfinishedState).check(Schema.isMinLength(1, { expected: "at least 1 state" })),
  ).annotate({
    description:
      "The states in which the newest job of the key prevents another: queued, running or both. Default: both, with " +
      "debounce_seconds queued.",
    examples: [["queued"]],
  }),
}).annotate({
  identifier: "UniqueJob",
  description: "The answer is the newest job of the key, with created: false, while that job prevents another.",
})

export const CreateJob = Schema.Struct({
  ...jobFields,
  run_at: Schema.optionalKey(
    time("No claim takes the job before this time, at most a year ahead. Absent or past: now."),
  ),
  idempotency_key: Schema.optionalKey(NonEmptyText.check(atMost(255))).annotate({
    description:
      "Makes the request safe to repeat: a request with a key of an earlier job returns that job and ignores all other " +
      "fields. The key is kept as long as the job. Not together with unique.",
  }),
  unique: Schema.optionalKey(Unique),
  debounce_seconds: Schema.optionalKey(whole(1, 86_400)).annotate({
    description:
      "The job runs after this time, 1 to 86400 seconds. A later creation with the same unique.key replaces its input, and the " +
      "time starts again, while it is queued, also for a retry. Needs unique with only a key, and no run_at.",
    examples: [30],
  }),
}).annotate({ identifier: "CreateJob" })

/** Jobs of one batch. */
const maxBatch = 1_000

const batchOf = <S extends Schema.Top>(job: S) =>
  Schema.Array(job).check(
    Schema.isMinLength(1, { expected: "at least 1 job" }),
    Schema.isMaxLength(maxBatch, { expected: `at most ${maxBatch} jobs` }),
  )

export const CreateJobs = Schema.Struct({
  jobs: batchOf(CreateJob).annotate({
    description: `1 to ${maxBatch} jobs, without unique and debounce_seconds. All are created, or none.`,
  }),
}).annotate({ identifier: "CreateJobs" })

/** What a claim, or a heartbeat, has if it does not say. */
export const defaultLeaseSeconds = 60
export const defaultClaimLimit = 1
export const defaultWaitSeconds = 0

const LeaseSeconds = whole(1, 3600).annotate({
  description: `How long the claim of the job is valid, in seconds. Default: ${defaultLeaseSeconds}.`,
  examples: [60],
})

/** Workflows of one claim. */
const maxClaimedWorkflows = 20

export const ClaimJobs = Schema.Struct({
  workflow: Schema.optionalKey(WorkflowName).annotate({
    description: "Claim only jobs of this workflow. Without workflow and workflows: of any.",
  }),
  workflows: Schema.optionalKey(
    Schema.Array(WorkflowName)
      .check(Schema.isMinLength(1, { expected: "at least 1 workflow" }))
      .check(Schema.isMaxLength(maxClaimedWorkflows, { expected: `at most ${maxClaimedWorkflows} workflows` })),
  ).annotate({
    description: "Claim only jobs of these workflows, 1 to 20. Not together with workflow.",
  }),
  limit: Schema.optionalKey(whole(1, 100)).annotate({
    description: `The maximum number of jobs, 1 to 100. Default: ${defaultClaimLimit}.`,
    examples: [10],
  }),
  lease_seconds: Schema.optionalKey(LeaseSeconds),
  wait_seconds: Schema.optionalKey(whole(0, 30)).annotate({
    description: `How long to wait for a job when none is queued, in seconds. Default: ${defaultWaitSeconds}.`,
    examples: [20],
  }),
}).annotate({
  identifier: "ClaimJobs",
  examples: [{ workflow: "nightly-report", limit: 10, lease_seconds: 60, wait_seconds: 20 }],
})

/** The fence of a worker's report. */
const Attempt = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }, { expected: "the attempt of the claim" }),
).annotate({
  description:
    "The attempt of the claim. If it is not the running attempt of the job, the answer is a 409 and nothing changes. " +
    "Absent: the report is accepted from any worker.",
  examples: [1],
})

/** The fence of the report that ends an attempt, which may be repeated. */
const EndedAttempt = Attempt.annotate({
  description:
    "The attempt of the claim. If it is not the running attempt of the job, nothing changes: the answer is a 200 if " +
    "this attempt has reported the same outcome before, and else a 409. Absent: the report is accepted from any worker.",
  examples: [1],
})

/** Lines of one request, and characters of a line. */
const maxLines = 100
const maxLineLength = 2_000
/** The newest lines of a job, and the results of its steps, that are kept, in bytes of JSON. */
export const maxLinesBytes = 64 * 1024
export const maxStepsBytes = 256 * 1024

const LineLevel = Schema.Literals(["debug", "info", "warn", "error"])

/** A line that a worker has logged. */
export const JobLine = Schema.Struct({
  at: time("When the line was written."),
  level: LineLevel.annotate({ description: "How important the line is." }),
  text: Schema.String.annotate({ description: "What the worker has logged.", examples: ["Row 400 of 1,000"] }),
}).annotate({ identifier: "JobLine" })
export interface JobLine extends Schema.Schema.Type<typeof JobLine> {}

const NewLines = Schema.Array(
  Schema.Struct({
    at: Schema.optionalKey(time("When it was written. Default: now.")),
    level: Schema.optionalKey(LineLevel).annotate({ description: "How important the line is. Default: info." }),
    text: Text.check(atMost(maxLineLength)).annotate({
      description: "The line, at most 2,000 characters.",
      examples: ["Row 400 of 1,000"],
    }),
  }).annotate({ identifier: "NewJobLine" }),
)
  .check(
    Schema.isMinLength(1, { expected: "at least 1 line" }),
    Schema.isMaxLength(maxLines, { expected: `at most ${maxLines} lines` }),
  )
  .annotate({ description: "1 to 100 lines, oldest first. A job keeps its newest 64 KiB." })

export const LogJob = Schema.Struct({ job_id: JobId, attempt: Attempt, lines: NewLines }).annotate({
  identifier: "LogJob",
})

export const StepJob = Schema.Struct({
  job_id: JobId,
  attempt: Attempt,
  name: NonEmptyText.check(atMost(255)).annotate({
    description: "The name of the finished step. A job has one step of a name.",
    examples: ["charge-card"],
  }),
  result: jsonField("What the step has made"),
}).annotate({ identifier: "StepJob" })

export const HeartbeatJob = Schema.Struct({
  job_id: JobId,
  attempt: Schema.optionalKey(Attempt),
  lease_seconds: Schema.optionalKey(LeaseSeconds),
  progress: Schema.optionalKey(
    Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 }, { expected: "a number from 0 to 1" })),
  ).annotate({ description: "How much of the work is done, 0 to 1. Absent: unchanged.", examples: [0.4] }),
  note: Schema.optionalKey(Text.check(atMost(1000))).annotate({
    description: "What the worker does now, in words, at most 1,000 characters. Absent: unchanged.",
    examples: ["Row 400 of 1,000"],
  }),
  lines: Schema.optionalKey(NewLines),
}).annotate({ identifier: "HeartbeatJob" })
export const CompleteJob = Schema.Struct({
  job_id: JobId,
  attempt: Schema.optionalKey(EndedAttempt),
  result: jsonField("What the job has made"),
}).annotate({ identifier: "CompleteJob" })
export const CompleteJobs = Schema.Struct({
  jobs: batchOf(CompleteJob).annotate({ description: `1 to ${maxBatch} jobs, each with its own outcome.` }),
}).annotate({ identifier: "CompleteJobs" })
/** What became of one job of a batch. */
export const CompletedJob = Schema.Struct({
  job_id: JobId,
  success: Schema.Boolean.annotate({ description: "Whether the job is completed.", examples: [true] }),
  message: Schema.String.annotate({
    description: "What became of the job, in a sentence.",
    examples: ["The job is completed."],
  }),
  code: Schema.optionalKey(Schema.Literals(["not_found", "conflict", "limit_reached"])).annotate({
    description: "Why the job is not completed, as in the response of jobs/complete.",
  }),
}).annotate({ identifier: "CompletedJob" })
export interface CompletedJob extends Schema.Schema.Type<typeof CompletedJob> {}
/** The longest error of a job. */
export const maxErrorLength = 10_000

export const FailJob = Schema.Struct({
  job_id: JobId,
  attempt: Schema.optionalKey(EndedAttempt),
  error: Text.check(atMost(maxErrorLength)).annotate({
    description: "Why the job failed, in a sentence.",
    examples: ["out of memory"],
  }),
  mapped_stack: jsonField("Where the error happened"),
  retry: Schema.optionalKey(Schema.Boolean).annotate({
    description:
      "true: the job is queued again after a delay, until its last attempt. Only the last failure makes an event. Default: " +
      "false.",
  }),
}).annotate({ identifier: "FailJob" })

const StoredDeployment = Schema.NullOr(Schema.String).annotate({
  description: "A deployment of yours that the job belongs to, in any form. null: none.",
  examples: [null],
})

/** A claimed job, for its worker. */
export const ClaimedJob = Schema.Struct({
  job_id: JobId,
  workflow: StoredWorkflowName,
  input: Json,
  deployment_id: StoredDeployment,
  attempt: Schema.Int.annotate({ description: "The number of the claim, from 1." }),
  lease_expires_at: time("When the claim of the job ends."),
}).annotate({ identifier: "ClaimedJob" })
export interface ClaimedJob extends Schema.Schema.Type<typeof ClaimedJob> {}

/** The fields that a job has from its schedule, if one created it. */
export const sharedFields = {
  input: Json,
  deployment_id: StoredDeployment,
  callback_url: Schema.NullOr(Schema.String).annotate({
    description: "The URL that receives the event of the job instead of the org's endpoints. null: the endpoints do.",
    examples: [null],
  }),
  skip_callbacks: Schema.Boolean.annotate({
    description: "Whether nobody receives the event of the job.",
    examples: [false],
  }),
  concurrency_key: Schema.NullOr(Schema.String).annotate({
    description: "What shares the concurrency_per_key of the workflow. null: none.",
    examples: [null],
  }),
  priority: Priority,
  max_attempts: Schema.Int.annotate({ description: "How many claims the job may have in all.", examples: [3] }),
  retry_delay_seconds: Schema.Int.annotate({
    description: "The wait before the first retry, in seconds. It doubles with each retry, up to an hour.",
    examples: [10],
  }),
}

/** A job without its callback secret. */
export const Job = Schema.Struct({
  job_id: JobId,
  workflow: StoredWorkflowName,
  status: StoredJobStatus,
  ...sharedFields,
  run_at: Schema.NullOr(Timestamp).annotate({
    description: "No claim takes the job before this time. null: it was queued without a delay.",
    examples: [null],
  }),
  unique_key: Schema.NullOr(Schema.String).annotate({
    description: "The key of unique. null: the job has none.",
    examples: [null],
  }),
  expires_at: Schema.NullOr(Timestamp).annotate({
    description: "When the job fails, unless somebody has claimed it. null: never, or the job has ended.",
  }),
  attempt: Schema.Int.annotate({ description: "How often the job was claimed.", examples: [1] }),
  progress: Schema.NullOr(Schema.Finite).annotate({
    description: "How much of the work is done, 0 to 1, by the last heartbeat of this attempt. null: unknown.",
    examples: [null],
  }),
  note: Schema.NullOr(Schema.String).annotate({
    description: "The note of the last heartbeat of this attempt. null: none.",
    examples: [null],
  }),
  lease_expires_at: Schema.NullOr(Timestamp).annotate({
    description: "The end of the lease. null: the job is not running.",
  }),
  result: Schema.Unknown.annotateKey({ description: "Any JSON value. null: the job is not completed." }),
  error: Schema.NullOr(Schema.String).annotate({
    description: "Why the job, or its last attempt, failed. null: no attempt has failed.",
    examples: [null],
  }),
  mapped_stack: Schema.Unknown.annotateKey({ description: "Any JSON value. null: no attempt has failed." }),
  created_at: CreatedAt,
  updated_at: UpdatedAt,
  finished_at: FinishedAt,
}).annotate({ identifier: "Job" })
export interface Job extends Schema.Schema.Type<typeof Job> {}

/** The attempts that the log of a job has. */
export const maxLoggedAttempts = 20
/** The longest error in the log, in characters. */
export const maxLoggedError = 1_000

/** An attempt of a job that has ended. */
export const JobAttempt = Schema.Struct({
  attempt: Schema.Int.annotate({ description: "The number of the attempt.", examples: [1] }),
  ended_at: time("When the attempt ended."),
  note: Schema.NullOr(Schema.String).annotate({
    description: "The note of its last heartbeat. null: none.",
    examples: ["Row 400 of 1,000"],
  }),
  error: Schema.NullOr(Schema.String).annotate({
    description: "The first 1,000 characters of its error. null: it completed the job.",
    examples: ["out of memory"],
  }),
}).annotate({ identifier: "JobAttempt" })
export interface JobAttempt extends Schema.Schema.Type<typeof JobAttempt> {}

/** A finished step of a job. */
export const JobStep = Schema.Struct({
  name: Schema.String.annotate({ description: "The name of the step.", examples: ["charge-card"] }),
  finished_at: time("When the step was finished."),
  result: Schema.Unknown.annotateKey({ description: "Any JSON value." }),
}).annotate({ identifier: "JobStep" })
export interface JobStep extends Schema.Schema.Type<typeof JobStep> {}

/** A job with the history of its attempts and its finished steps. */
export const JobDetail = Schema.Struct({
  ...Job.fields,
  steps: Schema.Array(JobStep).annotate({
    description: "The finished steps, which an attempt need not do again, in their order.",
  }),
  attempt_log: Schema.Array(JobAttempt).annotate({
    description: "The last 20 attempts that have ended, oldest first.",
  }),
}).annotate({ identifier: "JobDetail" })
export interface JobDetail extends Schema.Schema.Type<typeof JobDetail> {}

/** The log of a job: the stored attempts, and the last one of a finished job, which stands in its other fields. */
export const attemptLog = (
  stored: ReadonlyArray<JobAttempt>,
  { attempt, error, finished_at, note, status }: Job,
): ReadonlyArray<JobAttempt> => {
  const isLogged = (stored.at(-1)?.attempt ?? 0) >= attempt
  if (finished_at === null || status === "canceled" || isLogged) return stored
  const last = { attempt, ended_at: finished_at, note, error: error === null ? null : cut(error, maxLoggedError) }
  return [...stored, last].slice(-maxLoggedAttempts)
}
