import { Effect, Layer, Option } from "effect"
import { HttpTraceContext } from "effect/http"
import type { AttemptRecord } from "../../domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "../../domain/webhooks/Dispatcher.ts"
import { WebhookSender } from "../../domain/webhooks/WebhookSender.ts"

/** Span attributes by OpenTelemetry's conventions for HTTP clients: a failed attempt has an `error.type`. */
const outcomeOf = ({ outcome: { status, failure }, decision }: AttemptRecord) => ({
  "gatehouse.delivery.verdict": decision._tag,
  ...(status === null ? {} : { "http.response.status_code": status }),
  ...(failure === null
    ? decision._tag === "Delivered"
      ? {}
      : { "error.type": String(status) }
    : { "error.type": failure.kind }),
})

/** Traces each attempt: a root span with the host, the org, the delivery and the outcome. */
export const dispatcher = Layer.effect(
  Dispatcher,
  Effect.map(Dispatcher, ({ attempt }) =>
    Dispatcher.of({
      attempt: (delivery) =>
        attempt(delivery).pipe(
          Effect.tap((record) => Effect.annotateCurrentSpan(outcomeOf(record))),
          Effect.withSpan("webhook.attempt", {
            root: true,
            kind: "client",
            attributes: {
              "gatehouse.org.id": delivery.orgId,
              "gatehouse.delivery.id": delivery.deliveryId,
              "gatehouse.delivery.attempt": delivery.attempts + 1,
              ...(delivery.endpointId === null ? {} : { "gatehouse.endpoint.id": delivery.endpointId }),
              "http.request.method": "POST",
              "server.address": new URL(delivery.url).hostname,
            },
          }),
          // The delivery worker turns tracing off for itself.
          Effect.withTracerEnabled(true),
        ),
    }),
  ),
)

/** Sends the span of the attempt to the receiver, in the header `traceparent` (W3C Trace Context). */
export const sender = Layer.effect(
  WebhookSender,
  Effect.map(WebhookSender, ({ send }) =>
    WebhookSender.of({
      send: (request) =>
        Effect.flatMap(Effect.option(Effect.currentSpan), (span) => {
          if (Option.isNone(span)) return send(request)
          const { traceparent } = HttpTraceContext.toHeaders(span.value)
          return send({ ...request, headers: { ...request.headers, traceparent: traceparent! } })
        }),
    }),
  ),
)
