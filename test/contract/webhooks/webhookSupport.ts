import { assert } from "@effect/vitest"
import { DateTime, Duration, Effect, Option } from "effect"
import { SqlClient } from "effect/sql"
import type { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import type { RetryDecision } from "#src/domain/webhooks/RetryDecision.ts"
import { type DeliveryFilter, DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import {
  type AttemptRecord,
  type Claim,
  type ClaimedDelivery,
  DeliveryQueue,
  type OrgShare,
} from "#src/domain/webhooks/DeliveryQueue.ts"
import * as JobEnd from "#src/domain/jobs/JobEnd.ts"
import { JobRepository, type NewJob } from "#src/domain/jobs/JobRepository.ts"
import type { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import type { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import type { PendingDeliveries } from "#src/domain/webhooks/PendingLimit.ts"
import type { SigningKeyRepository } from "#src/domain/webhooks/Signatures.ts"
import {
  defaultSettings,
  type EndpointSettings,
  type WebhookEndpointChanges,
  WebhookEndpointRepository,
} from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import type { AttemptOutcome } from "#src/domain/webhooks/WebhookSender.ts"
import { resendBatch } from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import { answer } from "../../fakes/WebhookSender.ts"
import type { Events } from "./events.ts"
import { itemsOf, at, insertOrg, newEntry, newId } from "../support.ts"
import type { TestsWith } from "../../support/it.ts"

/** `it` with the webhook interface's repositories of one backend. */
export type It<More = never> = TestsWith<
  | More
  | AuditRepository
  | DeliveryQueue
  | DeliveryLogRepository
  | EventRepository
  | Events
  | JobRepository
  | JobScheduleRepository
  | OrgRepository
  | PendingDeliveries
  | SigningKeyRepository
  | WebhookEndpointRepository
>

let epochs = 0
/**
 * A time forty days before that of every other test. All tests share one queue, and so what earlier tests left is not
 * due yet.
 */
export const epoch = () => DateTime.makeUnsafe(Date.UTC(2026, 10, 20, 17, 0, 0, 123) - ++epochs * 40 * 86_400_000)
export const plus = (time: DateTime.Utc, seconds: number) => DateTime.add(time, { seconds })
export const day = 86_400

export const insertEndpoint = Effect.fnUntraced(function* (
  orgId: string,
  options: {
    url?: string
    active?: boolean
    secret?: string
    description?: string | null
    now?: DateTime.Utc
  } & Partial<EndpointSettings> = {},
) {
  const {
    url = "https://example.com/hook",
    active = true,
    secret = "stored secret",
    now = at(0),
    description = null,
    ...others
  } = options
  const id = yield* newId
  const settings = { ...defaultSettings, ...others }
  yield* WebhookEndpointRepository.use((endpoints) =>
    endpoints.insert({ id, orgId, url, secret, description, active, now, ...settings }, newEntry()),
  )
  return id
})

export const updateEndpoint = (
  orgId: string,
  id: string,
  now: DateTime.Utc,
  changes: Partial<WebhookEndpointChanges>,
) =>
  WebhookEndpointRepository.use((endpoints) =>
    endpoints.update(
      orgId,
      id,
      {
        url: undefined,
        secret: undefined,
        description: undefined,
        active: undefined,
        previousSecretUntil: plus(now, day),
        now,
        ...changes,
      },
      newEntry(),
    ),
  )
export const removeEndpoint = (orgId: string, id: string, now: DateTime.Utc) =>
  WebhookEndpointRepository.use((endpoints) => endpoints.remove(orgId, id, now, newEntry()))
export const endpointsOf = (orgId: string) =>
  WebhookEndpointRepository.use((endpoints) => itemsOf(endpoints.list(orgId, { limit: 1000 })))

export const newJob = (orgId: string, overrides: Partial<NewJob> = {}) =>
  Effect.map(newId, (jobId): NewJob => ({
    jobId,
    orgId,
    workflow: "report",
    input: null,
    deploymentId: null,
    callbackUrl: null,
    callbackSecret: null,
    skipCallbacks: false,
    concurrencyKey: null,
    priority: 0,
    maxAttempts: 3,
    retryDelaySeconds: 10,
    expiresInSeconds: null,
    idempotencyKey: null,
    unique: null,
    runAt: null,
    now: at(0),
    ...overrides,
  }))
/** Creates a job; returns what the repository says of it. */
export const createJob = (orgId: string, overrides: Partial<NewJob> = {}) =>
  Effect.flatMap(newJob(orgId, overrides), (job) =>
    JobRepository.use((jobs) => Effect.map(jobs.insert([job]), ([made]) => made!)),
  )
/** Creates a job; returns its id, or that of the job that is there. */
export const insertJob = (orgId: string, overrides: Partial<NewJob> = {}) =>
  Effect.map(createJob(orgId, overrides), ({ jobId }) => jobId)

export const completed = (result: unknown = null) => JobEnd.completed(result)
export const failed = (error = "boom", mapped_stack: unknown = null) => JobEnd.failed(error, mapped_stack)
export const nonce = "0123456789abcdef".repeat(2)

export const report = (
  orgId: string,
  jobId: string,
  reported: JobEnd.JobReport,
  now: DateTime.Utc,
  options: { nonce?: string; endId?: string } = {},
) =>
  Effect.flatMap(newId, (id) =>
    JobRepository.use((jobs) =>
      jobs.report({ orgId, jobId, endId: options.endId ?? id, nonce: options.nonce ?? nonce, now }, reported),
    ),
  )
/** Reports an outcome. Without an attempt, the report comes from any worker. */
export const finish = (
  orgId: string,
  jobId: string,
  outcome: JobEnd.JobOutcome,
  now: DateTime.Utc,
  options: { nonce?: string; endId?: string; attempt?: number; retry?: boolean } = {},
) => {
  const { attempt, retry = false } = options
  return report(orgId, jobId, { _tag: "Ended", outcome, attempt, retry }, now, options)
}
export const failExpired = (orgId: string, jobId: string, now: DateTime.Utc) =>
  report(orgId, jobId, { _tag: "LeaseExpired" }, now)
export const cancelJob = (orgId: string, jobId: string, now: DateTime.Utc, options: { endId?: string } = {}) =>
  report(orgId, jobId, { _tag: "Canceled" }, now, options)
/** A heartbeat that only extends the lease. */
export const heartbeat = (leaseUntil: DateTime.Utc, now: DateTime.Utc, attempt?: number) => ({
  leaseUntil,
  now,
  attempt,
  progress: undefined,
  note: undefined,
})
export const findJob = (orgId: string, jobId: string) => JobRepository.use((jobs) => jobs.find(orgId, jobId))
/** The ids of the org's jobs, newest first. */
export const jobsOf = (orgId: string) =>
  JobRepository.use((jobs) =>
    Effect.map(itemsOf(jobs.list(orgId, {}, { limit: 100 })), (all) => all.map((job) => job.job_id)),
  )

/** Finishes a new job of the org, which creates an event. */
export const makeEvent = Effect.fnUntraced(function* (orgId: string, now: DateTime.Utc, job: Partial<NewJob> = {}) {
  const jobId = yield* insertJob(orgId, { now, ...job })
  yield* finish(orgId, jobId, completed(), now)
  return jobId
})

/** An org with an endpoint and a number of events for it, a second apart from `now` on. */
export const insertReceiver = Effect.fnUntraced(function* (now: DateTime.Utc, events = 1) {
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId, { now })
  for (let n = 0; n < events; n++) yield* makeEvent(orgId, plus(now, n))
  return { orgId, endpoint }
})

/** Publishes an event of the org; returns its id. */
export const publish = Effect.fnUntraced(function* (
  orgId: string,
  type: string,
  now: DateTime.Utc,
  options: { idempotencyKey?: string; body?: string; channels?: ReadonlyArray<string> } = {},
) {
  const { idempotencyKey = null, body = JSON.stringify({ event: type }), channels = [] } = options
  const event = { id: yield* newId, type, body, idempotencyKey, channels, createdAt: now }
  const { ids } = yield* EventRepository.use((events) => events.publish(orgId, [event]))
  return ids[0]!
})

export const deliveriesOf = (orgId: string, filter: DeliveryFilter = {}) =>
  DeliveryLogRepository.use((log) =>
    Effect.map(log.list(orgId, filter, { limit: 1000 }), ({ deliveries }) => deliveries),
  )
/** The states of the org's deliveries, oldest first. */
export const statesOf = (orgId: string, filter?: DeliveryFilter) =>
  Effect.map(deliveriesOf(orgId, filter), (all) => all.toReversed().map(({ state }) => state))
export const findDelivery = (orgId: string, id: string) => DeliveryLogRepository.use((log) => log.find(orgId, id))
export const retry = (orgId: string, id: string, now: DateTime.Utc) =>
  DeliveryLogRepository.use((log) => log.retry(orgId, id, now))
/** Resends the unsuccessful deliveries of an active endpoint since a time, to the end; returns how many. */
export const recover = Effect.fnUntraced(function* (
  orgId: string,
  endpointId: string,
  since: DateTime.Utc,
  now: DateTime.Utc,
) {
  const log = yield* DeliveryLogRepository
  yield* log.requireActive(orgId, endpointId)
  const filter = { webhook_endpoint_id: endpointId, since }
  const sql = Option.getOrUndefined(yield* Effect.serviceOption(SqlClient.SqlClient))
  if (sql !== undefined) {
    const { done } = yield* resendBatch(sql, orgId, JSON.stringify(filter), "", 2_000, now).pipe(
      sql.withTransaction,
      Effect.orDie,
    )
    return done
  }
  // The fake has no sweeps.
  const { count } = yield* log.countResend(orgId, filter)
  yield* log.resend(orgId, { filter, count }, newEntry({ at: now }))
  return count
})

export const leaseSeconds = 60

/** More than any test has. */
const plenty: OrgShare = { count: 100_000, bytes: 2 ** 40 }

export interface ClaimOptions extends Partial<
  Pick<Claim, "claimId" | "leaseUntil" | "limit" | "laneCap" | "free" | "reserve" | "orgs">
> {
  /** The number of deliveries in flight of each lane. */
  readonly inFlight?: ReadonlyMap<string, number>
  readonly lanes?: Claim["lanes"]
}

/** The result of a claim, and whether it left some of the backlog unread. */
export const claimWithMore = Effect.fnUntraced(function* (now: DateTime.Utc, options: ClaimOptions = {}) {
  const { inFlight = new Map(), laneCap = 10, ...others } = options
  const queue = yield* DeliveryQueue
  const claimId = yield* newId
  const leaseUntil = plus(now, leaseSeconds)
  const lanes = new Map([...inFlight].map(([lane, count]) => [lane, { count, cap: laneCap, works: false }]))
  const shares = { lanes, laneCap, free: plenty, reserve: 1, minBacklog: 1, orgs: new Map() }
  return yield* queue.claim({ claimId, now, leaseUntil, limit: 100, ...shares, ...others })
})
/** Claims as the worker does: again while a claim took nothing and did not come to every org with a backlog. */
export const claim = Effect.fnUntraced(function* (now: DateTime.Utc, options?: ClaimOptions) {
  for (let n = 0; n < 20; n++) {
    const { deliveries, more } = yield* claimWithMore(now, options)
    if (deliveries.length > 0 || !more) return deliveries
  }
  return []
})
/** Claims the one delivery that is due. */
export const claimOne = (now: DateTime.Utc) => Effect.map(claim(now), (claimed) => claimed[0]!)

const outcomes: Record<RetryDecision["_tag"], AttemptOutcome> = {
  Delivered: answer(204),
  Retry: answer(500),
  Exhausted: answer(500),
  Deactivate: answer(410),
}

/** The record of an attempt that ended at `now`. */
export const attempt = (
  delivery: ClaimedDelivery,
  decision: Exclude<RetryDecision["_tag"], "Retry"> | { readonly retryAt: DateTime.Utc },
  now: DateTime.Utc,
  outcome: Partial<AttemptOutcome> = {},
): AttemptRecord => {
  const _tag = typeof decision === "string" ? decision : "Retry"
  const nextAttemptAt = typeof decision === "string" ? null : decision.retryAt
  const made = { ...outcomes[_tag], ...outcome }
  const isGone = made.status === 410 && made.failure === null
  const decided = (): RetryDecision => {
    if (_tag === "Retry") return { _tag, wait: DateTime.distance(now, nextAttemptAt!) }
    return _tag === "Deactivate" ? { _tag, reason: isGone ? "gone" : "failing" } : { _tag }
  }
  return { delivery, startedAt: plus(now, -1), outcome: made, decision: decided(), nextAttemptAt }
}

/** Looks for what other replicas left, as a worker does every second. */
export const look = DeliveryQueue.use((queue) => queue.look)

/** Asserts that nothing outside the backlogs becomes due until `time`. */
export const assertNothingDue = Effect.fnUntraced(function* (time: DateTime.Utc) {
  const next = yield* DeliveryQueue.use((queue) => queue.nextDueAt)
  assert.isTrue(next === null || DateTime.isGreaterThan(next, time))
})

export const record = (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) =>
  DeliveryQueue.use((queue) => queue.record(records, now))

export const release = (deliveries: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
  DeliveryQueue.use((queue) => queue.release(deliveries, now))

/** How long before `now` the endpoint began to fail, read from a new delivery that is claimed far after `now`. */
export const failingSince = Effect.fnUntraced(function* (orgId: string, endpoint: string, now: DateTime.Utc) {
  const later = plus(now, 30 * day)
  yield* makeEvent(orgId, later)
  const claimed = yield* claim(later, { limit: 1000, laneCap: 1000 })
  const since = claimed.find(({ endpointId }) => endpointId === endpoint)?.failingSince
  return since === undefined
    ? "nothing is due"
    : since === null
      ? null
      : Duration.toSeconds(DateTime.distance(now, since))
})

const notFound = (error: string) => JSON.stringify({ error, code: "not_found" })
const conflict = (error: string) => JSON.stringify({ error, code: "conflict" })
export const noSuchEndpoint = notFound("There is no such webhook endpoint.")
export const noSuchJob = notFound("There is no such job.")
export const noSuchSchedule = notFound("There is no such schedule.")
export const noSuchDelivery = notFound("There is no such delivery.")
export const otherOutcome = conflict("The job has already finished with another outcome; the first outcome stays.")
export const notRunning = conflict("The job is not running: no worker has a lease on it. Claim it first.")
export const endpointInactive = conflict("The webhook endpoint is inactive; activate it first.")
export const endpointDeleted = conflict("The webhook endpoint was deleted.")
export const inFlight = conflict("An attempt of this delivery is in flight; try again when it has ended.")
