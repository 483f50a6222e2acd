import { Schema } from "effect"
import { EndpointHealth } from "../activity/Activity.ts"
import { wholeListFields } from "../Page.ts"
import {
  AnyJson,
  atMost,
  CreatedAt,
  EndpointId,
  Metadata,
  NullableMetadata,
  NonEmptyText,
  SigningSecret,
  Text,
  Timestamp,
  UpdatedAt,
  whole,
} from "../Schemas.ts"
import { aboutAuth, EndpointAuth, ShownAuth } from "./EndpointAuth.ts"
import { EventFilter } from "./EventFilter.ts"
import { Channels, EventPatterns, TestEventType } from "./EventPatterns.ts"

/** The extra headers of one endpoint. */
const maxHeaders = 10
/** A token of RFC 9110, section 5.6.2. */
const nameForm = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/
/** Visible ASCII, with spaces between. */
const valueForm = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/
/** Headers that the service, or the connection, sets. In any case. */
const reserved =
  /^(host|content-.*|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|proxy-.*|cookie|webhook-.*|svix-.*|x-webhook-.*|x-event-type|user-agent|traceparent)$/i

const isDistinct = (names: ReadonlyArray<string>) =>
  new Set(names.map((name) => name.toLowerCase())).size === names.length
const rule = (expected: string, holds: (headers: Readonly<Record<string, string>>) => boolean) =>
  Schema.makeFilter(holds, { expected, toJsonSchema: () => [{}, true] })

/** Extra headers of the requests to an endpoint. */
export const EndpointHeaders = Schema.Record(Schema.String, Schema.String.check(atMost(1024)))
  .check(
    rule(`at most ${maxHeaders} headers`, (headers) => Object.keys(headers).length <= maxHeaders),
    rule("header names (letters, digits and -), each once", (headers) => {
      const names = Object.keys(headers)
      return names.every((name) => nameForm.test(name)) && isDistinct(names)
    }),
    rule(
      "header names that the service does not set itself (host, content-*, webhook-*, svix-*, user-agent and the like)",
      (headers) => Object.keys(headers).every((name) => !reserved.test(name)),
    ),
    rule("header values of 1 to 1,024 visible ASCII characters", (headers) =>
      Object.values(headers).every((value) => valueForm.test(value)),
    ),
  )
  .annotate({ examples: [{ authorization: "Bearer 8e03978e40d5" }] })

const Secret = SigningSecret.annotate({
  description:
    "Signs the deliveries. It must contain more than white space. The service stores it encrypted and never returns it. A " +
    "secret of whsec_ and base64 is a Standard Webhooks key. Any other text is used as its bytes, also one that begins with " +
    "whsec_.",
  examples: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
})
const Url = Text.check(atMost(2048)).annotate({
  description:
    "The URL that receives the deliveries: absolute, https (open mode: also http), without credentials, at most 2,048 " +
    "characters. Its host must not be a private, reserved or special address (open mode: private ones are allowed).",
  examples: ["https://example.com/webhooks"],
})
const Description = Schema.NullOr(Text.check(atMost(1000))).annotate({
  description: "A description in your words.",
  examples: ["Production"],
})

/** Which signatures the requests to an endpoint have. Those with the secret are always among them. */
export const SignatureKind = Schema.Literals(["hmac", "ed25519"])

/** What the body of a request is: the whole event, or its data alone. */
export const PayloadKind = Schema.Literals(["envelope", "data"])

const aboutBatch =
  "A request has the events of a time span: a JSON array of what would be their bodies. null: a request for each event."
/** How events are sent together. */
export const EndpointBatch = Schema.Struct({
  max: whole(1, 100).annotate({ description: "The most events of a request: 1 to 100.", examples: [100] }),
  within_ms: whole(0, 60_000).annotate({
    description: "How long an event may wait for others, in milliseconds: 0 to 60,000.",
    examples: [1000],
  }),
}).annotate({ description: aboutBatch, examples: [{ max: 100, within_ms: 1000 }] })
export type EndpointBatch = typeof EndpointBatch.Type

/** How the headers of Standard Webhooks are named: `webhook-id` or `svix-id`, and the others alike. */
export const HeaderNames = Schema.Literals(["webhook", "svix"])

/** What an endpoint has if its request does not say; null says it, too. All other settings are none. */
export const endpointDefaults = {
  payload: "envelope",
  headerNames: "webhook",
  ordered: false,
  signature: "hmac",
} as const

/** The id of an endpoint in the system of its maker. */
const ExternalId = NonEmptyText.check(atMost(255)).annotate({
  description: "Your own id of the endpoint. Two endpoints of an org never have the same. null: none.",
  examples: ["ep_2Wq5"],
})

/** The optional settings of an endpoint, in requests. `null` is the default. */
const settingFields = {
  external_id: Schema.optionalKey(Schema.NullOr(ExternalId)),
  metadata: Schema.optionalKey(NullableMetadata),
  channels: Schema.optionalKey(
    Schema.NullOr(
      Channels.annotate({
        description:
          "The endpoint receives only events that were published to one of these channels: 1 to 10. null: every event.",
        examples: [["project_42"]],
      }),
    ),
  ),
  filter: Schema.optionalKey(
    Schema.NullOr(EventFilter).annotate({
      description:
        "The endpoint receives only events whose body has these values, by the paths of their fields: see docs/events.md. " +
        "At most 20 conditions and 4 KiB. null: every event.",
    }),
  ),
  payload: Schema.optionalKey(
    Schema.NullOr(
      PayloadKind.annotate({
        description:
          "data: the body is the event's data alone, as it was published. A job's event, which has no data, is sent whole. " +
          `Default: ${endpointDefaults.payload}, the whole event.`,
        examples: ["data"],
      }),
    ),
  ),
  header_names: Schema.optionalKey(
    Schema.NullOr(
      HeaderNames.annotate({
        description:
          "svix: svix-id, svix-timestamp and svix-signature in place of webhook-id, webhook-timestamp and webhook-signature. " +
          `Default: ${endpointDefaults.headerNames}.`,
        examples: ["svix"],
      }),
    ),
  ),
  batch: Schema.optionalKey(Schema.NullOr(EndpointBatch).annotate({ description: aboutBatch })),
  event_types: Schema.optionalKey(Schema.NullOr(EventPatterns)),
  headers: Schema.optionalKey(
    Schema.NullOr(EndpointHeaders).annotate({
      description:
        "Extra headers of every request to the endpoint, such as authorization: at most 10, with values of 1 to 1,024 visible " +
        "ASCII characters. They are stored encrypted, and answers show only their names. null: none.",
    }),
  ),
  auth: Schema.optionalKey(Schema.NullOr(EndpointAuth).annotate({ description: aboutAuth })),
  max_per_second: Schema.optionalKey(
    Schema.NullOr(
      whole(1, 1000).annotate({
        description:
          "The most attempts in any second, over all replicas, retries included: 1 to 1,000. The service spreads them. " +
          "null: unlimited.",
        examples: [50],
      }),
    ),
  ),
  ordered: Schema.optionalKey(
    Schema.NullOr(
      Schema.Boolean.annotate({
        description:
          "true: one delivery at a time, in the order of the events. A delivery that is retried holds the later ones back " +
          `until it is delivered or has failed. A resent one joins at the end. Default: ${endpointDefaults.ordered}.`,
        examples: [true],
      }),
    ),
  ),
  retry_delays: Schema.optionalKey(
    Schema.NullOr(
      Schema.Array(
        Schema.Int.check(
          Schema.isBetween({ minimum: 0, maximum: 86_400 }, { expected: "a whole number of seconds from 0 to 86400" }),
        ),
      )
        .check(Schema.isMaxLength(20, { expected: "at most 20 waits" }))
        .annotate({
          description:
            "The waits before the retries in seconds, each ± 20 %: 0 to 20 numbers up to 86,400. null: the schedule of the " +
            "service. An empty list: no retries.",
          examples: [[5, 60, 600]],
        }),
    ),
  ),
  signature: Schema.optionalKey(
    Schema.NullOr(
      SignatureKind.annotate({
        description:
          "ed25519: webhook-signature also has a signature (v1a) that the org's public key verifies. See " +
          `webhooks/public-key. Default: ${endpointDefaults.signature}.`,
        examples: ["ed25519"],
      }),
    ),
  ),
}

export const CreateWebhookEndpoint = Schema.Struct({
  url: Url,
  signing_secret: Schema.optionalKey(Secret).annotate({
    description: "Signs the deliveries. Required, unless generate_signing_secret is true.",
  }),
  generate_signing_secret: Schema.optionalKey(Schema.Boolean).annotate({
    description: "true, in place of signing_secret: a new secret is made, and the response shows it once.",
  }),
  description: Schema.optionalKey(Description),
  active: Schema.optionalKey(Schema.Boolean).annotate({
    description: "Default: true. An inactive endpoint receives no deliveries.",
  }),
  ...settingFields,
})
  .check(
    Schema.makeFilter(
      ({ generate_signing_secret: isMade = false, signing_secret: secret }) => (secret === undefined) === isMade,
      { expected: "either signing_secret or generate_signing_secret: true", toJsonSchema: () => ({}) },
    ),
  )
  .annotate({
    identifier: "CreateWebhookEndpoint",
    examples: [{ url: "https://example.com/webhooks", generate_signing_secret: true }],
  })

const changeableFields = ["url", "signing_secret", "description", "active", ...Object.keys(settingFields)]

/** The changes of an endpoint. An absent field does not change. */
export const UpdateWebhookEndpoint = Schema.Struct({
  id: EndpointId,
  url: Schema.optionalKey(Url),
  signing_secret: Schema.optionalKey(Secret),
  description: Schema.optionalKey(Description),
  active: Schema.optionalKey(Schema.Boolean).annotate({
    description: "false: the endpoint receives nothing, and its pending deliveries are canceled.",
  }),
  ...settingFields,
})
  .check(
    Schema.makeFilter((update: object) => changeableFields.some((key) => key in update), {
      expected: `id with at least one of ${changeableFields.join(", ")}`,
      toJsonSchema: () => ({ minProperties: 2 }),
    }),
  )
  .annotate({
    identifier: "UpdateWebhookEndpoint",
    examples: [{ id: "01KAHBMKZ3D2X7S5QN8W4V6R9T", active: false }],
  })

/** An endpoint by its id, or by the caller's own. */
export const GetWebhookEndpoint = Schema.Struct({
  id: Schema.optionalKey(EndpointId),
  external_id: Schema.optionalKey(ExternalId),
})
  .check(
    Schema.makeFilter(({ external_id, id }) => (id === undefined) !== (external_id === undefined), {
      expected: "either id or external_id",
      toJsonSchema: () => ({ minProperties: 1, maxProperties: 1 }),
    }),
  )
  .annotate({ identifier: "GetWebhookEndpoint", examples: [{ id: "01KAHBMKZ3D2X7S5QN8W4V6R9T" }] })

export const TestWebhookEndpoint = Schema.Struct({
  id: EndpointId,
  type: Schema.optionalKey(TestEventType),
  data: Schema.optionalKey(AnyJson).annotateKey({
    description:
      "The data of the event: any JSON value, at most 256 KiB and 1,000 levels deep. Of a job.completed it is the result; a " +
      "job.failed has none. Default: made-up data of the type.",
  }),
}).annotate({
  identifier: "TestWebhookEndpoint",
  examples: [{ id: "01KAHBMKZ3D2X7S5QN8W4V6R9T", type: "invoice.paid", data: { invoice: "in_42" } }],
})

/** Why an endpoint is inactive. */
export const DeactivatedReason = Schema.Literals(["gone", "failing", "by_request"])

/** The endpoints that a list names at most. */
const maxListedIds = 1_000

/** Which endpoints of the org to list, by page or by their ids. */
export const ListWebhookEndpoints = Schema.Struct({
  ...wholeListFields,
  webhook_endpoint_ids: Schema.optionalKey(
    Schema.Array(EndpointId)
      .check(Schema.isMaxLength(maxListedIds, { expected: `at most ${maxListedIds} ids` }))
      .annotate({
        description: "Only these endpoints, up to 1000. An id that the org does not have selects nothing.",
        examples: [["01KAHBMKZ3D2X7S5QN8W4V6R9T"]],
      }),
  ),
}).annotate({ identifier: "ListWebhookEndpoints" })
export type ListWebhookEndpoints = Schema.Schema.Type<typeof ListWebhookEndpoints>

/** An endpoint in a list. It never shows its secret. */
export const WebhookEndpoint = Schema.Struct({
  webhook_endpoint_id: EndpointId,
  url: Schema.String.annotate({
    description: "The URL that receives the deliveries.",
    examples: ["https://example.com/webhooks"],
  }),
  description: Schema.NullOr(Schema.String).annotate({
    description: "A description in your words. null: none.",
    examples: ["Production"],
  }),
  active: Schema.Boolean.annotate({ description: "Whether the endpoint receives deliveries." }),
  failing_since: Schema.NullOr(Timestamp).annotate({
    description: "When the endpoint began to fail. null: its last attempt succeeded.",
    examples: [null],
  }),
  deactivated_reason: Schema.NullOr(DeactivatedReason).annotate({
    description:
      "Why the endpoint is inactive. gone: it answered with status 410. failing: it failed for five days, or its org " +
      "reached the limit of pending deliveries. by_request: a request deactivated it. null: it is active.",
    examples: [null],
  }),
  created_at: CreatedAt,
  updated_at: UpdatedAt,
}).annotate({ identifier: "WebhookEndpoint" })
export interface WebhookEndpoint extends Schema.Schema.Type<typeof WebhookEndpoint> {}

const count = (description: string) => Schema.Int.annotate({ description, examples: [0] })

/** An endpoint with its settings and its health. */
export const WebhookEndpointDetail = Schema.Struct({
  ...WebhookEndpoint.fields,
  external_id: Schema.NullOr(Schema.String).annotate({
    description: "Your own id of the endpoint. null: none.",
    examples: ["ep_2Wq5"],
  }),
  metadata: Schema.NullOr(Metadata).annotate({ description: "Your own JSON object. null: none.", examples: [null] }),
  event_types: Schema.NullOr(Schema.Array(Schema.String)).annotate({
    description: "Which events the endpoint receives. null: every event except the service's own.",
    examples: [["invoice.*", "job.failed"]],
  }),
  channels: Schema.NullOr(Schema.Array(Schema.String)).annotate({
    description: "The channels whose events the endpoint receives. null: every event.",
    examples: [null],
  }),
  filter: Schema.NullOr(Metadata).annotate({
    description: "The endpoint receives only events whose body has these values. null: every event.",
    examples: [null],
  }),
  payload: PayloadKind.annotate({ description: "What the body of a request is.", examples: ["envelope"] }),
  header_names: HeaderNames.annotate({ description: "How the headers are named.", examples: ["webhook"] }),
  headers: Schema.NullOr(Schema.Array(Schema.String)).annotate({
    description: "The names of the extra headers. null: none.",
    examples: [["authorization"]],
  }),
  batch: Schema.NullOr(EndpointBatch).annotate({
    description: "How events are sent together. null: a request for each event.",
    examples: [null],
  }),
  auth: Schema.NullOr(ShownAuth).annotate({
    description: "How the requests are authorized, without secrets. null: not at all.",
    examples: [null],
  }),
  max_per_second: Schema.NullOr(Schema.Int).annotate({
    description: "The most attempts in any second. null: unlimited.",
    examples: [50],
  }),
  ordered: Schema.Boolean.annotate({ description: "Whether deliveries are sent one at a time, in order." }),
  retry_delays: Schema.NullOr(Schema.Array(Schema.Int)).annotate({
    description: "The waits before the retries, in seconds. null: the schedule of the service.",
    examples: [null],
  }),
  signature: SignatureKind.annotate({ description: "The signatures of the requests.", examples: ["hmac"] }),
  deactivated_at: Schema.NullOr(Timestamp).annotate({
    description: "When the endpoint became inactive. null: it is active.",
    examples: [null],
  }),
  deliveries: Schema.Struct({
    pending: count("How many wait for an attempt, or are in flight."),
    delivered: count("How many the receiver accepted with a 2xx status."),
    failed: count("How many have no attempt left."),
    canceled: count("How many were canceled, because the endpoint was deactivated."),
    skipped: count("How many were skipped, because the endpoint was inactive."),
  }).annotate({ description: "The number of deliveries in each state, among the newest 10,000 of the endpoint." }),
  health: Schema.Array(EndpointHealth).annotate({
    description: "What its attempts ended with in the last 24 hours, 7 days and 30 days.",
  }),
}).annotate({ identifier: "WebhookEndpointDetail" })
export interface WebhookEndpointDetail extends Schema.Schema.Type<typeof WebhookEndpointDetail> {}
