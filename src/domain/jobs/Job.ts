import { Schema } from "effect"
import { Id, NonEmptyText, SigningSecret, Text, Timestamp } from "../Schemas.ts"

export const JobStatus = Schema.Literals(["queued", "running", "completed", "failed"])
export type JobStatus = typeof JobStatus.Type

const atMost = (length: number) => Schema.isMaxLength(length, { expected: `at most ${length} characters` })

export const WorkflowName = NonEmptyText.check(atMost(255)).annotate({ examples: ["nightly-report"] })
export const Json = Schema.Unknown.annotateKey({ description: "Any JSON value." })

/** How deep a JSON value may be nested. */
const maxJsonLevels = 1000
const isObject = (value: unknown): value is object => typeof value === "object" && value !== null

/** Whether a value has at most `maxJsonLevels`. Reads level by level, because recursion can exhaust the stack. */
const isShallow = (value: unknown) => {
  let containers = [value].filter(isObject)
  for (let level = 1; containers.length > 0; level++) {
    if (level > maxJsonLevels) return false
    containers = containers.flatMap((container): ReadonlyArray<unknown> => Object.values(container)).filter(isObject)
  }
  return true
}

/** Any JSON value that is not nested too deep. */
export const AnyJson = Schema.Unknown.check(Schema.makeFilter(isShallow, { expected: "JSON of at most 1,000 levels" }))

/** An optional field with any JSON value. */
export const JsonField = Schema.optionalKey(AnyJson).annotateKey({
  description: "Any JSON value, at most 1,000 levels deep.",
})

/** Where the event of a finished job goes instead of the org's endpoints. */
export const callbackFields = {
  callback_url: Schema.optionalKey(Schema.NullOr(Text)).annotate({
    description:
      "The URL that receives the event of this job instead of the org's endpoints. It needs callback_secret, and follows the " +
      "rules of an endpoint's url.",
  }),
  callback_secret: Schema.optionalKey(Schema.NullOr(SigningSecret)).annotate({
    description:
      "Signs the callback. It must contain more than white space. The service stores it encrypted and never returns it.",
  }),
  skip_callbacks: Schema.optionalKey(Schema.Boolean).annotate({
    description: "true: nobody receives the event of this job. Default: false.",
  }),
}

export const jobFields = {
  workflow: WorkflowName,
  input: JsonField,
  deployment_id: Schema.optionalKey(Schema.NullOr(NonEmptyText.check(atMost(255)))),
  ...callbackFields,
}

export const CreateJob = Schema.Struct({
  ...jobFields,
  idempotency_key: Schema.optionalKey(NonEmptyText.check(atMost(255))).annotate({
    description:
      "Makes the request safe to repeat: a request with a key of an earlier job returns that job and ignores all other " +
      "fields.",
  }),
}).annotate({ identifier: "CreateJob" })

const LeaseSeconds = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: 3600 }, { expected: "a whole number from 1 to 3600" }),
).annotate({ description: "How long the claim of the job is valid, in seconds. Default: 60.", examples: [60] })

export const ClaimJobs = Schema.Struct({
  workflow: Schema.optionalKey(WorkflowName),
  limit: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 }, { expected: "a whole number from 1 to 100" })),
  ).annotate({ description: "The maximum number of jobs, 1 to 100. Default: 1.", examples: [10] }),
  lease_seconds: Schema.optionalKey(LeaseSeconds),
  wait_seconds: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 30 }, { expected: "a whole number from 0 to 30" })),
  ).annotate({
    description: "How long to wait for a job when none is queued, in seconds. Default: 0.",
    examples: [20],
  }),
}).annotate({ identifier: "ClaimJobs" })

export const HeartbeatJob = Schema.Struct({ job_id: Id, lease_seconds: Schema.optionalKey(LeaseSeconds) }).annotate({
  identifier: "HeartbeatJob",
})
export const CompleteJob = Schema.Struct({ job_id: Id, result: JsonField }).annotate({
  identifier: "CompleteJob",
})
export const FailJob = Schema.Struct({
  job_id: Id,
  error: Text.annotate({ description: "Why the job failed, in a sentence.", examples: ["out of memory"] }),
  mapped_stack: JsonField,
}).annotate({ identifier: "FailJob" })

/** A claimed job, for its worker. */
export const ClaimedJob = Schema.Struct({
  job_id: Id,
  workflow: Schema.String.annotate({ examples: ["nightly-report"] }),
  input: Json,
  deployment_id: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  attempt: Schema.Int,
  lease_expires_at: Timestamp,
}).annotate({ identifier: "ClaimedJob" })
export interface ClaimedJob extends Schema.Schema.Type<typeof ClaimedJob> {}

/** A job without its callback secret. */
export const Job = Schema.Struct({
  job_id: Id,
  workflow: Schema.String.annotate({ examples: ["nightly-report"] }),
  status: JobStatus,
  input: Json,
  deployment_id: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  callback_url: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  skip_callbacks: Schema.Boolean.annotate({ examples: [false] }),
  attempt: Schema.Int,
  lease_expires_at: Schema.NullOr(Timestamp).annotate({
    description: "The end of the lease. null: the job is not running.",
  }),
  result: Schema.Unknown.annotateKey({ description: "Any JSON value. null: the job is not completed." }),
  error: Schema.NullOr(Schema.String).annotate({
    description: "Why the job failed. null: it has not failed.",
    examples: [null],
  }),
  mapped_stack: Schema.Unknown.annotateKey({ description: "Any JSON value. null: the job has not failed." }),
  created_at: Timestamp,
  updated_at: Timestamp,
  finished_at: Schema.NullOr(Timestamp),
}).annotate({ identifier: "Job" })
export interface Job extends Schema.Schema.Type<typeof Job> {}
