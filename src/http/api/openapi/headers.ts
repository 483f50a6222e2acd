/** The headers of answers, which operations refer to. */
export const answerHeaders = {
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
    description: "true: this is the stored answer of an earlier request with the same Idempotency-Key.",
    schema: { type: "string", enum: ["true"] },
  },
} as const

/** The headers of a webhook. */
export const webhookHeaders = [
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
