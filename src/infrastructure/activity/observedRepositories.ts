import { Context, Duration, Effect, Layer, Result, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { countedCause } from "../../domain/activity/Activity.ts"
import { ActivityRecorder } from "../../domain/activity/ActivityRecorder.ts"
import { LiveChannel, LiveFeed } from "../../domain/activity/LiveFeed.ts"
import { DeploymentRepository } from "../../domain/deployments/Deployments.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { ValidationCounter } from "../../domain/keys/KeyLookup.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { stateAfter } from "../../domain/webhooks/RetryDecision.ts"
import { WebhookEndpointRepository } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { Notifications } from "../database/Notifications.ts"
import { texts } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"

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

/** Decorates the delivery queue: counts recorded attempts, and publishes them to the live feed. */
export const deliveries = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const { isWatched, publish } = yield* LiveFeed
    const recorder = yield* ActivityRecorder
    const count = ({ delivery: { endpointId, orgId }, outcome, decision }: AttemptRecord) => {
      const state = stateAfter[decision._tag]
      recorder.count(orgId, "deliveries", state === "pending" ? "retried" : state)
      if (endpointId === null) return
      const [status, failure] = [outcome.status, outcome.failure?.kind ?? null]
      const cause = countedCause(decision._tag === "Delivered", status, failure)
      const durationMillis = Duration.toMillis(outcome.duration)
      recorder.attempt({ orgId, endpointId, cause, durationMillis, status, failure })
    }
    const recorded = (records: ReadonlyArray<AttemptRecord>) => {
      records.forEach(count)
      if (isWatched()) publish(records.map(toChange))
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) => Effect.tap(queue.record(records, now), () => Effect.sync(() => recorded(records))),
    })
  }),
)

/**
 * Decorates the jobs: publishes changes of their state to the live feed, and counts those that end. A retry, and a
 * report that changes nothing, are not counted.
 */
export const jobs = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const repository = yield* JobRepository
    const { isWatched, publish } = yield* LiveFeed
    const recorder = yield* ActivityRecorder
    const changed = (orgId: string, jobIds: ReadonlyArray<string>, status: JobStatus) =>
      Effect.sync(() => {
        if (isWatched()) publish(jobIds.map((jobId) => ({ topic: "job", orgId, data: { jobId, status } })))
      })
    const reported = (orgId: string, jobId: string, status: JobStatus | null) => {
      if (status === null) return Effect.void
      if (status === "completed" || status === "failed" || status === "canceled") recorder.count(orgId, "jobs", status)
      return changed(orgId, [jobId], status)
    }
    const idsOf = (jobs: ReadonlyArray<{ readonly job_id: string }>) => jobs.map(({ job_id }) => job_id)
    return JobRepository.of({
      ...repository,
      insert: (jobs) =>
        Effect.tap(repository.insert(jobs), (made) =>
          changed(
            jobs[0]!.orgId,
            made.map(({ jobId }) => jobId),
            "queued",
          ),
        ),
      claim: (orgId, claim) =>
        Effect.tap(repository.claim(orgId, claim), (claimed) => changed(orgId, idsOf(claimed), "running")),
      // Lines are shown as they come.
      extendLease: (orgId, jobId, heartbeat) =>
        Effect.tap(repository.extendLease(orgId, jobId, heartbeat), () =>
          heartbeat.lines === undefined ? Effect.void : changed(orgId, [jobId], "running"),
        ),
      retry: (orgId, jobId, ...change) =>
        Effect.tap(repository.retry(orgId, jobId, ...change), () => changed(orgId, [jobId], "queued")),
      release: (orgId, claimed, now) =>
        Effect.tap(repository.release(orgId, claimed, now), () => changed(orgId, idsOf(claimed), "queued")),
      report: (end, report) =>
        Effect.tap(repository.report(end, report), ({ status }) => reported(end.orgId, end.jobId, status)),
      reportAll: (orgId, reports) =>
        Effect.tap(repository.reportAll(orgId, reports), (outcomes) =>
          Effect.forEach(outcomes, (outcome, n) =>
            Result.isSuccess(outcome) ? reported(orgId, reports[n]!.end.jobId, outcome.success.status) : Effect.void,
          ),
        ),
    })
  }),
)

/** Decorates the endpoints: publishes their changes to the live feed. */
export const endpoints = Layer.effect(
  WebhookEndpointRepository,
  Effect.gen(function* () {
    const repository = yield* WebhookEndpointRepository
    const { isWatched, publish } = yield* LiveFeed
    const changed = (orgId: string, endpointId: string, change: string) =>
      Effect.sync(() => isWatched() && publish([{ topic: "endpoint", orgId, data: { endpointId, change } }]))
    return WebhookEndpointRepository.of({
      ...repository,
      insert: (endpoint, entry) =>
        Effect.tap(repository.insert(endpoint, entry), () => changed(endpoint.orgId, endpoint.id, "created")),
      update: (orgId, id, changes, entry) =>
        Effect.tap(repository.update(orgId, id, changes, entry), () => changed(orgId, id, "updated")),
      deactivate: (orgId, id, now, entry) =>
        Effect.tap(repository.deactivate(orgId, id, now, entry), () => changed(orgId, id, "deactivated")),
      remove: (orgId, id, now, entry) =>
        Effect.tap(repository.remove(orgId, id, now, entry), () => changed(orgId, id, "deleted")),
    })
  }),
)

/** Decorates the deployments: publishes those that CI registers or somebody promotes to the live feed. */
export const deployments = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const repository = yield* DeploymentRepository
    const { isWatched, publish } = yield* LiveFeed
    const changed = (orgId: string, projectId: string, deploymentId: string) =>
      Effect.sync(() => isWatched() && publish([{ topic: "deployment", orgId, data: { projectId, deploymentId } }]))
    return DeploymentRepository.of({
      ...repository,
      register: (deployment) =>
        Effect.tap(repository.register(deployment), (outcome) =>
          outcome._tag === "Registered"
            ? changed(outcome.orgId, outcome.projectId, deployment.deploymentId)
            : Effect.void,
        ),
      promote: (scope, projectId, deploymentId, now, entry) =>
        Effect.tap(repository.promote(scope, projectId, deploymentId, now, entry), ({ orgId }) =>
          changed(orgId, projectId, deploymentId),
        ),
    })
  }),
)

const channel = "gatehouse_live"

/** The notifications of the database. Every replica gets all messages in the same order. */
export const layer = Layer.effect(
  LiveChannel,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const notifications = yield* Notifications
    return LiveChannel.of({
      send: (payloads) =>
        sql`SELECT pg_notify(${channel}, payload) FROM unnest(${texts(payloads)}) AS payload`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),
      news: Stream.filter(notifications.listen(channel), (news) => news._tag !== "Proof"),
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
