import { assert, describe } from "@effect/vitest"
import { PgClient } from "@effect/sql-pg"
import { DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { healthRanges } from "#src/domain/activity/Activity.ts"
import { ActivityRepository } from "#src/domain/activity/ActivityRepository.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { SessionRepository } from "#src/domain/sessions/SessionRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import * as ActivitySql from "#src/infrastructure/activity/activitySql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as DocsQuestionsSql from "#src/infrastructure/docs/docsQuestionsSql.ts"
import * as IdempotencySql from "#src/infrastructure/idempotency/idempotencySql.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as KeyUsageSql from "#src/infrastructure/keys/keyUsageSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as SessionsSql from "#src/infrastructure/sessions/sessionsSql.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { withBoundedTransactions } from "#src/infrastructure/database/boundedTransactions.ts"
import { planSettings } from "#src/infrastructure/database/planSettings.ts"
import { setWorkflow } from "../../contract/jobs/workflows.ts"
import { eraseBatch } from "#src/infrastructure/sweeps/erase.ts"
import { writeCopies } from "#src/infrastructure/sweeps/moveOrg.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as RetentionSql from "#src/infrastructure/retention/retentionSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import { rowsRead, withoutAutovacuum } from "../../contract/boundedReads.ts"
import {
  everyOrg,
  insertOrg,
  insertProject,
  newEntry,
  newId,
  newKey,
  newRepository,
  oneOrg,
  push,
  register,
} from "../../contract/support.ts"
import {
  attempt,
  cancelJob,
  claim,
  completed,
  finish,
  heartbeat,
  insertEndpoint,
  insertJob,
  makeEvent,
  plus,
  publish,
  updateEndpoint,
} from "../../contract/webhooks/webhookSupport.ts"
import * as crypto from "../../fakes/crypto.ts"
import { freshPostgres } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { until } from "../../support/wait.ts"

/**
 * Promise (Bounded work): Each statement of deliveries, events, jobs, schedules, keys, deployments, sessions, counts
 * and the audit log, and each step of an erasure, reads a bounded number of rows, also right after all rows have
 * changed, with no, old or new statistics.
 */

/** A client that keeps the plan of each statement's first use. The service's keeps those of the last 100 statements. */
const keepingPlans = Layer.unwrap(
  Effect.map(freshPostgres(), (url) =>
    PgClient.layerFrom(
      Effect.map(
        PgClient.make({
          url: Redacted.make(url),
          maxConnections: 1,
          preparedStatementCacheSize: 10_000,
          startupParameters: planSettings,
        }),
        withBoundedTransactions,
      ),
    ),
  ),
).pipe(
  Layer.provide(Reactivity.layer),
  Layer.merge(Layer.succeed(Database, { kind: "postgres", ready: Effect.succeed({ writable: true }) })),
)

const world = Layer.mergeAll(
  ActivitySql.layer,
  AuditLogSql.layer,
  DeploymentsSql.layer,
  DocsQuestionsSql.layer,
  IdempotencySql.layer,
  ApiKeysSql.layer,
  KeyUsageSql.layer,
  ProjectsSql.layer,
  SessionsSql.layer,
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  OrgsSql.layer,
  RetentionSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer), Layer.provideMerge(keepingPlans))
type World = Layer.Success<typeof world>

const tables = [
  "activity_counts",
  "api_keys",
  "audit_log",
  "deliveries",
  "delivery_attempts",
  "deployments",
  "docs_questions",
  "endpoint_attempts",
  "events",
  "finished_jobs",
  "idempotency_keys",
  "job_keys",
  "job_schedules",
  "jobs",
  "key_counters",
  "key_usage",
  "pending_deliveries",
  "projects",
  "sessions",
  "sweeps",
  "webhook_endpoints",
  "workflows",
]

/**
 * Tables that the test does not empty: acts need rows of three. A plan for emptied sessions may read all sessions of
 * the org: two of their indexes begin with it.
 */
const kept = new Set(["projects", "sessions", "webhook_endpoints", "workflows"])

/** Jobs of an org, each with an event and a delivery. */
const count = Number(process.env.COUNT ?? 4_000)
/** The most rows and index entries that a statement reads for each row that it returns or changes. */
const rowsEach = 30

interface States {
  readonly deliveries: "pending" | "delivered" | "failed" | "canceled"
  readonly jobs: "queued" | "running" | "completed" | "canceled"
}

interface Place {
  readonly orgId: string
  readonly projectId: string
  readonly endpoint: string
  readonly now: DateTime.Utc
}

/** Changes every row to other states, and queues what is pending, as sweeps do. */
const moveTo = Effect.fnUntraced(function* ({ endpoint, now, orgId }: Place, { deliveries, jobs }: States) {
  const sql = yield* SqlClient.SqlClient
  const at = DateTime.toDateUtc(now)
  if (jobs === "queued" || jobs === "running") {
    yield* sql`
      UPDATE jobs SET status = ${jobs}::text, lease_expires_at = CASE WHEN ${jobs} = 'running' THEN ${at}::timestamptz END
      WHERE org_id = ${orgId}`
  } else {
    yield* sql`UPDATE finished_jobs SET status = ${jobs} WHERE org_id = ${orgId}`
    yield* sql`
      WITH ended AS (DELETE FROM jobs WHERE org_id = ${orgId} RETURNING *)
      INSERT INTO finished_jobs (id, end_id, org_id, workflow, skip_callbacks, priority, max_attempts, retry_delay_seconds,
        status, attempt, retried_attempts, created_at, finished_at)
      SELECT id, id, org_id, workflow, skip_callbacks, priority, max_attempts, retry_delay_seconds, ${jobs}, attempt, '{}',
        created_at, ${at} FROM ended`
  }
  yield* sql`DELETE FROM deliveries WHERE org_id = ${orgId}`
  yield* sql`DELETE FROM pending_deliveries WHERE org_id = ${orgId}`
  // An event of `fill`, and its delivery.
  const rows = sql`(SELECT id, overlay(id PLACING 'd' FROM 27) AS delivery FROM events WHERE org_id = ${orgId}) AS e`
  yield* deliveries === "pending"
    ? sql`
        INSERT INTO pending_deliveries
          (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id, bytes, created_at, updated_at)
        SELECT ${endpoint}, delivery, id, 0, 0, ${at}, true, ${orgId}, 2, ${at}, ${at} FROM ${rows}`
    : sql`
        INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, created_at, updated_at)
        SELECT delivery, ${orgId}, id, ${endpoint}, ${deliveries}, 0, ${at}, ${at} FROM ${rows}`
})

/** Fills an org with jobs, events and deliveries. */
const fill = Effect.fnUntraced(function* (place: Place, rows: number, states: States) {
  const { endpoint, now, orgId } = place
  const sql = yield* SqlClient.SqlClient
  const at = DateTime.toDateUtc(now)
  const each = sql`generate_series(1, ${rows}::int) AS n, lpad(n::text, 8, '0') AS id`
  yield* sql`
    INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, attempt, created_at, updated_at)
    SELECT ${endpoint} || 'j' || id, ${orgId}, 'workflow ' || n % 100, false, 'queued', 1, ${at}, ${at} FROM ${each}`
  yield* sql`
    INSERT INTO jobs (id, org_id, workflow, concurrency_key, skip_callbacks, status, expires_at, created_at, updated_at)
    SELECT ${endpoint} || 'k' || id, ${orgId}, 'limited', 'key ' || n % 1000, false, 'queued', ${at}, ${at}, ${at} FROM ${each}`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT ${endpoint} || 'e' || id, ${orgId}, ${endpoint} || 'j' || id, 'job.completed', '{}', ${at} FROM ${each}`
  yield* moveTo(place, states)
})

/**
 * Rows of `rowsEach` of a page, and of pages that look for rare rows among 10,000: entries alone, and with their rows.
 */
const [page20, rareEntries, rareRows] = [20, 700, 10_000 / 3]

/** A call of a method, with how many rows it returns or changes at most. */
type Act = readonly [name: string, rows: number, act: Effect.Effect<unknown, unknown, World>]

/** The first batch of each of these steps of an org's erasure. */
const erasures = (sql: SqlClient.SqlClient, orgId: string, steps: ReadonlyArray<string>) =>
  steps.map((step): Act => [`erasure of ${step}`, 200, eraseBatch(sql, { orgId, projectId: null }, `-${step}:`, 100)])

/** Calls of every method of the repositories, in an org; the names begin with those of the methods. */
const actsOf = Effect.fnUntraced(function* ({ endpoint, now, orgId }: Place) {
  const queue = yield* DeliveryQueue
  const log = yield* DeliveryLogRepository
  const events = yield* EventRepository
  const endpoints = yield* WebhookEndpointRepository
  const jobs = yield* JobRepository
  const schedules = yield* JobScheduleRepository
  const retention = yield* RetentionRepository
  const sweeps = yield* SweepRepository
  const sql = yield* SqlClient.SqlClient
  const id = (kind: "d" | "e" | "j") => `${endpoint}${kind}00000001`
  const page = { limit: 20 }
  const later = plus(now, 1)
  const since = plus(now, -86_400 * 365)
  const claimed = claim(later, { limit: 100, laneCap: 100 })
  const batch = { now: later, limit: 100, after: null }
  const resent = JSON.stringify({ webhook_endpoint_id: endpoint, since })
  const sweep = (kind: "cancel" | "resend" | "retryJobs" | "cancelJobs", filter = "{}") =>
    Effect.gen(function* () {
      const sweepId = yield* newId
      yield* sql`
        INSERT INTO sweeps (id, org_id, kind, endpoint_id, lane, filter, created_at)
        VALUES (${sweepId}, ${orgId}, ${kind}, ${endpoint}, ${endpoint}, ${filter}, now())`
      yield* sweeps.advance(sweepId, later, 100)
    })
  // Of an endpoint without deliveries, beside the one that has all of the org's: what it reads is what others have.
  const idle = yield* Effect.orDie(insertEndpoint(orgId))
  const ofIdle = { webhook_endpoint_id: idle }
  const idleLists = ([undefined, "pending", "delivered", "failed", "canceled", "skipped"] as const).map(
    (state): Act => [`log.list of state ${state} of an idle endpoint`, 20, log.list(orgId, { state, ...ofIdle }, page)],
  )
  const canceled = {
    end: { orgId, jobId: id("j"), endId: id("j"), nonce: "", now: later },
    report: { _tag: "Canceled" as const },
  }
  const template = {
    workflow: "w",
    input: null,
    deploymentId: null,
    callbackUrl: null,
    callbackSecret: null,
    skipCallbacks: true,
    concurrencyKey: null,
    expiresInSeconds: null,
    priority: 0,
    maxAttempts: 3,
    retryDelaySeconds: 10,
  }
  const scheduled = Effect.gen(function* () {
    const scheduleId = yield* newId
    const schedule = { ...template, scheduleId, orgId, cron: "* * * * *", timezone: "UTC", nextAt: now, now } as const
    yield* schedules.insert({ ...schedule, overlap: "skip" }, newEntry())
    return scheduleId
  })
  const jobClaim = (workflows: ReadonlyArray<string> | undefined) =>
    jobs.claim(orgId, { workflows, limit: 20, now: later, leaseUntil: plus(now, 60) })
  const rate = { limit: 1_000_000, window_seconds: 60 }
  const limited = { workflow: "limited", concurrency: 100, concurrency_per_key: 1, rate }
  const limit = setWorkflow(orgId, limited, later)
  const running = Effect.flatMap(insertJob(orgId, { workflow: "mine" }), (jobId) =>
    Effect.as(jobClaim(["mine"]), jobId),
  )
  const most = (state: string | undefined) =>
    state === "delivered" ? rareRows : state === "canceled" ? rareEntries : page20
  const lists = ([undefined, "pending", "delivered", "failed", "canceled", "skipped"] as const).flatMap(
    (state): ReadonlyArray<Act> => [
      [`log.list of state ${state}`, most(state), log.list(orgId, { state }, page)],
      [
        `log.list of state ${state} and endpoint`,
        most(state),
        log.list(orgId, { state, webhook_endpoint_id: endpoint }, page),
      ],
      [`log.list of state ${state} and time`, most(state), log.list(orgId, { state, since }, page)],
    ],
  )
  const jobLists = ([undefined, "queued", "running", "completed", "failed", "canceled"] as const).flatMap(
    (status): ReadonlyArray<Act> => {
      const filter = status === undefined ? {} : { status }
      return [
        [`jobs.list of status ${status}`, 20, jobs.list(orgId, filter, page)],
        [
          `jobs.list of status ${status} and workflow`,
          20,
          jobs.list(orgId, { ...filter, workflow: "workflow 7" }, page),
        ],
      ]
    },
  )
  const acts: ReadonlyArray<Act> = [
    ["queue.claim", 100, claimed],
    [
      "queue.record of successes",
      200,
      Effect.flatMap(claimed, (all) =>
        queue.record(
          all.map((one) => attempt(one, "Delivered", later)),
          later,
        ),
      ),
    ],
    [
      "queue.record of failures",
      200,
      Effect.flatMap(claimed, (all) =>
        queue.record(
          all.map((one) => attempt(one, { retryAt: plus(now, 9) }, later)),
          later,
        ),
      ),
    ],
    ["queue.release", 200, Effect.flatMap(claimed, (all) => queue.release(all, later))],
    ["queue.look", 1_000, queue.look],
    ["queue.nextDueAt", 1, queue.nextDueAt],
    ["queue.countDue", 100, queue.countDue(later, 100)],
    ["queue.correctTimes", 100, queue.correctTimes({ now: plus(now, -60), leaseUntil: now, limit: 100 })],
    ...lists,
    ["log.list of an event", 20, log.list(orgId, { event_id: id("e") }, page)],
    ["log.list of a job", 20, log.list(orgId, { job_id: id("j") }, page)],
    ["log.find", 1, Effect.ignore(log.find(orgId, id("d")))],
    ["log.retry", 2, Effect.ignore(log.retry(orgId, id("d"), later))],
    ["log.requireActive", 1, log.requireActive(orgId, endpoint)],
    ["jobs.countSwept", 10_000, jobs.countSwept(orgId, { kind: "retry", filter: {} })],
    ["jobs.countSwept of a workflow", 10_000, jobs.countSwept(orgId, { kind: "cancel", filter: { workflow: "w" } })],
    ["jobs.causes", 10_000, jobs.causes(orgId, {})],
    ["jobs.queue", 40_000, jobs.queue(orgId, now)],
    ["jobs.list by error", 10_100, jobs.list(orgId, { status: "failed", error: "no such" }, { limit: 50 })],
    ["jobs.sweeps", 10, jobs.sweeps(orgId)],
    [
      "jobs.startSweep",
      10,
      jobs.startSweep(orgId, { kind: "retry", filter: {}, count: 1 }, newEntry({ target: orgId })),
    ],
    ["jobs.endSweep", 10, Effect.ignore(jobs.endSweep(orgId, newEntry({ target: orgId })))],
    ["jobs.reportAll", 20, jobs.reportAll(orgId, [canceled])],
    ["jobs.lines", 1, Effect.ignore(jobs.lines(orgId, id("j")))],
    ["jobs.finishStep", 20, Effect.ignore(jobs.finishStep(orgId, id("j"), { attempt: 1, name: "a", result: 1, now }))],
    ["jobs.retry of an old job", 20, Effect.ignore(jobs.retry(orgId, id("j"), undefined, later, newEntry()))],
    ["log.countResend", 10_000, log.countResend(orgId, {})],
    ["log.countResend of an endpoint", 10_000, log.countResend(orgId, { webhook_endpoint_id: endpoint, since })],
    ...idleLists,
    ["log.countResend of an idle endpoint", 20, log.countResend(orgId, ofIdle)],
    ["endpoints.get of an idle one", 20, endpoints.get(orgId, { id: idle })],
    ["log.resend", 10, log.resend(orgId, { filter: {}, count: 1 }, newEntry({ target: orgId }))],
    ["log.resends", 10, log.resends(orgId)],
    ["log.cancelResend", 10, Effect.ignore(log.cancelResend(orgId, newEntry({ target: orgId })))],
    ["log.causes", 10_000, log.causes(orgId, {})],
    ["events.publish", 10, publish(orgId, "a.b", later)],
    ["events.publish with a key", 10, publish(orgId, "a.b", later, { idempotencyKey: "key" })],
    ["events.isPublished", 10, events.isPublished(orgId, "key")],
    ["events.list", 20, events.list(orgId, undefined, page)],
    ["events.list of a type", 20, events.list(orgId, "job.completed", page)],
    ["events.find", 1, Effect.ignore(events.find(orgId, id("e")))],
    ["events.types", 20, events.types(orgId, page)],
    ["jobs.insert", 10, insertJob(orgId)],
    ["jobs.claim", 20, jobClaim(undefined)],
    ["jobs.claim of a workflow", 20, jobClaim(["workflow 7"])],
    ["jobs.claim of workflows", 40, jobClaim(["workflow 7", "workflow 8"])],
    ["jobs.hasLimits", 1, Effect.sync(() => jobs.hasLimits(orgId))],
    ["jobs.claim of a workflow with keys", 20, jobClaim(["limited"])],
    ["jobs.setWorkflow", 10, limit],
    ["jobs.claim within limits", 20, Effect.andThen(limit, jobClaim(["limited"]))],
    ["jobs.claim of any within limits", 300, Effect.andThen(limit, jobClaim(undefined))],
    ["jobs.workflows", 10, jobs.workflows(orgId)],
    ["jobs.deleteWorkflow", 10, Effect.andThen(limit, jobs.deleteWorkflow(orgId, "limited", newEntry()))],
    ["jobs.findExpired", 100, jobs.findExpired(batch)],
    ["jobs.findExpired in turns", 100, jobs.findExpired({ ...batch, after: "" })],
    ["jobs.release", 40, Effect.flatMap(jobClaim(undefined), (all) => jobs.release(orgId, all, later))],
    [
      "jobs.extendLease",
      10,
      Effect.flatMap(running, (jobId) =>
        Effect.ignore(jobs.extendLease(orgId, jobId, heartbeat(plus(now, 90), later))),
      ),
    ],
    [
      "jobs.report of an end",
      20,
      Effect.flatMap(insertJob(orgId), (jobId) => finish(orgId, jobId, completed(), later)),
    ],
    ["jobs.report of a cancellation", 20, Effect.flatMap(insertJob(orgId), (jobId) => cancelJob(orgId, jobId, later))],
    ["jobs.report of an old job", 20, Effect.ignore(cancelJob(orgId, id("j"), later))],
    ["jobs.find", 1, Effect.ignore(jobs.find(orgId, id("j")))],
    ...jobLists,
    ["jobs.expireLeases", 100, jobs.expireLeases(batch)],
    ["jobs.expireLeases in turns", 100, jobs.expireLeases({ ...batch, after: "" })],
    ["jobs.queueDelayed", 100, jobs.queueDelayed(batch)],
    ["jobs.queueDelayed in turns", 100, jobs.queueDelayed({ ...batch, after: "" })],
    ["schedules.insert", 10, scheduled],
    ["schedules.list", 20, schedules.list(orgId, page)],
    ["schedules.find", 10, Effect.flatMap(scheduled, (one) => schedules.find(orgId, one))],
    [
      "schedules.update",
      10,
      Effect.flatMap(scheduled, (one) => schedules.update(orgId, one, { active: false }, later, newEntry())),
    ],
    ["schedules.remove", 10, Effect.flatMap(scheduled, (one) => schedules.remove(orgId, one, newEntry()))],
    ["schedules.run", 10, Effect.flatMap(scheduled, (one) => schedules.run(orgId, one, `${one}j`, later))],
    ["schedules.runDue", 100, Effect.andThen(scheduled, schedules.runDue(batch))],
    ["schedules.runDue in turns", 100, Effect.andThen(scheduled, schedules.runDue({ ...batch, after: "" }))],
    // Ends a range that has rows already, as after a stop of the service.
    ["retention.prepare", count, retention.prepare("webhooks", DateTime.add(now, { days: 2 }), Duration.hours(1))],
    ["retention.removeOldest", 10, retention.removeOldest("webhooks", later, Duration.days(1))],
    ["retention.removeLeft", 10, retention.removeLeft(100)],
    ["retention.shorterOrgs", 10, retention.shorterOrgs("", 10)],
    ["retention.removeOfOrg", 10, retention.removeOfOrg(orgId, now, Duration.days(1), "", 10)],
    ["retention.removeJobsOfOrg", 10, retention.removeJobsOfOrg(orgId, now, Duration.days(1), "", 10)],
    ["sweeps.next", 10, sweeps.next("", [])],
    ["sweeps.count", 10, sweeps.count(10)],
    ["sweeps.advance of a cancellation", 200, sweep("cancel")],
    ["sweeps.advance of a resend", 200, sweep("resend")],
    ["sweeps.advance of an endpoint's resend", 200, sweep("resend", resent)],
    [
      "sweeps.advance of an endpoint's resend after a cancellation",
      1_700,
      Effect.gen(function* () {
        yield* updateEndpoint(orgId, endpoint, later, { active: false })
        yield* updateEndpoint(orgId, endpoint, later, { active: true })
        yield* sweep("resend", resent)
      }),
    ],
    ["sweeps.advance of an idle endpoint's resend", 20, sweep("resend", JSON.stringify(ofIdle))],
    ["sweeps.advance of retries", 500, sweep("retryJobs")],
    ["sweeps.advance of cancellations", 500, sweep("cancelJobs")],
    ...erasures(sql, orgId, ["deliveries", "events", "jobs", "finishedJobs"]),
    ...(["jobs", "deliveries", "pending_deliveries"] as const).map((name): Act => {
      const [key, one] =
        name === "pending_deliveries"
          ? [["org_id", "lane", "delivery_id"], { org_id: orgId, lane: endpoint, delivery_id: id("d") }]
          : [["id"], { id: id(name === "jobs" ? "j" : "d") }]
      const copy = { table: { name, key, columns: [] }, keys: JSON.stringify([one]), rows: "[]" }
      return [`move of a changed row of ${name}`, 10, writeCopies(sql, [copy])]
    }),
    // What a deactivation and an activation of the endpoint run.
    ["endpoint, deactivated", 1_000, updateEndpoint(orgId, endpoint, later, { active: false })],
    ["events.publish of a job", 20, makeEvent(orgId, later)],
  ]
  const methods = Object.entries({ queue, log, events, jobs, schedules, retention, sweeps }).flatMap(
    ([service, methods]) => Object.keys(methods).map((method) => `${service}.${method}`),
  )
  const missing = methods.filter((method) => !acts.some(([name]) => name.split(" ")[0] === method))
  assert.deepStrictEqual(missing, [], "every method has an act")
  return acts
})

/** Fills an org with rows of every other kind. `stage` is in them, where an operation looks for it. */
const fillOthers = Effect.fnUntraced(function* (place: Place, rows: number, stage: string) {
  const { endpoint, now, orgId, projectId } = place
  const sql = yield* SqlClient.SqlClient
  const at = DateTime.toDateUtc(now)
  const each = sql`generate_series(1, ${rows}::int) AS n, lpad(n::text, 8, '0') AS id`
  yield* sql`
    INSERT INTO api_keys (id, org_id, name, prefix, hash, created_at, rate_limit, rate_window, external_id, counter_id)
    SELECT ${endpoint} || 'k' || id, ${orgId}, 'k', 'svc_', decode(md5(${orgId} || id), 'hex'), ${at}, 10, 10, 'one',
      ${endpoint} || 'k' || lpad((n - n % 2)::text, 8, '0') FROM ${each}`
  yield* sql`
    INSERT INTO key_counters (id, org_id, version, rate_limit, rate_window, rate_used, rate_current, rate_previous, rate_at)
    SELECT ${endpoint} || 'k' || id, ${orgId}, 0, 10, 10, 0, 0, 0, 0 FROM ${each}`
  yield* sql`
    INSERT INTO key_usage (org_id, key_id, hour, valid, forbidden, limited, cost)
    SELECT ${orgId}, ${endpoint} || 'k' || lpad((n % 10)::text, 8, '0'), n, 1, 0, 0, 1 FROM ${each}`
  yield* sql`
    INSERT INTO projects (id, org_id, name, created_at, updated_at)
    SELECT ${endpoint} || 'p' || id, ${orgId}, 'p', ${at}, ${at} FROM ${each} ON CONFLICT DO NOTHING`
  yield* sql`
    INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, run_id, run_attempt, event_name, created_at)
    SELECT ${endpoint} || 'd' || id, ${orgId}, ${projectId}, 'github', 'one', 'r', 's', true, ${orgId} || id, 1, 'push', ${at}
    FROM ${each}`
  yield* sql`
    INSERT INTO audit_log (id, org_id, at, actor, action, target, details)
    SELECT ${endpoint} || 'a' || id, ${orgId}, ${at}, 'administrator', 'key.create', 't', '{}' FROM ${each}`
  yield* sql`
    INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, skip_callbacks, next_at, created_at)
    SELECT ${endpoint} || 's' || id, ${orgId}, 'w', '* * * * *', 'UTC', true, ${at}, ${at} FROM ${each}`
  yield* sql`
    INSERT INTO activity_counts (org_id, every, at, kind, outcome, count)
    SELECT ${orgId}, 'minute', ${at}::timestamptz - n * interval '1 minute', 'jobs', 'completed', 1 FROM ${each}`
  yield* sql`
    INSERT INTO endpoint_attempts (org_id, endpoint_id, every, at, cause, bucket, count, last_at)
    SELECT ${orgId}, ${endpoint}, 'hour', ${at}::timestamptz - n * interval '1 hour', '503', 3, 1, ${at} FROM ${each}`
  yield* sql`
    INSERT INTO project_docs (org_id, project_id, docs_zip_url, is_public, keep_questions, revision, updated_at)
    VALUES (${orgId}, ${projectId}, 'https://docs.example', true, true, 1, ${at}) ON CONFLICT DO NOTHING`
  yield* sql`
    INSERT INTO docs_questions (org_id, project_id, id, asked_at, question, topic, found)
    SELECT ${orgId}, ${projectId}, ${endpoint} || 'q' || id, ${at}, 'q', 'q', true FROM ${each}`
  yield* sql`
    INSERT INTO sessions (org_id, hash, id, kind, credential_hash, created_at, expires_at)
    SELECT ${orgId}, decode(md5(id), 'hex'), ${endpoint} || id, 'portal', decode(md5('one'), 'hex'), ${at}, ${at} FROM ${each}
    ON CONFLICT DO NOTHING`
  yield* sql`
    INSERT INTO idempotency_keys (org_id, caller, operation, key, record, expires_at)
    SELECT ${orgId}, ${endpoint}, 'one', id, '{}', ${at} FROM ${each}`
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, endpoint_id, lane, created_at)
    SELECT ${endpoint} || 'w' || id, ${orgId}, 'cancel', ${endpoint}, ${endpoint}, ${at} FROM ${each}`
  yield* moveOthers(place, stage)
})

/** Changes the rows of `fillOthers` to another stage. */
const moveOthers = Effect.fnUntraced(function* ({ endpoint, now, orgId, projectId }: Place, stage: string) {
  const sql = yield* SqlClient.SqlClient
  const isOne = stage === "one"
  const at = DateTime.toDateUtc(plus(now, isOne ? 0 : 86_400 * 9))
  yield* sql`
    UPDATE api_keys SET external_id = ${stage}, counter_id = CASE WHEN ${isOne} THEN left(id, -1) || '0' END
    WHERE org_id = ${orgId}`
  yield* sql`
    UPDATE key_usage SET hour = hour + CASE WHEN ${isOne} THEN -100000 ELSE 100000 END
    WHERE org_id = ${orgId} AND (hour < 100000) <> ${isOne}`
  yield* sql`UPDATE deployments SET branch = ${stage}, preview = ${isOne} WHERE project_id = ${projectId}`
  yield* sql`UPDATE job_schedules SET next_at = ${at} WHERE org_id = ${orgId}`
  yield* sql`UPDATE activity_counts SET every = ${isOne ? "minute" : "hour"} WHERE org_id = ${orgId}`
  yield* sql`UPDATE endpoint_attempts SET every = ${isOne ? "hour" : "day"} WHERE org_id = ${orgId}`
  yield* sql`UPDATE docs_questions SET asked_at = ${at}, found = ${isOne} WHERE org_id = ${orgId}`
  yield* sql`
    UPDATE sessions SET credential_hash = decode(md5(${stage}), 'hex'), expires_at = ${at} WHERE org_id = ${orgId}`
  yield* sql`UPDATE sweeps SET done_to = ${stage}, turn = turn + 1000000 WHERE org_id = ${orgId}`
  yield* sql`UPDATE idempotency_keys SET expires_at = ${at} WHERE org_id = ${orgId} AND caller = ${endpoint}`
})

/** Calls of the repositories of everything else, in an org. */
const otherActsOf = Effect.fnUntraced(function* ({ endpoint, now, orgId, projectId }: Place) {
  const keys = yield* ApiKeyRepository
  const usages = yield* KeyUsageRepository
  const projects = yield* ProjectRepository
  const deployments = yield* DeploymentRepository
  const schedules = yield* JobScheduleRepository
  const audit = yield* AuditRepository
  const activity = yield* ActivityRepository
  const questions = yield* DocsQuestionRepository
  const sessions = yield* SessionRepository
  const idempotency = yield* IdempotencyRepository
  const sweeps = yield* SweepRepository
  const sql = yield* SqlClient.SqlClient
  const id = (kind: "k" | "d" | "p" | "s" | "q", n = 2) => `${endpoint}${kind}${String(n).padStart(8, "0")}`
  const page = { limit: 20 }
  const later = plus(now, 1)
  const batch = { now: later, limit: 100, after: null }
  const docs = { orgId, projectId }
  const hash = Buffer.alloc(16, 7).toString("hex")
  const hour = { orgId, keyId: id("k"), hour: 7, valid: 1, forbidden: 0, limited: 0, cost: 1 }
  const time = { orgId, at: now.epochMilliseconds, count: 1 }
  const failed = { ...time, endpointId: endpoint, lastAt: now.epochMilliseconds, lastStatus: 500, lastFailure: null }
  const ranking = { since: plus(now, -600), limit: 20, after: undefined }
  const credential = (stage: string) => createHash("md5").update(stage).digest("hex")
  const session = {
    orgId,
    hash,
    person: null,
    sid: null,
    portal: null,
    madeBy: null,
    madeIn: null,
    createdAt: now,
    expiresAt: plus(now, 60),
  }
  const ended = { orgIds: ["", orgId], before: later, credentialHash: credential("one"), sid: undefined }
  const byStage = ["one", "two"].flatMap((stage): ReadonlyArray<Act> => [
    [`keys.list of external id ${stage}`, 20, keys.list(orgId, page, { externalId: stage })],
    [`keys.list of name ${stage}`, 20, keys.list(orgId, page, { name: stage })],
    [`deployments.list of branch ${stage}`, 20, deployments.list(oneOrg(orgId), projectId, { ...page, branch: stage })],
    [
      `deployments.list of preview ${stage}`,
      20,
      deployments.list(oneOrg(orgId), projectId, { ...page, preview: stage === "one" }),
    ],
    [
      `sessions.insert of ${stage}`,
      20,
      sessions.insert({ ...session, id: endpoint, kind: "portal", credentialHash: credential(stage) }, 10, newEntry()),
    ],
  ])
  const acts: ReadonlyArray<Act> = [
    ...byStage,
    ["keys.list", 20, keys.list(orgId, page)],
    ["keys.insert", 10, Effect.flatMap(newKey(), (key) => keys.insertForOrg(orgId, key, newEntry()))],
    ["keys.update", 10, Effect.ignore(keys.update(orgId, id("k"), { rateLimit: null }, newEntry()))],
    ["keys.remove", 10, Effect.ignore(keys.remove(orgId, id("k"), newEntry()))],
    ["keys.find", 3, Effect.ignore(keys.find(orgId, id("k")))],
    ["keys.list of a project", 20, keys.list(orgId, page, { projectId })],
    ["keys.list of a project and a state", 2_000, keys.list(orgId, page, { projectId, state: "disabled" })],
    ["keys.list of a state", 2_000, keys.list(orgId, page, { state: "disabled" })],
    ["keys.findByHashes", 2, keys.findByHashes([hash, credential(`${orgId}00000001`)])],
    ["keys.touch", 10, keys.touch(new Map([[id("k"), later]]))],
    ["usages.find of a key", 20, usages.find(orgId, id("k"), { from: 1, to: 200, every: 24 })],
    ["usages.find of an org", 20, usages.find(orgId, undefined, { from: 1, to: 200, every: 24 })],
    ["usages.add", 10, usages.add([hour])],
    ["usages.removeOld", 100, usages.removeOld(50_000, 100)],
    ["projects.list", 20, projects.list(oneOrg(orgId), page)],
    ["projects.list of every org", 20, projects.list(everyOrg, page)],
    ["projects.find", 1, projects.find(oneOrg(orgId), projectId)],
    ["projects.remove", 20, projects.remove(oneOrg(orgId), projectId, later, newEntry())],
    ["deployments.list", 20, deployments.list(oneOrg(orgId), projectId, page)],
    ["deployments.register", 20, register(push(newRepository()))],
    [
      "deployments.promote",
      20,
      Effect.ignore(deployments.promote(oneOrg(orgId), projectId, id("d"), later, newEntry())),
    ],
    ["schedules.list", 20, schedules.list(orgId, page)],
    ["schedules.find", 10, Effect.ignore(schedules.find(orgId, id("s")))],
    ["schedules.update", 10, Effect.ignore(schedules.update(orgId, id("s"), { active: false }, later, newEntry()))],
    ["schedules.remove", 10, Effect.ignore(schedules.remove(orgId, id("s"), newEntry()))],
    ["schedules.runDue", 200, schedules.runDue(batch)],
    ["schedules.runDue in turns", 200, schedules.runDue({ ...batch, after: "" })],
    ["audit.list", 20, audit.list(orgId, page)],
    ["audit.list of a person", 20, audit.list(orgId, { ...page, person: "nobody" })],
    ["audit.list of a time", 20, audit.list(orgId, { ...page, since: now, until: later })],
    ["activity.add", 10, activity.add([{ ...time, every: "minute", kind: "jobs", outcome: "completed" }])],
    ["activity.addAttempts", 10, activity.addAttempts([{ ...failed, every: "hour", cause: "503", bucket: 1 }])],
    // The test makes a day of each hour, so that a month has 720 rows, and as many versions of them.
    ["activity.attempts", 2_000, activity.attempts(orgId, endpoint, healthRanges(later))],
    ["activity.counts by minute", 20, activity.counts(oneOrg(orgId), "minute", plus(now, -600), later)],
    ["activity.counts by day", 20, activity.counts(oneOrg(orgId), "day", plus(now, -600), later)],
    ["activity.queueState", 100, activity.queueState(oneOrg(orgId), later)],
    ["activity.failing", 20, activity.failing({ ...ranking, every: "hour" })],
    ["activity.failing by day", 20, activity.failing({ ...ranking, every: "day" })],
    ["activity.activeOrgs", 20, activity.activeOrgs({ ...ranking, by: "jobs", every: "hour" })],
    ["activity.activeOrgs by attempts", 20, activity.activeOrgs({ ...ranking, by: "attempts", every: "hour" })],
    ["activity.removeOld of minutes", 200, activity.removeOld("activity_counts", "minute", later, 100)],
    ["activity.removeOld of hours", 200, activity.removeOld("activity_counts", "hour", later, 100)],
    ["activity.removeOld of attempts", 200, activity.removeOld("endpoint_attempts", "hour", later, 100)],
    ["questions.list", 20, questions.list(docs, page)],
    ["questions.setThumb", 10, questions.setThumb(docs, id("q"), "up")],
    ["questions.removeOld", 100, questions.removeOld(later, 100)],
    ["sessions.find", 1, sessions.find(session, later)],
    ["sessions.remove", 1, sessions.remove(session, newEntry())],
    ["sessions.openLink", 10, sessions.openLink(session, { ...session, hash: credential("new") }, 100, newEntry())],
    ["sessions.find of a link", 1, sessions.find(session, later, "link")],
    ["sessions.links", 20, sessions.links(orgId, page, now)],
    ["sessions.revokeLink", 10, Effect.exit(sessions.revokeLink(orgId, id("s"), newEntry()))],
    ["sessions.removePerson", 10, sessions.removePerson(ended, () => Effect.succeed(newEntry()))],
    [
      "sessions.removePerson of a sid",
      10,
      sessions.removePerson({ ...ended, credentialHash: undefined, sid: "s" }, () => Effect.succeed(newEntry())),
    ],
    ["sessions.removeExpired", 100, sessions.removeExpired(later, 100)],
    ["idempotency.deleteExpired", 100, idempotency.deleteExpired(later, 100)],
    ["sweeps.next", 10, sweeps.next("", [])],
    ["sweeps.next of the orgs after one", 10, sweeps.next(orgId, [])],
    ...erasures(sql, orgId, ["projects", "keys", "keyUsage", "docsQuestions", "schedules", "deployments", "sessions"]),
    ...erasures(sql, orgId, ["activity", "endpointFailures"]),
    ["erasure of a project's keys", 400, eraseBatch(sql, docs, "-keys:", 100)],
    ["erasure of a project's deployments", 200, eraseBatch(sql, docs, "-deployments:", 100)],
  ]
  return acts
})

/** The acts that read more than is allowed. */
const tooMuch = Effect.fnUntraced(function* (acts: ReadonlyArray<Act>, when: string) {
  const found: Array<string> = []
  for (const [name, most, act] of acts) {
    let { rows } = yield* rowsRead(tables, act)
    // The first run marks the index entries of rows that are gone.
    if (rows > rowsEach * most) ({ rows } = yield* rowsRead(tables, act))
    if (rows > rowsEach * most) found.push(`${when}: ${name}: ${rows}`)
  }
  return found
})

/** What many rows are, one after the other. */
const stages: readonly [States, ...ReadonlyArray<States>] = [
  { deliveries: "pending", jobs: "queued" },
  { deliveries: "canceled", jobs: "running" },
  { deliveries: "pending", jobs: "queued" },
  { deliveries: "delivered", jobs: "completed" },
  { deliveries: "failed", jobs: "canceled" },
]

/**
 * Waits until no transaction of the server, also of other tests, is older than now: an index scan marks the entries of
 * rows that are gone only when nobody can see them, and when what removed them is on the disk: the commit of this
 * transaction takes the ones before it there.
 */
const forgotten = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [now] = yield* sql<{ xid: string }>`
    SELECT pg_current_xact_id()::xid::text AS xid, pg_logical_emit_message(true, '', ''::text)::text`
  const older = sql`
    SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid()
      AND greatest(age(backend_xid), age(backend_xmin)) > age(${now!.xid}::xid)`
  yield* until("older transactions", older, (rows) => rows.length === 0)
})

/** Makes statistics of partitions by which each org has one row: then a plan takes an index of orgs if it fits. */
const takeOrgsForSmall = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const partitions = yield* sql<{ name: string }>`
    SELECT attrelid::regclass::text AS name FROM pg_attribute JOIN pg_class t ON t.oid = attrelid
    WHERE attname = 'org_id' AND t.relkind = 'r' AND t.relispartition`
  for (const { name } of partitions) yield* sql`ALTER TABLE ${sql(name)} ALTER org_id SET (n_distinct = -1)`
  yield* sql`ANALYZE`
})

/**
 * Runs acts in a large and in a small org while the rows of the large one go from stage to stage; returns what read too
 * much.
 */
const checkStages = Effect.fnUntraced(function* <Stage>(
  stages: readonly [Stage, ...ReadonlyArray<Stage>],
  actsOf: (place: Place) => Effect.Effect<ReadonlyArray<Act>, never, World>,
  fill: (place: Place, rows: number, stage: Stage) => Effect.Effect<void, unknown, World>,
  moveTo: (place: Place, stage: Stage) => Effect.Effect<void, unknown, World>,
) {
  const sql = yield* SqlClient.SqlClient
  yield* withoutAutovacuum(tables)
  const now = DateTime.add(yield* DateTime.now, { days: -1 })
  const places: Array<Place> = []
  for (let n = 0; n < 2; n++) {
    const { orgId } = yield* insertOrg()
    const { projectId } = yield* insertProject(orgId)
    places.push({ orgId, projectId, endpoint: yield* insertEndpoint(orgId), now })
    // Known, so that no creation counts.
    yield* sql`UPDATE org_usage SET keys = 0, schedules = 0, unfinished_jobs = 0 WHERE org_id = ${orgId}`
  }
  const [large, small] = places as [Place, Place]
  const [ofLarge, ofSmall] = [yield* actsOf(large), yield* actsOf(small)]
  const plan = sql`DISCARD PLANS`
  const found: Array<string> = []
  const check = Effect.fnUntraced(function* (when: string, acts = [...ofLarge, ...ofSmall]) {
    found.push(...(yield* tooMuch(acts, when)))
  })
  const [first, ...others] = stages
  yield* fill(small, 5, first)
  yield* forgotten
  yield* check("empty")
  yield* fill(large, count, first)
  yield* forgotten
  yield* check("planned when it was empty", ofLarge)
  yield* plan
  yield* check("without statistics")
  for (const stage of others) {
    yield* sql`VACUUM ANALYZE`
    yield* plan
    yield* check(`before ${JSON.stringify(stage)}: fresh`, ofLarge)
    yield* moveTo(large, stage)
    yield* forgotten
    yield* check(`${JSON.stringify(stage)}: planned before`, ofLarge)
    yield* plan
    yield* check(`${JSON.stringify(stage)}: stale`)
  }
  yield* sql`ANALYZE`
  yield* plan
  yield* check("fresh at the end", ofLarge)
  yield* takeOrgsForSmall
  yield* plan
  yield* check("with a row for each org", ofLarge)
  // As autovacuum leaves tables that were full once: the statistics say one page and no row.
  for (const table of tables.filter((name) => !kept.has(name))) yield* sql`DELETE FROM ${sql(table)}`
  yield* forgotten
  yield* sql`VACUUM ANALYZE`
  yield* plan
  yield* check("emptied", ofLarge)
  yield* fill(large, count, first)
  yield* forgotten
  yield* check("planned when it was emptied", ofLarge)
  return found
})

describe("beside many rows that all change", () => {
  it.live("each statement of deliveries, events and jobs reads a bounded number of rows with any statistics", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* checkStages(stages, actsOf, fill, moveTo), [])
    }).pipe(Effect.provide(world)),
  )

  it.live("each statement of keys, deployments, schedules, the audit log and counts does, too", () =>
    Effect.gen(function* () {
      const found = yield* checkStages(["one", "two", "one"], otherActsOf, fillOthers, moveOthers)
      assert.deepStrictEqual(found, [])
    }).pipe(Effect.provide(world)),
  )
})
