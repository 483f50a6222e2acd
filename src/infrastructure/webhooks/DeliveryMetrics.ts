import { Duration, Effect, Layer, Metric } from "effect"
import { wasSent, type Verdict } from "../../domain/webhooks/Verdict.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import type { AttemptOutcome, FailureKind } from "../../domain/webhooks/WebhookSender.ts"

const counter = (outcome: string) =>
  Metric.counter("gatehouse_deliveries_total", {
    description: "Attempts that were recorded, by what became of the delivery.",
    incremental: true,
    attributes: { outcome },
  })

/** What became of a delivery by its attempt. Those that an endpoint's end cancels are not among them. */
const deliveries: Record<Verdict["_tag"], Metric.Counter<number>> = {
  Delivered: counter("delivered"),
  Retry: counter("retried"),
  Exhausted: counter("failed"),
  Deactivate: counter("deactivated"),
}

type Result = "2xx" | "3xx" | "4xx" | "5xx" | "other" | Exclude<FailureKind, "secret">

const histogram = (result: Result) =>
  Metric.histogram("gatehouse_delivery_attempt_duration_seconds", {
    description: "How long attempts took that were sent, in seconds, by the answer's status or why there was none.",
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

const endings = new Set<Verdict["_tag"]>(["Exhausted", "Deactivate"])

const logEnding = ({ delivery, outcome, verdict }: AttemptRecord) =>
  Effect.logInfo(
    verdict._tag === "Exhausted"
      ? "A delivery failed: no attempt is left"
      : "A delivery failed, and its endpoint is deactivated",
  ).pipe(
    Effect.annotateLogs({
      orgId: delivery.orgId,
      deliveryId: delivery.deliveryId,
      endpointId: delivery.endpointId,
      status: outcome.status,
      failure: outcome.failure?.kind ?? null,
    }),
  )

/** The outbox, which counts what is recorded in it and says which deliveries ended without a success. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const context = yield* Effect.context<never>()
    for (const series of Object.values(deliveries)) series.updateUnsafe(0, context)
    const recorded = ({ outcome, verdict }: AttemptRecord) => {
      deliveries[verdict._tag].updateUnsafe(1, context)
      if (wasSent(outcome)) {
        durations.get(resultOf(outcome))?.updateUnsafe(Duration.toSeconds(outcome.duration), context)
      }
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) =>
        Effect.tap(queue.record(records, now), () => {
          for (const record of records) recorded(record)
          const ended = records.filter(({ verdict }) => endings.has(verdict._tag))
          return Effect.forEach(ended, logEnding, { discard: true })
        }),
    })
  }),
)
