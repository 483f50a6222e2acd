import { Schema } from "effect"
import { Id, SigningSecret, Text, Timestamp } from "../Schemas.ts"

const Secret = SigningSecret.annotate({
  description:
    "Signs the deliveries. Not only white space. Encrypted at rest, in no answer. whsec_ + base64 makes a Standard " +
    "Webhooks key.",
  examples: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
})
const Url = Text.annotate({
  description:
    "Absolute http or https (guarded mode: https) without credentials, 2,048 characters at most. Its host is no " +
    "private, reserved or special address (open mode: private ones are allowed).",
  examples: ["https://example.com/webhooks"],
})
const Description = Schema.NullOr(Text).annotate({ examples: ["Production"] })

export const CreateWebhookEndpoint = Schema.Struct({
  url: Url,
  signing_secret: Secret,
  description: Schema.optionalKey(Description),
  active: Schema.optionalKey(Schema.Boolean).annotate({
    description: "Default true. An inactive endpoint receives no deliveries.",
  }),
}).annotate({ identifier: "CreateWebhookEndpoint" })

/** The changes of an endpoint; what is absent stays. */
export const UpdateWebhookEndpoint = Schema.Struct({
  id: Id,
  url: Schema.optionalKey(Url),
  signing_secret: Schema.optionalKey(Secret),
  description: Schema.optionalKey(Description),
  active: Schema.optionalKey(Schema.Boolean),
})
  .check(
    Schema.makeFilter(
      (update: object) => ["url", "signing_secret", "description", "active"].some((key) => key in update),
      {
        expected: "id with at least one of url, signing_secret, description, active",
        toJsonSchema: () => [{}, true],
      },
    ),
  )
  .annotate({
    identifier: "UpdateWebhookEndpoint",
    examples: [{ id: "01KAHBMKZ3D2X7S5QN8W4V6R9T", active: false }],
  })

/** An endpoint as lists show it: without its secret. */
export const WebhookEndpoint = Schema.Struct({
  webhook_endpoint_id: Id,
  url: Schema.String.annotate({ examples: ["https://example.com/webhooks"] }),
  description: Schema.NullOr(Schema.String).annotate({ examples: ["Production"] }),
  active: Schema.Boolean,
  created_at: Timestamp,
  updated_at: Timestamp,
}).annotate({ identifier: "WebhookEndpoint" })
export interface WebhookEndpoint extends Schema.Schema.Type<typeof WebhookEndpoint> {}

/** Why an endpoint is inactive. */
export const DeactivatedReason = Schema.Literals(["gone", "failing", "by_request"])

const count = Schema.Int.annotate({ examples: [0] })

/** An endpoint with its health. */
export const WebhookEndpointDetail = Schema.Struct({
  ...WebhookEndpoint.fields,
  failing_since: Schema.NullOr(Timestamp).annotate({
    description: "Since when its attempts fail without one success; null when the last one succeeded.",
    examples: [null],
  }),
  deactivated_at: Schema.NullOr(Timestamp).annotate({ description: "null while it is active.", examples: [null] }),
  deactivated_reason: Schema.NullOr(DeactivatedReason).annotate({
    description:
      "gone: it answered 410; failing: five days of failures, or more pending deliveries than its org may have; " +
      "by_request: a request did it.",
    examples: [null],
  }),
  deliveries: Schema.Struct({
    pending: count,
    delivered: count,
    failed: count,
    canceled: count,
    skipped: count,
  }).annotate({ description: "How many of its newest 10,000 deliveries are in each state." }),
}).annotate({ identifier: "WebhookEndpointDetail" })
export interface WebhookEndpointDetail extends Schema.Schema.Type<typeof WebhookEndpointDetail> {}
