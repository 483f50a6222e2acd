import { Duration, Effect, Layer, Metric } from "effect"
import { wasSent, type RetryDecision } from "../../domain/webhooks/RetryDecision.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import type { AttemptOutcome, FailureKind } from "../../domain/webhooks/WebhookSender.ts"

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

type Result = "2xx" | "3xx" | "4xx" | "5xx" | "other" | Exclude<FailureKind, "secret">

const histogram = (result: Result) =>
  Metric.histogram("gatehouse_delivery_attempt_duration_seconds", {
    description: "Duration of attempts that were sent, in seconds, by the status of the answer or the kind of failure.",
    boundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20],
    attributes: { result },
  })

const durations = new Map<string, Metric.Histogram<number>>(
  (
    [
      ...["2xx", "3xx", "4xx", "5xx", "other"],
      ...["timeout", "dns", "refused_address", "tls", "connection", "bad_response"],
    ] as const satisfies ReadonlyArray<Result>
  ).map((result) => [result, histogram(result)]),
)

const resultOf = ({ status, failure }: AttemptOutcome) =>
  failure?.kind ?? (status !== null && status >= 200 && status < 600 ? `${Math.floor(status / 100)}xx` : "other")

const endsInFailure = new Set<RetryDecision["_tag"]>(["Exhausted", "Deactivate"])

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

/** Decorates the delivery queue: counts and times recorded attempts, and logs the deliveries that failed. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const context = yield* Effect.context<never>()
    for (const series of Object.values(outcomes)) series.updateUnsafe(0, context)
    const count = ({ outcome, decision }: AttemptRecord) => {
      outcomes[decision._tag].updateUnsafe(1, context)
      if (wasSent(outcome)) {
        durations.get(resultOf(outcome))?.updateUnsafe(Duration.toSeconds(outcome.duration), context)
      }
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) =>
        Effect.tap(queue.record(records, now), () => {
          records.forEach(count)
          const failed = records.filter(({ decision }) => endsInFailure.has(decision._tag))
          return Effect.forEach(failed, logFailedDelivery, { discard: true })
        }),
    })
  }),
)
