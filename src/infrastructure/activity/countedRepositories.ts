import { Context, Effect, Layer } from "effect"
import { ActivityRecorder } from "../../domain/activity/ActivityRecorder.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { ValidationCounter } from "../../domain/keys/KeyLookup.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import type { RetryDecision } from "../../domain/webhooks/RetryDecision.ts"

const outcomes: Record<RetryDecision["_tag"], "delivered" | "retried" | "failed"> = {
  Delivered: "delivered",
  Retry: "retried",
  Exhausted: "failed",
  Deactivate: "failed",
}

/** Decorates the delivery queue: counts recorded attempts. */
export const deliveries = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const recorder = yield* ActivityRecorder
    const count = ({ delivery: { endpointId, orgId }, outcome, decision }: AttemptRecord) => {
      recorder.count(orgId, "deliveries", outcomes[decision._tag])
      if (decision._tag === "Delivered" || endpointId === null) return
      recorder.attemptFailed({ orgId, endpointId, status: outcome.status, failure: outcome.failure?.kind ?? null })
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) => Effect.tap(queue.record(records, now), () => Effect.sync(() => records.forEach(count))),
    })
  }),
)

/** Decorates the jobs: counts those that end. A retry, and a report that changes nothing, are not counted. */
export const jobs = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const repository = yield* JobRepository
    const recorder = yield* ActivityRecorder
    const count = (orgId: string, status: JobStatus | null) => {
      if (status === "completed" || status === "failed" || status === "canceled") recorder.count(orgId, "jobs", status)
    }
    return JobRepository.of({
      ...repository,
      report: (end, report) =>
        Effect.tap(repository.report(end, report), ({ status }) => Effect.sync(() => count(end.orgId, status))),
    })
  }),
)

/** Decorates the counter of validations. */
export const validations = Layer.effect(
  ValidationCounter,
  Effect.gen(function* () {
    const count = yield* ValidationCounter
    const recorder = yield* ActivityRecorder
    return ((outcome, source, orgId) => {
      count(outcome, source)
      recorder.count(orgId, "validations", outcome)
    }) as Context.Service.Shape<typeof ValidationCounter>
  }),
)
