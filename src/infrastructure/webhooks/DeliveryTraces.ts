import { Effect, Layer, Option } from "effect"
import { HttpTraceContext } from "effect/http"
import type { AttemptRecord } from "../../domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "../../domain/webhooks/Dispatcher.ts"
import { WebhookSender } from "../../domain/webhooks/WebhookSender.ts"

/** By OpenTelemetry's conventions for clients: an attempt that went wrong says how in `error.type`. */
const outcomeOf = ({ outcome: { status, failure }, verdict }: AttemptRecord) => ({
  "gatehouse.delivery.verdict": verdict._tag,
  ...(status === null ? {} : { "http.response.status_code": status }),
  ...(failure === null
    ? verdict._tag === "Delivered"
      ? {}
      : { "error.type": String(status) }
    : { "error.type": failure.kind }),
})

/** Makes each attempt a trace of its own, with one span that tells where it went, whose it was and what came of it. */
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
          // The worker has its own switched off.
          Effect.withTracerEnabled(true),
        ),
    }),
  ),
)

/** Tells receivers which span they were called in, by `traceparent` (W3C Trace Context). */
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
