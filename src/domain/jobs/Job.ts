import { Schema } from "effect"
import { Id, NonEmptyText, SigningSecret, Text, Timestamp } from "../Schemas.ts"

export const JobStatus = Schema.Literals(["queued", "running", "completed", "failed"])
export type JobStatus = typeof JobStatus.Type

const short = (length: number) => Schema.isMaxLength(length, { expected: `at most ${length} characters` })

export const WorkflowName = NonEmptyText.check(short(255)).annotate({ examples: ["nightly-report"] })
/** Any JSON value. */
export const Json = Schema.Unknown.annotateKey({ description: "Any JSON value." })

const maxLevels = 1000
const isObject = (value: unknown): value is object => typeof value === "object" && value !== null

/** Looks level by level: what goes down into a value, as writing JSON does, can use up its stack. */
const isShallow = (value: unknown) => {
  let level = [value].filter(isObject)
  for (let levels = 1; level.length > 0; levels++) {
    if (levels > maxLevels) return false
    level = level.flatMap((container): ReadonlyArray<unknown> => Object.values(container)).filter(isObject)
  }
  return true
}

/** A field for any JSON value that can be kept and sent on. */
export const JsonField = Schema.optionalKey(
  Schema.Unknown.check(Schema.makeFilter(isShallow, { expected: "JSON of at most 1,000 levels" })),
).annotateKey({ description: "Any JSON value, at most 1,000 levels deep." })

/** Where the event of a finished job goes, when it does not go to the tenant's endpoints. */
export const callbackFields = {
  callback_url: Schema.optionalKey(Schema.NullOr(Text)).annotate({
    description:
      "With callback_secret: the event goes there, and to no stored endpoint. The rules of an endpoint's url hold.",
  }),
  callback_secret: Schema.optionalKey(Schema.NullOr(SigningSecret)).annotate({
    description: "Signs the callback. Not only white space. Encrypted at rest, in no answer.",
  }),
  skip_callbacks: Schema.optionalKey(Schema.Boolean).annotate({
    description: "true: the event goes nowhere. Default false.",
  }),
}

export const jobFields = {
  workflow: WorkflowName,
  input: JsonField,
  deployment_id: Schema.optionalKey(Schema.NullOr(NonEmptyText.check(short(255)))),
  ...callbackFields,
}

export const CreateJob = Schema.Struct({
  ...jobFields,
  idempotency_key: Schema.optionalKey(NonEmptyText.check(short(255))).annotate({
    description: "The same key again gives the job that it made before, whatever else is sent.",
  }),
}).annotate({ identifier: "CreateJob" })

const LeaseSeconds = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: 3600 }, { expected: "a whole number from 1 to 3600" }),
).annotate({ description: "How long the job is the claimer's. Default 60.", examples: [60] })

export const ClaimJobs = Schema.Struct({
  workflow: Schema.optionalKey(WorkflowName),
  limit: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 }, { expected: "a whole number from 1 to 100" })),
  ).annotate({ description: "How many at most, 1 to 100. Default 1.", examples: [10] }),
  lease_seconds: Schema.optionalKey(LeaseSeconds),
  wait_seconds: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 30 }, { expected: "a whole number from 0 to 30" })),
  ).annotate({ description: "How long to wait for a job when there is none. Default 0.", examples: [20] }),
}).annotate({ identifier: "ClaimJobs" })

export const HeartbeatJob = Schema.Struct({ job_id: Id, lease_seconds: Schema.optionalKey(LeaseSeconds) }).annotate({
  identifier: "HeartbeatJob",
})
export const CompleteJob = Schema.Struct({ job_id: Id, result: JsonField }).annotate({
  identifier: "CompleteJob",
})
export const FailJob = Schema.Struct({
  job_id: Id,
  error: Text.annotate({ description: "Why, in words.", examples: ["out of memory"] }),
  mapped_stack: JsonField,
}).annotate({ identifier: "FailJob" })

/** A job as a worker gets it. */
export const ClaimedJob = Schema.Struct({
  job_id: Id,
  workflow: Schema.String.annotate({ examples: ["nightly-report"] }),
  input: Json,
  deployment_id: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  attempt: Schema.Int,
  lease_expires_at: Timestamp,
}).annotate({ identifier: "ClaimedJob" })
export interface ClaimedJob extends Schema.Schema.Type<typeof ClaimedJob> {}

/** A job as its tenant sees it: without its callback's secret. */
export const Job = Schema.Struct({
  job_id: Id,
  workflow: Schema.String.annotate({ examples: ["nightly-report"] }),
  status: JobStatus,
  input: Json,
  deployment_id: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  callback_url: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  skip_callbacks: Schema.Boolean.annotate({ examples: [false] }),
  attempt: Schema.Int,
  lease_expires_at: Schema.NullOr(Timestamp).annotate({ description: "While it is running." }),
  result: Schema.Unknown.annotateKey({ description: "Any JSON value; null until the job is completed." }),
  error: Schema.NullOr(Schema.String).annotate({ description: "Why it failed.", examples: [null] }),
  mapped_stack: Schema.Unknown.annotateKey({ description: "Any JSON value; null unless the job failed." }),
  created_at: Timestamp,
  updated_at: Timestamp,
  finished_at: Schema.NullOr(Timestamp),
}).annotate({ identifier: "Job" })
export interface Job extends Schema.Schema.Type<typeof Job> {}
