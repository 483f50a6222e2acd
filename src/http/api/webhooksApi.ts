import { Schema, SchemaAST, SchemaGetter } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import {
  Delivery,
  DeliveryCause,
  DeliveryDetail,
  DeliveryState,
  Resend,
  ResendFilter,
} from "../../domain/webhooks/DeliveryLog.ts"
import { NextCursor, NextCursorIfMore, pageQuery } from "../../domain/Page.ts"
import { DeliveryId, EndpointId, EventId, Id, JobId, ResendId, time } from "../../domain/Schemas.ts"
import {
  CreateWebhookEndpoint,
  GetWebhookEndpoint,
  ListWebhookEndpoints,
  TestWebhookEndpoint,
  UpdateWebhookEndpoint,
  WebhookEndpoint,
  WebhookEndpointDetail,
} from "../../domain/webhooks/WebhookEndpoint.ts"
import { SelectedEventType } from "../../domain/webhooks/EventPatterns.ts"
import { Conflict, Done, LimitReached, NotFound, noFields } from "./responses.ts"
import { maxFilterSweeps } from "../../domain/sweeps/maxFilterSweeps.ts"
import { about, access, WebhookAuthorization, WebhookIdempotent, WebhookRequestErrors } from "./access.ts"

const PublicKeys = Schema.Struct({
  public_keys: Schema.Array(
    Schema.String.annotate({ examples: ["whpk_nUbiW9KRvZRsIjcbE6Yb8SMcsGvWnVzJgHzzfMn2wXc="] }),
  ).annotate({ description: "The public keys of the org, the newest first." }),
}).annotate({ identifier: "PublicKeys" })

const warning = {
  warning: Schema.optionalKey(Schema.String).annotate({
    description:
      "Why nothing can be sent to the url now: the name of its host has an address that is not called. Absent: it " +
      "has none, or " +
      "it does not resolve now.",
    examples: [
      "Nothing can be sent to this url now: The host has an address that is not called (private, reserved or special).",
    ],
  }),
}

/**
 * A request that names an endpoint by `id`, or by `webhook_endpoint_id` as responses do. The service and its clients
 * have only `id`, so the types stay.
 *
 * @param minProperties of the request, as the document says it
 */
const byEndpointId = <F extends Schema.Struct.Fields & { readonly id: Schema.Constraint }>(
  schema: Schema.Struct<F>,
  minProperties: number,
) => {
  const least = schema.fields.id.ast.context?.isOptional === true ? 0 : 1
  const { examples = [], identifier } = SchemaAST.resolve(schema.ast) as Schema.Annotations.Filter & {
    readonly examples?: ReadonlyArray<never>
  }
  const ids = { id: Schema.optionalKey(EndpointId), webhook_endpoint_id: Schema.optionalKey(EndpointId) }
  const sent: Schema.Codec<{ readonly webhook_endpoint_id?: string }> = Schema.Struct({ ...schema.fields, ...ids })
    .check(
      Schema.makeFilter(
        (request) => {
          const given = Object.keys(ids).filter((name) => name in request).length
          return least <= given && given <= 1
        },
        {
          expected: "an object with exactly one of id and webhook_endpoint_id",
          toJsonSchema: () => ({ minProperties }),
        },
      ),
    )
    .annotate({ identifier, examples }) as never
  return sent.pipe(
    Schema.decodeTo(Schema.toType(schema) as unknown as Schema.Codec<object>, {
      decode: SchemaGetter.transform(({ webhook_endpoint_id: id, ...request }) =>
        id === undefined ? request : { ...request, id },
      ),
      encode: SchemaGetter.transform((request) => request),
    }),
  ) as unknown as Schema.Struct<F>
}

export class WebhooksGroup extends HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("create", "/v1/webhooks/create", {
      payload: CreateWebhookEndpoint,
      success: Schema.Struct({
        ...Done.fields,
        webhook_endpoint_id: EndpointId,
        signing_secret: Schema.optionalKey(Schema.String).annotate({
          description: "The new signing secret of generate_signing_secret. It is never shown again.",
          examples: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        }),
        ...warning,
      }).annotate({
        identifier: "WebhookEndpointCreated",
      }),
      error: [Conflict, LimitReached],
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(
        about.change(
          "Create a webhook endpoint",
          "From now on, an active endpoint receives every event of the org that its event_types, channels and filter match.",
        ),
      ),
    HttpApiEndpoint.post("list", "/v1/webhooks/list", {
      payload: [ListWebhookEndpoints, Schema.Undefined],
      success: Schema.Struct({
        webhook_endpoints: Schema.Array(WebhookEndpoint).annotate({
          description: "The webhook endpoints of the org, the oldest first.",
        }),
        next_cursor: NextCursorIfMore,
      }).annotate({ identifier: "WebhookEndpoints" }),
    }).annotateMerge(
      about.read(
        "List webhook endpoints",
        "All endpoints of the org, or those with the ids, oldest first, without their secrets, up to 1,000 or 4 MiB. " +
          "If there are more, next_cursor continues the list.",
      ),
    ),
    HttpApiEndpoint.post("get", "/v1/webhooks/get", {
      payload: byEndpointId(GetWebhookEndpoint, 1),
      success: WebhookEndpointDetail,
      error: NotFound,
    }).annotateMerge(
      about.read(
        "Get a webhook endpoint",
        "Returns the endpoint, by its id or by your external_id, with its health: since when it fails, when and " +
          "why it was deactivated, and the states of its newest deliveries.",
      ),
    ),
    HttpApiEndpoint.post("update", "/v1/webhooks/update", {
      payload: byEndpointId(UpdateWebhookEndpoint, 2),
      success: Schema.Struct({ ...Done.fields, ...warning }).annotate({ identifier: "WebhookEndpointUpdated" }),
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Change a webhook endpoint",
        "Absent fields stay. A new url or secret applies from the next attempt. The old secret also signs for 24 " +
          "hours. " +
          "active: false cancels the pending deliveries.",
      ),
    ),
    HttpApiEndpoint.post("delete", "/v1/webhooks/delete", {
      payload: byEndpointId(
        Schema.Struct({ id: EndpointId }).annotate({
          identifier: "DeleteWebhookEndpoint",
          examples: [{ id: "01KAHBMKZ3D2X7S5QN8W4V6R9T" }],
        }),
        1,
      ),
      success: Done,
      error: NotFound,
    }).annotateMerge(
      about.change("Delete a webhook endpoint", "Cancels the pending deliveries. Finished deliveries stay readable."),
    ),
    HttpApiEndpoint.post("test", "/v1/webhooks/test", {
      payload: byEndpointId(TestWebhookEndpoint, 1),
      success: Schema.Struct({
        success: Done.fields.success,
        event: Schema.String.annotate({ description: "The type that was sent.", examples: ["invoice.paid"] }),
        payload: Schema.String.annotate({
          description: "The exact request body that was signed and sent.",
          examples: ['{"event":"invoice.paid","event_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","data":{"test":true}}'],
        }),
        delivered: Schema.Boolean.annotate({
          description: "Whether the receiver accepted the event with a 2xx status.",
        }),
        status: Schema.NullOr(Schema.Int).annotate({
          description: "The status of the response. null: there was none.",
          examples: [204],
        }),
        body: Schema.NullOr(Schema.String).annotate({
          description: "The first 4 KiB of the response.",
          examples: [""],
        }),
        error: Schema.NullOr(Schema.String).annotate({ description: "Why there was no response.", examples: [null] }),
      }).annotate({ identifier: "WebhookTestResult" }),
      error: [NotFound, Conflict],
    }).annotateMerge(
      about.resend(
        "Test a webhook endpoint",
        "Sends a signed event immediately, and returns what was sent and the response. The event is stored " +
          "nowhere, and its id " +
          "is made up. A process sends one test at a time for an endpoint, and four for an org. The response to " +
          "any other is 409.",
      ),
    ),
  )
  .add(
    HttpApiEndpoint.post("publicKey", "/v1/webhooks/public-key", {
      payload: noFields,
      success: PublicKeys,
    }).annotateMerge(
      about.read(
        "Get the public keys",
        "The org's public Ed25519 keys, the newest first, for endpoints with signature ed25519: Standard Webhooks " +
          "1.0, v1a. " +
          "Makes the first key if there is none.",
      ),
    ),
  )
  .annotateEndpointsMerge(access.webhooks.ofGroup)
  // The keys are the org's: a portal session does not change them.
  .add(
    HttpApiEndpoint.post("rotatePublicKey", "/v1/webhooks/public-key/rotate", {
      payload: noFields,
      success: PublicKeys,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(about.manage("Rotate the public key", "Makes a new key pair. For 24 hours, both keys sign."))
      .annotateMerge(access.tenant.ofGroup),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateMerge(
    OpenApi.annotations({ title: "Webhook endpoints", description: "URLs that receive the events of finished jobs." }),
  ) {}

export class DeliveriesGroup extends HttpApiGroup.make("deliveries")
  .add(
    HttpApiEndpoint.post("list", "/v1/webhooks/deliveries/list", {
      payload: Schema.Struct({
        webhook_endpoint_id: ResendFilter.fields.webhook_endpoint_id,
        job_id: Schema.optionalKey(JobId.annotate({ description: "Only deliveries of the event of this job." })),
        event_id: Schema.optionalKey(EventId.annotate({ description: "Only deliveries of this event." })),
        event_type: Schema.optionalKey(SelectedEventType).annotate({
          description: "Only deliveries of events of exactly this type.",
          examples: ["job.completed"],
        }),
        state: Schema.optionalKey(DeliveryState),
        status: ResendFilter.fields.status,
        failure: ResendFilter.fields.failure,
        since: ResendFilter.fields.since,
        until: Schema.optionalKey(time("Only deliveries that were created before this time.")),
        ...pageQuery,
      }).annotate({ identifier: "ListDeliveries" }),
      success: Schema.Struct({
        deliveries: Schema.Array(Delivery).annotate({ description: "The deliveries of this page, the newest first." }),
        next_cursor: NextCursor,
      }).annotate({
        identifier: "DeliveryPage",
      }),
    }).annotateMerge(
      about.read(
        "List deliveries",
        "Newest first. Filter by endpoint, job, event, type of the event, state, what the last attempt ended " +
          "with, and time. An id that the org does not have selects nothing. A page may be short or empty although " +
          "next_cursor continues the list: it reads at most 10,000 deliveries.",
      ),
    ),
    HttpApiEndpoint.post("get", "/v1/webhooks/deliveries/get", {
      payload: Schema.Struct({ delivery_id: DeliveryId }).annotate({ identifier: "GetDelivery" }),
      success: DeliveryDetail,
      error: NotFound,
    }).annotateMerge(
      about.read(
        "Get a delivery",
        "Returns the delivery with its payload and every attempt: time, duration, and the receiver's response.",
      ),
    ),
    HttpApiEndpoint.post("retry", "/v1/webhooks/deliveries/retry", {
      payload: Schema.Struct({ delivery_id: DeliveryId }).annotate({ identifier: "RetryDelivery" }),
      success: Done,
      error: [NotFound, Conflict],
    }).annotateMerge(
      about.resend(
        "Resend a delivery",
        "Resends the delivery now, in any state. Its retries start again. 409 while the endpoint is inactive or " +
          "an attempt is in flight.",
      ),
    ),
    HttpApiEndpoint.post("recover", "/v1/webhooks/deliveries/recover", {
      payload: Schema.Struct({
        webhook_endpoint_id: EndpointId,
        since: time("Only events from this time on."),
        until: Schema.optionalKey(time("Only events before this time. Default: now.")),
      }).annotate({
        identifier: "RecoverDeliveries",
      }),
      success: Schema.Struct({
        ...Done.fields,
        recovered: Schema.Int.annotate({
          description:
            "How many deliveries the resend selects. The number is exact up to 10,000; with more, it is a lower bound.",
        }),
      }).annotate({ identifier: "Recovered" }),
      error: [NotFound, Conflict],
    }).annotateMerge(
      about.resend(
        "Resend everything that an endpoint missed",
        "Starts a resend of all deliveries of the endpoint since a time that failed, were canceled, or were skipped " +
          "while it was inactive. It answers at once how many. They become pending as the resend reaches them: " +
          `deliveries/resends shows how far it is. 409 while the endpoint is inactive, or ${maxFilterSweeps} resends of it run.`,
      ),
    ),
    HttpApiEndpoint.post("resend", "/v1/webhooks/deliveries/resend", {
      payload: Schema.Struct({
        filter: ResendFilter,
        dry_run: Schema.optionalKey(Schema.Boolean).annotate({ description: "true: only counts." }),
      }).annotate({ identifier: "ResendDeliveries" }),
      success: Schema.Struct({
        ...Done.fields,
        count: Schema.Int.annotate({
          description: "How many deliveries the filter selects, of active endpoints.",
          examples: [511],
        }),
        is_all: Schema.Boolean.annotate({
          description: "false: count is a lower bound, because it reads at most 10,000 deliveries.",
          examples: [true],
        }),
        resend_id: Schema.NullOr(Id).annotate({ description: "The resend that runs now. null: nothing is sent." }),
      }).annotate({ identifier: "Resent" }),
      error: Conflict,
    }).annotateMerge(
      about.resend(
        "Resend deliveries by a filter",
        "Counts the failed, canceled and skipped deliveries of active endpoints that the filter selects, and " +
          "resends them in the background, oldest first. " +
          `deliveries/resends shows how far it is, and deliveries/resend/cancel ends it. At most ${maxFilterSweeps} of ` +
          `an endpoint run at a time, and ${maxFilterSweeps} over all endpoints; another is a 409.`,
      ),
    ),
    HttpApiEndpoint.post("resends", "/v1/webhooks/deliveries/resends", {
      payload: noFields,
      success: Schema.Struct({
        resends: Schema.Array(Resend).annotate({
          description: "The resends that are running, the newest first: at most 1,000.",
        }),
      }).annotate({ identifier: "Resends" }),
    }).annotateMerge(
      about.read("List running resends", "The resends that are not finished, newest first, up to 1,000."),
    ),
    HttpApiEndpoint.post("cancelResend", "/v1/webhooks/deliveries/resend/cancel", {
      payload: Schema.Struct({ resend_id: ResendId }).annotate({ identifier: "CancelResend" }),
      success: Done,
      error: NotFound,
    }).annotateMerge(
      about.resend(
        "Cancel the rest of a resend",
        "Deliveries that it has sent again stay so; the others stay as they are.",
      ),
    ),
    HttpApiEndpoint.post("causes", "/v1/webhooks/deliveries/causes", {
      payload: Schema.Struct({
        webhook_endpoint_id: ResendFilter.fields.webhook_endpoint_id,
        since: ResendFilter.fields.since,
        until: ResendFilter.fields.until,
      }).annotate({ identifier: "ListCauses" }),
      success: Schema.Struct({
        causes: Schema.Array(DeliveryCause).annotate({ description: "The causes, the most frequent first." }),
      }).annotate({ identifier: "DeliveryCauses" }),
    }).annotateMerge(
      about.read(
        "Group failures by their cause",
        "Groups the newest failures by the outcome of the last attempt: up to 5,000 deliveries that failed for " +
          "good and 5,000 that are retried. Returns the 20 most frequent causes, the most frequent first.",
      ),
    ),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.webhooks.ofGroup)
  .annotateMerge(
    OpenApi.annotations({ title: "Deliveries", description: "Events on their way to their receivers." }),
  ) {}
