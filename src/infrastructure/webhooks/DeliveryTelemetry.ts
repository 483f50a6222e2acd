import { Duration, Effect, Layer, Metric, Option } from "effect"
import { HttpTraceContext } from "effect/http"
import { countedCause } from "../../domain/activity/Activity.ts"
import { Counter } from "../../domain/activity/ActivityRecorder.ts"
import { Publish } from "../../domain/activity/LiveFeed.ts"
import { type AttemptRecord, type ClaimedDelivery, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "../../domain/webhooks/Dispatcher.ts"
import { type RetryDecision, stateAfter, isAboutReceiver } from "../../domain/webhooks/RetryDecision.ts"
import { type AttemptOutcome, failureKinds, WebhookSender } from "../../domain/webhooks/WebhookSender.ts"

const counter = (outcome: string) =>
  Metric.counter("gatehouse_deliveries_total", {
    description: "Recorded attempts, by the outcome for the delivery.",
    incremental: true,
    attributes: { outcome },
  })

/** The outcome of an attempt for its delivery. Deliveries that are canceled with their endpoint are not counted. */
const outcomes: Record<RetryDecision["_tag"], Metric.Counter<number>> = {
  Delivered: counter("delivered"),
  Retry: counter("retried"),
  Exhausted: counter("failed"),
  Deactivate: counter("deactivated"),
}

const histogram = (result: string) =>
  Metric.histogram("gatehouse_delivery_attempt_duration_seconds", {
    description: "Duration of attempts that were sent, in seconds, by the status of the answer or the kind of failure.",
    boundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20],
    attributes: { result },
  })

const durations = new Map(
  ["2xx", "3xx", "4xx", "5xx", "other", ...failureKinds.filter((kind) => kind !== "secret")].map((result) => [
    result,
    histogram(result),
  ]),
)

const resultOf = ({ status, failure }: AttemptOutcome) =>
  failure?.kind ?? (status !== null && status >= 200 && status < 600 ? `${Math.floor(status / 100)}xx` : "other")

const logFailedDelivery = ({ delivery, outcome, decision }: AttemptRecord) =>
  Effect.logInfo(
    decision._tag === "Exhausted"
      ? "A delivery failed: no attempt is left"
      : "A delivery failed and deactivated its endpoint",
  ).pipe(
    Effect.annotateLogs({
      orgId: delivery.orgId,
      deliveryId: delivery.deliveryId,
      endpointId: delivery.endpointId,
      status: outcome.status,
      failure: outcome.failure?.kind ?? null,
    }),
  )

const toChange = ({ delivery, outcome, decision }: AttemptRecord) => ({
  topic: "delivery" as const,
  orgId: delivery.orgId,
  data: {
    deliveryId: delivery.deliveryId,
    endpointId: delivery.endpointId,
    state: stateAfter[decision._tag],
    attempts: delivery.attempts + 1,
    status: outcome.status,
    failure: outcome.failure?.kind ?? null,
  },
})

/**
 * Decorates the delivery queue: counts, times and publishes recorded attempts, and logs the deliveries that failed.
 */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const context = yield* Effect.context<never>()
    const activity = yield* Counter
    const publish = yield* Publish
    for (const series of Object.values(outcomes)) series.updateUnsafe(0, context)
    const count = ({ delivery: { endpointId, orgId }, outcome, decision }: AttemptRecord) => {
      outcomes[decision._tag].updateUnsafe(1, context)
      const state = stateAfter[decision._tag]
      activity.count(orgId, "deliveries", state === "pending" ? "retried" : state)
      if (endpointId !== null) {
        const [status, failure] = [outcome.status, outcome.failure?.kind ?? null]
        const cause = countedCause(decision._tag === "Delivered", status, failure)
        const durationMillis = Duration.toMillis(outcome.duration)
        activity.attempt({ orgId, endpointId, cause, durationMillis, status, failure })
      }
      if (isAboutReceiver(outcome)) {
        durations.get(resultOf(outcome))?.updateUnsafe(Duration.toSeconds(outcome.duration), context)
      }
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) =>
        Effect.tap(queue.record(records, now), () => {
          records.forEach(count)
          publish(() => records.map(toChange))
          const failed = records.filter(({ decision }) => stateAfter[decision._tag] === "failed")
          return Effect.forEach(failed, logFailedDelivery, { discard: true })
        }),
    })
  }),
)

/** Span attributes by OpenTelemetry's conventions for HTTP clients: a failed attempt has an `error.type`. */
const outcomeOf = ({ outcome: { status, failure }, decision }: AttemptRecord) => {
  const error = failure?.kind ?? (decision._tag === "Delivered" ? undefined : String(status))
  return {
    "gatehouse.delivery.verdict": decision._tag,
    ...(status === null ? {} : { "http.response.status_code": status }),
    ...(error === undefined ? {} : { "error.type": error }),
  }
}

/** A root span of a request to a receiver, with its host, its org and its endpoint. */
const traced =
  ({ endpointId, orgId, url }: ClaimedDelivery, attributes: Record<string, unknown>) =>
  <A>(sent: Effect.Effect<A>) =>
    sent.pipe(
      Effect.withSpan("webhook.attempt", {
        root: true,
        kind: "client",
        attributes: {
          "gatehouse.org.id": orgId,
          ...attributes,
          ...(endpointId === null ? {} : { "gatehouse.endpoint.id": endpointId }),
          "http.request.method": "POST",
          "server.address": new URL(url).hostname,
        },
      }),
      // The delivery worker turns tracing off for itself.
      Effect.withTracerEnabled(true),
    )

/** Traces each request: a span of a delivery with its attempt, or of a batch with the id that its receiver sees. */
export const dispatcher = Layer.effect(
  Dispatcher,
  Effect.map(Dispatcher, ({ attempt, attemptTogether }) =>
    Dispatcher.of({
      attempt: (delivery) =>
        Effect.tap(attempt(delivery), (record) => Effect.annotateCurrentSpan(outcomeOf(record))).pipe(
          traced(delivery, {
            "gatehouse.delivery.id": delivery.deliveryId,
            "gatehouse.delivery.attempt": delivery.attempts + 1,
          }),
        ),
      attemptTogether: (requestId, deliveries) =>
        Effect.tap(attemptTogether(requestId, deliveries), ([record]) =>
          Effect.annotateCurrentSpan(outcomeOf(record!)),
        ).pipe(
          traced(deliveries[0]!, { "gatehouse.batch.id": requestId, "gatehouse.batch.deliveries": deliveries.length }),
        ),
    }),
  ),
)

/** Sends the span of the attempt to the receiver, in the header `traceparent` (W3C Trace Context). */
export const sender = Layer.effect(
  WebhookSender,
  Effect.map(WebhookSender, ({ send, ...others }) =>
    WebhookSender.of({
      ...others,
      send: (request) =>
        Effect.flatMap(Effect.option(Effect.currentSpan), (span) => {
          if (Option.isNone(span)) return send(request)
          const { traceparent } = HttpTraceContext.toHeaders(span.value)
          return send({ ...request, headers: { ...request.headers, traceparent: traceparent! } })
        }),
    }),
  ),
)
