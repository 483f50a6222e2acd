import type { EventType } from "./Delivery.ts"

/** The fields of a finished job that its event contains. Values are already JSON. */
export interface FinishedJob {
  readonly job_id: string
  readonly workflow: string
  readonly deployment_id: string | null
  readonly status: "completed" | "failed"
  readonly result: unknown
  readonly error: string | null
  readonly mapped_stack: unknown
}

export const eventType = (status: FinishedJob["status"]): EventType => `job.${status}`

/**
 * The body of an event. It always has all nine fields. It is made once: every attempt of every delivery signs and sends
 * the same bytes.
 */
export const eventBody = (job: FinishedJob, nonce: string): string =>
  JSON.stringify({
    event: eventType(job.status),
    job_id: job.job_id,
    nonce,
    workflow: job.workflow,
    deployment_id: job.deployment_id,
    status: job.status,
    result: job.result ?? null,
    error: job.error,
    mapped_stack: job.mapped_stack ?? null,
  })
