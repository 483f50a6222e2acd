import { serviceEventData } from "../../../domain/webhooks/serviceEventData.ts"
import { type JsonSchema, mapValues, schemaRef } from "./OpenApiSchema.ts"

/** The headers of responses, which operations refer to. */
export const responseHeaders = {
  "x-request-id": {
    description: "The id of the request: the request's own if it has one, else a new one. The log has it.",
    required: true,
    schema: { type: "string", maxLength: 128, examples: ["3d1f6c1e-6d3b-4a6e-9a58-0c1f3a3a7e02"] },
  },
  "retry-after": {
    description: "How many seconds to wait before the next try.",
    schema: { type: "integer", format: "int32", minimum: 0, examples: [1] },
  },
  "www-authenticate": {
    description: "How to send a credential.",
    schema: { type: "string", examples: ["Bearer"] },
  },
  "idempotency-replayed": {
    description: "true: this is the stored response of an earlier request with the same Idempotency-Key.",
    schema: { type: "string", enum: ["true"] },
  },
} as const

const webhookHeaders = [
  {
    name: "webhook-id",
    description: "The id of the delivery, the same for all attempts. Ignore a delivery that you have processed.",
    schema: { type: "string", examples: ["01KAF8ZJ4V2M6T8Q0R1S2T3V4W"] },
  },
  {
    name: "webhook-timestamp",
    description: "The time of this attempt, in seconds since 1970. Refuse one that is older than five minutes.",
    schema: { type: "integer", format: "int64", minimum: 0, examples: [1763658000] },
  },
  {
    name: "webhook-signature",
    description:
      "`v1,` and the base64 HMAC-SHA256 of `{webhook-id}.{webhook-timestamp}.{body}` (Standard Webhooks 1.0). Several " +
      "signatures are separated by spaces; one match is enough.",
    schema: { type: "string", examples: ["v1,KqdiZ0gvCf4BYeUVuBWrJbYgXsKET9spbWDLuGyEeC8="] },
  },
  {
    name: "x-webhook-signature",
    description: "The HMAC-SHA256 of the body alone, in lower-case hex. It covers no time.",
    schema: { type: "string", examples: ["09b27a9a8fb8a45a478a19218637418e16bba4b89b8503ab2c40570ef1d9a5d3"] },
  },
  {
    name: "x-event-type",
    description: "The type of the event. It is not signed: decide by `event` of the body.",
    schema: { type: "string", examples: ["job.completed"] },
  },
].map((header) => ({ ...header, in: "header", required: true }))

/** An event that the service sends to endpoints and callbacks. */
interface WebhookEvent {
  readonly summary: string
  readonly description: string
  /** The name of the body's schema. */
  readonly body: string
  readonly example: object
}

const job = {
  job_id: "01KAF8ZJ3N5YQ2R7W9B4C6D8EF",
  nonce: "9f86d081884c7d659a2feaa0c55ad015",
  workflow: "nightly-report",
  deployment_id: null,
}

/** What every event but those of jobs has, with examples. */
const envelope = {
  event_id: "01KAF8ZJ3N5YQ2R7W9B4C6D8EF",
  nonce: "9f86d081884c7d659a2feaa0c55ad015",
  created_at: "2026-11-20T17:00:00.000Z",
}

/** `key.created` as `KeyCreated`. */
const nameOf = (type: string) => type.replace(/(?:^|\.)(\w)/g, (_, letter: string) => letter.toUpperCase())

/** The name of the schema of one of the service's own events. */
const serviceBody = (type: string) => `${nameOf(type)}Event`

/** Every event, by its type. */
const events: Readonly<Record<string, WebhookEvent>> = {
  "job.completed": {
    summary: "A job is completed",
    description: "Sent once for each completed job: to its callback, or else to every active endpoint of the org.",
    body: "JobEvent",
    example: {
      event: "job.completed",
      ...job,
      status: "completed",
      result: { rows: 3 },
      error: null,
      mapped_stack: null,
    },
  },
  "job.failed": {
    summary: "A job has failed",
    description: "Sent once for each failed job: to its callback, or else to every active endpoint of the org.",
    body: "JobEvent",
    example: {
      event: "job.failed",
      ...job,
      status: "failed",
      result: null,
      error: "out of memory",
      mapped_stack: null,
    },
  },
  "invoice.paid": {
    summary: "An event of your own",
    description:
      "Sent for an event that was published, under the type that you gave it (invoice.paid is an example), to the active " +
      "endpoints whose event_types match.",
    body: "PublishedEvent",
    example: { event: "invoice.paid", ...envelope, data: { invoice: "in_42" } },
  },
  ...mapValues(serviceEventData, ({ data, summary }, type) => ({
    summary,
    description: `Sent to the active endpoints whose event_types name ${type} or ${type.split(".")[0]}.*, and to no others.`,
    body: serviceBody(type),
    example: { event: type, ...envelope, data: mapValues(data, ([, example]) => example) },
  })),
}

const text = (description: string) => ({ type: "string", description }) as const

const bodyWith = (description: string, event: string, data: JsonSchema): JsonSchema => ({
  type: "object",
  description: `${description}: always these five fields.`,
  required: ["event", "event_id", "nonce", "created_at", "data"],
  properties: {
    event: text(event),
    event_id: text("The id of the event."),
    nonce: { ...text("32 hex characters, the same for all attempts and receivers."), pattern: "^[0-9a-f]{32}$" },
    created_at: { ...text("When the event was published."), format: "date-time" },
    data,
  },
})

/** The bodies of the service's own events. */
const serviceSchemas = Object.fromEntries(
  Object.entries(serviceEventData).map(([type, { data, summary }]) => [
    serviceBody(type),
    bodyWith(`The body of the event ${type}`, `Always ${type}.`, {
      type: "object",
      description: `${summary}: the ids concerned, and what a reader needs to act.`,
      required: Object.keys(data),
      properties: mapValues(data, ([schema]) => schema),
    }),
  ]),
)

/** The bodies of the events. */
export const eventSchemas: Readonly<Record<string, JsonSchema>> = {
  PublishedEvent: bodyWith("The body of an event of your own", "The type that you gave the event.", {
    description: "What you published: any JSON value.",
  }),
  ...serviceSchemas,
  JobEvent: {
    type: "object",
    description: "The body of an event of a finished job: always these nine fields.",
    required: ["event", "job_id", "nonce", "workflow", "deployment_id", "status", "result", "error", "mapped_stack"],
    properties: {
      event: {
        ...text(
          "The type of the event. Answer 2xx to types that you do not know. Known values: job.completed, job.failed.",
        ),
        "x-extensible-enum": ["job.completed", "job.failed"],
      },
      job_id: text("The id of the job."),
      nonce: { ...text("32 hex characters, the same for all attempts and receivers."), pattern: "^[0-9a-f]{32}$" },
      workflow: text("The workflow of the job."),
      deployment_id: { type: ["string", "null"], description: "The deployment of the job. null: none." },
      status: {
        ...text("The outcome of the job. Known values: completed, failed."),
        "x-extensible-enum": ["completed", "failed"],
      },
      result: { description: "The result: any JSON value. null for a failed job." },
      error: { type: ["string", "null"], description: "Why the job failed. null for a completed job." },
      mapped_stack: { description: "The stack of a failed job: any JSON value, or null." },
    },
  },
}

const operationId = (type: string) =>
  `webhook.${type.replace(/[._-](\w)/g, (_, letter: string) => letter.toUpperCase())}`

const received = {
  "2XX": { description: "Received. Answer within 15 seconds, and work afterwards." },
  "410": { description: "Gone: the endpoint is deactivated and receives nothing more." },
  "4XX": { description: "Not received: the delivery is sent again, for three days." },
}

/** Each event with its headers and its body, by the name of its path item. */
export const webhookItems = Object.fromEntries(
  Object.entries(events).map(([type, { body, description, example, summary }]) => [
    nameOf(type),
    {
      post: {
        operationId: operationId(type),
        tags: ["Webhook events"],
        summary,
        description,
        security: [],
        parameters: webhookHeaders,
        requestBody: {
          required: true,
          description: "The event. Verify the raw bytes of the body before you parse them.",
          content: { "application/json": { schema: schemaRef(body), example } },
        },
        responses: received,
      },
    },
  ]),
)

/**
 * The section `webhooks` of the document. It refers to path items: openapi-generator takes inline ones for operations
 * of the service, and its typescript-fetch imports their bodies without a name then.
 */
export const webhooks = mapValues(events, (_, type) => ({ $ref: `#/components/pathItems/${nameOf(type)}` }))

export const webhookTag = {
  name: "Webhook events",
  description:
    "What the service sends to your endpoints: one signed POST request for each event, until one is answered 2xx.",
}
