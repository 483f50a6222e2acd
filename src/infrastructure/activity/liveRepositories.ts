import { Effect, Layer } from "effect"
import { LiveFeed } from "../../domain/activity/LiveFeed.ts"
import { DeploymentRepository } from "../../domain/deployments/DeploymentRepository.ts"
import { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { OrgScope } from "../../domain/Principal.ts"
import { ProjectRepository } from "../../domain/projects/Projects.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import type { RetryDecision } from "../../domain/webhooks/RetryDecision.ts"
import { WebhookEndpointRepository } from "../../domain/webhooks/WebhookEndpointRepository.ts"

const states: Record<RetryDecision["_tag"], string> = {
  Delivered: "delivered",
  Retry: "pending",
  Exhausted: "failed",
  Deactivate: "failed",
}

const deliveryOf = ({ delivery, outcome, decision }: AttemptRecord) => ({
  topic: "delivery" as const,
  orgId: delivery.orgId,
  data: {
    deliveryId: delivery.deliveryId,
    endpointId: delivery.endpointId,
    state: states[decision._tag],
    attempts: delivery.attempts + 1,
    status: outcome.status,
    failure: outcome.failure?.kind ?? null,
  },
})

/** Decorates the delivery queue: publishes recorded attempts to the live feed. */
export const deliveries = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const feed = yield* LiveFeed
    const publish = (records: ReadonlyArray<AttemptRecord>) => {
      if (feed.isWatched()) feed.publish(records.map(deliveryOf))
    }
    return DeliveryQueue.of({
      ...queue,
      record: (records, now) => Effect.tap(queue.record(records, now), () => Effect.sync(() => publish(records))),
    })
  }),
)

/** Decorates the jobs: publishes changes of their state to the live feed. */
export const jobs = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const repository = yield* JobRepository
    const { isWatched, publish } = yield* LiveFeed
    const changed = (orgId: string, jobId: string, status: string) =>
      Effect.sync(() => isWatched() && publish([{ topic: "job", orgId, data: { jobId, status } }]))
    return JobRepository.of({
      ...repository,
      insert: (job) => Effect.tap(repository.insert(job), (id) => changed(job.orgId, id, "queued")),
      claim: (orgId, claim) =>
        Effect.tap(repository.claim(orgId, claim), (claimed) =>
          Effect.forEach(claimed, ({ job_id }) => changed(orgId, job_id, "running"), { discard: true }),
        ),
      release: (orgId, jobs, now) =>
        Effect.tap(repository.release(orgId, jobs, now), () =>
          Effect.forEach(jobs, ({ job_id }) => changed(orgId, job_id, "queued"), { discard: true }),
        ),
      report: (end, report) =>
        Effect.tap(repository.report(end, report), ({ status }) =>
          status === null ? Effect.void : changed(end.orgId, end.jobId, status),
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
    const projects = yield* ProjectRepository
    const { isWatched, publish } = yield* LiveFeed
    const changed = (orgId: string, projectId: string, deploymentId: string) =>
      publish([{ topic: "deployment", orgId, data: { projectId, deploymentId } }])
    const registered = (projectId: string, deploymentId: string) =>
      projects.find(OrgScope.EveryOrg(), projectId).pipe(
        Effect.map(({ orgId }) => changed(orgId, projectId, deploymentId)),
        Effect.ignore,
      )
    return DeploymentRepository.of({
      ...repository,
      register: (deployment) =>
        Effect.tap(repository.register(deployment), (outcome) =>
          outcome._tag === "Registered" && isWatched()
            ? registered(outcome.projectId, deployment.deploymentId)
            : Effect.void,
        ),
      promote: (scope, projectId, deploymentId, now, entry) =>
        Effect.tap(repository.promote(scope, projectId, deploymentId, now, entry), ({ orgId }) =>
          Effect.sync(() => isWatched() && changed(orgId, projectId, deploymentId)),
        ),
    })
  }),
)
