import { Schema } from "effect"
import { Json, jobFields } from "./Job.ts"
import { Id, NonEmptyText, Timestamp } from "../Schemas.ts"

export const CreateJobSchedule = Schema.Struct({
  ...jobFields,
  cron: NonEmptyText.check(Schema.isMaxLength(255, { expected: "at most 255 characters" })).annotate({
    description: "A cron expression of five fields (minute, hour, day, month, weekday), or six with seconds first.",
    examples: ["0 4 * * *"],
  }),
  timezone: Schema.optionalKey(
    NonEmptyText.check(Schema.isMaxLength(64, { expected: "at most 64 characters" })),
  ).annotate({
    description: "An IANA time zone. Default: UTC.",
    examples: ["Europe/Berlin"],
  }),
}).annotate({ identifier: "CreateJobSchedule" })

/** A schedule: each firing creates a job. */
export const JobSchedule = Schema.Struct({
  schedule_id: Id,
  workflow: Schema.String.annotate({ examples: ["nightly-report"] }),
  cron: Schema.String.annotate({ examples: ["0 4 * * *"] }),
  timezone: Schema.String.annotate({ examples: ["Europe/Berlin"] }),
  input: Json,
  deployment_id: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  callback_url: Schema.NullOr(Schema.String).annotate({ examples: [null] }),
  skip_callbacks: Schema.Boolean.annotate({ examples: [false] }),
  next_at: Timestamp,
  created_at: Timestamp,
}).annotate({ identifier: "JobSchedule" })
export interface JobSchedule extends Schema.Schema.Type<typeof JobSchedule> {}
