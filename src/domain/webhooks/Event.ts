import { DateTime, Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

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

export const eventType = (status: FinishedJob["status"]) => `job.${status}` as const

/**
 * The body of a job's event. It always has all nine fields. It is made once: every attempt of every delivery signs and
 * sends the same bytes.
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

/** An event without a job: one that a user publishes, or one of the service's own. */
export interface NewEvent {
  readonly id: string
  readonly type: string
  /** The exact bytes of every delivery. */
  readonly body: string
  readonly idempotencyKey: string | null
  readonly createdAt: DateTime.Utc
}

/** The body of an event without a job. `data` is its JSON text, so that it is encoded once. */
export const ownBody = (event: Omit<NewEvent, "body" | "idempotencyKey">, nonce: string, data: string): string => {
  const { id, type, createdAt } = event
  const head = JSON.stringify({ event: type, event_id: id, nonce, created_at: DateTime.formatIso(createdAt) })
  return `${head.slice(0, -1)},"data":${data}}`
}

/** An event in a list. */
export const Event = Schema.Struct({
  event_id: Id,
  type: Schema.String.annotate({ examples: ["invoice.paid"] }),
  job_id: Schema.NullOr(Id).annotate({
    description: "The finished job. null: the event has no job.",
    examples: [null],
  }),
  created_at: Timestamp,
}).annotate({ identifier: "Event" })
export interface Event extends Schema.Schema.Type<typeof Event> {}

export const EventDetail = Schema.Struct({
  ...Event.fields,
  payload: Schema.String.annotate({
    description: "The exact request body that every attempt of its deliveries signs and sends.",
    examples: [
      '{"event":"invoice.paid","event_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","created_at":"2026-11-20T17:00:00.000Z","data":{"invoice":"in_42"}}',
    ],
  }),
}).annotate({ identifier: "EventDetail" })
export interface EventDetail extends Schema.Schema.Type<typeof EventDetail> {}

/** An event type that the org has events of. */
export const SeenEventType = Schema.Struct({
  type: Schema.String.annotate({ examples: ["invoice.paid"] }),
  last_at: Timestamp.annotate({ description: "When the newest event of this type was created." }),
}).annotate({ identifier: "SeenEventType" })
export interface SeenEventType extends Schema.Schema.Type<typeof SeenEventType> {}
