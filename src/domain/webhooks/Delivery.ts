import { Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

export const DeliveryState = Schema.Literals(["pending", "delivered", "failed", "canceled", "skipped"]).annotate({
  description:
    "pending: an attempt is in flight or follows. delivered: the receiver answered with a 2xx status. failed: no attempt " +
    "is left. canceled: the endpoint was deleted or deactivated before the delivery. skipped: the endpoint was inactive " +
    "when the event was created.",
})
export type DeliveryState = typeof DeliveryState.Type

/** One event to one receiver. */
export const Delivery = Schema.Struct({
  delivery_id: Id.annotate({ description: "The id of the delivery. Every attempt sends it as the webhook-id header." }),
  event_id: Id,
  job_id: Schema.NullOr(Id).annotate({ description: "The finished job. null: the event has no job." }),
  webhook_endpoint_id: Schema.NullOr(Id).annotate({
    description: "The endpoint that receives the event. null: the job's callback_url receives it.",
  }),
  event: Schema.String.annotate({ description: "The type of the event.", examples: ["job.completed"] }),
  state: DeliveryState,
  attempts: Schema.Int,
  next_attempt_at: Schema.NullOr(Timestamp).annotate({
    description: "The time of the next attempt. null: the delivery is not pending.",
  }),
  created_at: Timestamp,
  updated_at: Timestamp,
}).annotate({ identifier: "Delivery" })
export interface Delivery extends Schema.Schema.Type<typeof Delivery> {}

/** One HTTP request of a delivery, and its outcome. */
export const DeliveryAttempt = Schema.Struct({
  number: Schema.Int,
  started_at: Timestamp,
  duration_ms: Schema.Int.annotate({ examples: [12] }),
  status: Schema.NullOr(Schema.Int).annotate({
    description: "The HTTP status of the response. null: there was no response.",
    examples: [503],
  }),
  failure: Schema.NullOr(Schema.String).annotate({
    description:
      "Why the attempt failed: timeout, dns, refused_address, tls, connection, bad_response or secret. null: the receiver " +
      "answered with a complete response.",
    examples: [null],
  }),
  error: Schema.NullOr(Schema.String).annotate({ description: "The failure in a sentence.", examples: [null] }),
  body: Schema.NullOr(Schema.String).annotate({
    description: "The first 4 KiB of the response body.",
    examples: ["busy"],
  }),
}).annotate({ identifier: "DeliveryAttempt" })
export interface DeliveryAttempt extends Schema.Schema.Type<typeof DeliveryAttempt> {}

export const DeliveryDetail = Schema.Struct({
  ...Delivery.fields,
  payload: Schema.String.annotate({
    description: "The exact request body that every attempt signs and sends.",
    examples: [
      '{"event":"job.completed","job_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","workflow":"nightly-report","deployment_id":null,"status":"completed","result":{"rows":3},"error":null,"mapped_stack":null}',
    ],
  }),
  attempt_log: Schema.Array(DeliveryAttempt),
}).annotate({ identifier: "DeliveryDetail" })
export interface DeliveryDetail extends Schema.Schema.Type<typeof DeliveryDetail> {}
