import { Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

export const EventType = Schema.Literals(["job.completed", "job.failed"])
export type EventType = typeof EventType.Type

/**
 * `pending` is under way; `skipped`: the endpoint was inactive when the event came; `canceled`: the endpoint was
 * deleted or deactivated first; `failed`: no attempt is left.
 */
export const DeliveryState = Schema.Literals(["pending", "delivered", "failed", "canceled", "skipped"])
export type DeliveryState = typeof DeliveryState.Type

/** One event on its way to one receiver. */
export const Delivery = Schema.Struct({
  delivery_id: Id.annotate({ description: "Also the webhook-id header of every attempt." }),
  event_id: Id,
  job_id: Id,
  webhook_endpoint_id: Schema.NullOr(Id).annotate({ description: "null: the job's own callback." }),
  event: EventType,
  state: DeliveryState,
  attempts: Schema.Int,
  next_attempt_at: Schema.NullOr(Timestamp).annotate({ description: "While it is pending." }),
  created_at: Timestamp,
  updated_at: Timestamp,
}).annotate({ identifier: "Delivery" })
export interface Delivery extends Schema.Schema.Type<typeof Delivery> {}

/** One attempt, and what came of it. */
export const DeliveryAttempt = Schema.Struct({
  number: Schema.Int,
  started_at: Timestamp,
  duration_ms: Schema.Int.annotate({ examples: [12] }),
  status: Schema.NullOr(Schema.Int).annotate({
    description: "The answer's status; null when there was none.",
    examples: [503],
  }),
  failure: Schema.NullOr(Schema.String).annotate({
    description:
      "timeout, dns, refused_address, tls, connection, bad_response or secret; null when there was an answer.",
    examples: [null],
  }),
  error: Schema.NullOr(Schema.String).annotate({ description: "The failure in a sentence.", examples: [null] }),
  body: Schema.NullOr(Schema.String).annotate({ description: "The answer's first 4 KiB.", examples: ["busy"] }),
}).annotate({ identifier: "DeliveryAttempt" })
export interface DeliveryAttempt extends Schema.Schema.Type<typeof DeliveryAttempt> {}

export const DeliveryDetail = Schema.Struct({
  ...Delivery.fields,
  payload: Schema.String.annotate({
    description: "The exact bytes that are signed and sent.",
    examples: [
      '{"event":"job.completed","job_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","workflow":"nightly-report","deployment_id":null,"status":"completed","result":{"rows":3},"error":null,"mapped_stack":null}',
    ],
  }),
  attempt_log: Schema.Array(DeliveryAttempt),
}).annotate({ identifier: "DeliveryDetail" })
export interface DeliveryDetail extends Schema.Schema.Type<typeof DeliveryDetail> {}
