import { Schema } from "effect"
import { howMany, time, Timestamp } from "../Schemas.ts"
import { StoredWorkflowName } from "./Job.ts"

/** The unfinished jobs of an org. */
export const JobQueue = Schema.Struct({
  workflows: Schema.Array(
    Schema.Struct({
      workflow: StoredWorkflowName,
      queued: howMany("Jobs that wait for a claim.", 240),
      delayed: howMany("Jobs whose time to run has not come, or that are tried again later.", 3),
      running: howMany("Jobs that workers have claimed.", 20),
      is_all: Schema.Boolean.annotate({ description: "false: the numbers are lower bounds.", examples: [true] }),
    }),
  ).annotate({ description: "Up to 100 workflows with unfinished jobs, the most queued jobs first." }),
  is_all: Schema.Boolean.annotate({
    description: "false: there may be other workflows with unfinished jobs.",
    examples: [true],
  }),
  oldest_due_at: Schema.NullOr(Timestamp).annotate({
    description:
      "Since when the queued job that waits longest is due. Looks at the 50 jobs of each priority that were created first. null: none is queued.",
  }),
  created: howMany("Jobs that were created since created_since. Counted up to 10,000.", 75),
  created_since: time("Five minutes ago."),
  keys: Schema.Array(
    Schema.Struct({
      workflow: StoredWorkflowName,
      concurrency_key: Schema.String.annotate({ description: "The key of the jobs.", examples: ["customer-17"] }),
      queued: howMany("Jobs with this key that wait for a claim.", 200),
      running: howMany("Jobs with this key that workers have claimed.", 1),
    }),
  ).annotate({ description: "The ten concurrency keys with the most queued jobs, among the jobs that were counted." }),
}).annotate({ identifier: "JobQueue" })
export interface JobQueue extends Schema.Schema.Type<typeof JobQueue> {}
