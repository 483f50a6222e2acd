import { Schema } from "effect"
import { Conflict, NotFound } from "../Errors.ts"
import { CreatedAt, UpdatedAt, whole } from "../Schemas.ts"
import { maxOwnDelaySeconds } from "./JobEnd.ts"
import { ExpiresInSeconds, StoredWorkflowName, WorkflowName } from "./Job.ts"

/** Jobs that run at once, of a workflow or of a key: a claim counts them. */
const maxConcurrency = 1_000
/** Workflows of an org that have settings. */
export const maxWorkflows = 500

const Concurrency = whole(1, maxConcurrency)

/** How many jobs may start in a window. */
const Rate = Schema.Struct({
  limit: whole(1, 1_000_000).annotate({
    description: "How many jobs start in the window at most, 1 to 1000000.",
    examples: [100],
  }),
  window_seconds: whole(1, 86_400).annotate({ description: "The window, 1 to 86400 seconds.", examples: [60] }),
}).annotate({
  identifier: "WorkflowRate",
  description: "In any time of this length, claims start at most so many jobs of the workflow.",
})

const Seconds = whole(1, 86_400)

/** How jobs are tried again. */
const Retry = Schema.Struct({
  attempts: whole(1, 20).annotate({ description: "How often a job is claimed at most, 1 to 20.", examples: [5] }),
  delays: Schema.optionalKey(
    Schema.Array(Seconds).check(
      Schema.isMinLength(1, { expected: "at least 1 delay" }),
      Schema.isMaxLength(19, { expected: "at most 19 delays" }),
    ),
  ).annotate({
    description:
      "The waits before the attempts after the first, in seconds. The last one repeats. Not with base_seconds.",
    examples: [[5, 60, 600]],
  }),
  base_seconds: Schema.optionalKey(Seconds).annotate({
    description: "The wait before the second attempt, in seconds. It doubles each time. Not with delays.",
    examples: [10],
  }),
  max_seconds: Schema.optionalKey(Seconds).annotate({
    description: `The longest wait with base_seconds. Default: ${maxOwnDelaySeconds}.`,
    examples: [3600],
  }),
})
  .check(
    Schema.makeFilter(
      (retry: { readonly delays?: unknown; readonly base_seconds?: number; readonly max_seconds?: number }) =>
        !(retry.delays !== undefined && (retry.base_seconds ?? retry.max_seconds) !== undefined) &&
        (retry.base_seconds !== undefined || retry.max_seconds === undefined),
      { expected: "attempts with delays, or with base_seconds and max_seconds", toJsonSchema: () => [{}, true] },
    ),
  )
  .annotate({
    identifier: "WorkflowRetry",
    description:
      "How often jobs that fail with retry are tried again, in place of their max_attempts and retry_delay_seconds. Each wait is " +
      "up to a fifth shorter or longer.",
  })

const settings = {
  concurrency: Concurrency.annotate({
    description: `How many jobs of the workflow run at once, 1 to ${maxConcurrency}.`,
    examples: [20],
  }),
  concurrency_per_key: Concurrency.annotate({
    description: `How many jobs of the workflow with the same concurrency_key run at once, 1 to ${maxConcurrency}. Jobs without a key have only the other limits.`,
    examples: [1],
  }),
  rate: Rate,
  retry: Retry,
  expires_in_seconds: ExpiresInSeconds.annotate({
    description: "A new job without its own expires_in_seconds fails when nobody has claimed it after this time.",
    examples: [3600],
  }),
}

/** The settings of a workflow. An absent one has no limit. */
export const SetWorkflow = Schema.Struct({
  workflow: WorkflowName,
  concurrency: Schema.optionalKey(settings.concurrency),
  concurrency_per_key: Schema.optionalKey(settings.concurrency_per_key),
  rate: Schema.optionalKey(settings.rate),
  retry: Schema.optionalKey(settings.retry),
  expires_in_seconds: Schema.optionalKey(settings.expires_in_seconds),
})
  .check(
    Schema.makeFilter((input: object) => Object.keys(settings).some((name) => name in input), {
      expected: `workflow with at least one of ${Object.keys(settings).join(", ")}`,
      toJsonSchema: () => [{}, true],
    }),
  )
  .annotate({
    identifier: "SetWorkflow",
    examples: [{ workflow: "nightly-report", concurrency: 20, concurrency_per_key: 1 }],
  })

/** A workflow with its settings. */
export const Workflow = Schema.Struct({
  workflow: StoredWorkflowName,
  concurrency: Schema.NullOr(settings.concurrency).annotate({
    description: "How many of its jobs run at once. null: unlimited.",
  }),
  concurrency_per_key: Schema.NullOr(settings.concurrency_per_key).annotate({
    description: "How many of its jobs with the same concurrency_key run at once. null: unlimited.",
  }),
  rate: Schema.NullOr(settings.rate).annotate({
    description: "How many of its jobs start in a window. null: unlimited.",
  }),
  retry: Schema.NullOr(settings.retry).annotate({
    description: "How its jobs are tried again. null: as each job says.",
  }),
  expires_in_seconds: Schema.NullOr(settings.expires_in_seconds).annotate({
    description: "After how long a new job fails that nobody claims. null: never, unless the job says so.",
  }),
  created_at: CreatedAt,
  updated_at: UpdatedAt,
}).annotate({ identifier: "Workflow" })
export interface Workflow extends Schema.Schema.Type<typeof Workflow> {}

export const workflowNotFound = () => new NotFound({ error: "The workflow has no settings." })
export const tooManyWorkflows = () =>
  new Conflict({
    error: `${maxWorkflows} workflows of the org have settings, which is the limit. Delete those of another workflow.`,
  })
