import { Schema } from "effect"
import { CreatedAt, EventId, Id, time } from "../Schemas.ts"
import type { NewServiceEvent } from "../ServiceEvent.ts"
import type { DeactivatedReason, PayloadKind } from "./WebhookEndpoint.ts"

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

export const jobEventType = (status: FinishedJob["status"]) => `job.${status}` as const

/**
 * The body of a job's event. It always has all nine fields. It is made once: every attempt of every delivery signs and
 * sends the same bytes.
 */
export const jobEventBody = (job: FinishedJob, nonce: string): string =>
  JSON.stringify({
    event: jobEventType(job.status),
    job_id: job.job_id,
    nonce,
    workflow: job.workflow,
    deployment_id: job.deployment_id,
    status: job.status,
    result: job.result ?? null,
    error: job.error,
    mapped_stack: job.mapped_stack ?? null,
  })

/** The JSON text of the data in the body of an event; the whole body of a job's event, which has none. */
const dataOf = (body: string): string => {
  // No text of a caller comes before the data, and a type has no quotation mark.
  const start = body.indexOf(`","data":`)
  return body.startsWith(`{"event":"job.`) || start === -1 ? body : body.slice(start + `","data":`.length, -1)
}

/** The body of a request to a receiver. */
export const sentBody = (payload: typeof PayloadKind.Type, body: string) => (payload === "data" ? dataOf(body) : body)

/** The body of a request with several events, and what stands in place of their types. */
export const batchBody = (bodies: ReadonlyArray<string>) => `[${bodies.join(",")}]`
export const batchType = "batch"

/** An event in a list. */
export const Event = Schema.Struct({
  event_id: EventId,
  type: Schema.String.annotate({ description: "The type of the event.", examples: ["invoice.paid"] }),
  job_id: Schema.NullOr(Id).annotate({
    description: "The finished job. null: the event has no job.",
    examples: [null],
  }),
  created_at: CreatedAt,
}).annotate({ identifier: "Event" })
export interface Event extends Schema.Schema.Type<typeof Event> {}

export const EventDetail = Schema.Struct({
  ...Event.fields,
  channels: Schema.Array(Schema.String).annotate({
    description: "The channels that it was published to. Empty: none.",
    examples: [[]],
  }),
  payload: Schema.String.annotate({
    description:
      "The exact request body that every attempt of its deliveries signs and sends. An endpoint with payload data gets the " +
      "value of its field data.",
    examples: [
      '{"event":"invoice.paid","event_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","created_at":"2026-11-20T17:00:00.000Z","data":{"invoice":"in_42"}}',
    ],
  }),
}).annotate({ identifier: "EventDetail" })
export interface EventDetail extends Schema.Schema.Type<typeof EventDetail> {}

/** An event type that the org has events of. */
export const SeenEventType = Schema.Struct({
  type: Schema.String.annotate({ description: "The type of the events.", examples: ["invoice.paid"] }),
  last_at: time("When the newest event of this type was created."),
}).annotate({ identifier: "SeenEventType" })
export interface SeenEventType extends Schema.Schema.Type<typeof SeenEventType> {}

export const deactivated = (endpointId: string, reason: typeof DeactivatedReason.Type): NewServiceEvent => ({
  type: "endpoint.deactivated",
  data: { webhook_endpoint_id: endpointId, reason },
  except: endpointId,
})
