import { assert, describe, it } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/JobScheduleRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import * as RetentionSql from "#src/infrastructure/retention/RetentionRepository.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/SweepRepository.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/DeliveryLogRepository.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/DeliveryQueueRepository.ts"
import * as EventsSql from "#src/infrastructure/webhooks/EventRepository.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/WebhookEndpointRepository.ts"
import { rowsRead } from "../../contract/boundedReads.ts"
import { insertOrg, newEntry, newId } from "../../contract/support.ts"
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
import { databases } from "../../support/databases.ts"

const world = Layer.mergeAll(
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  OrgsSql.layer,
  RetentionSql.layer,
  SweepsSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer), Layer.provideMerge(databases.postgres))
type World = Layer.Success<typeof world>

const tables = [
  "deliveries",
  "delivery_attempts",
  "events",
  "job_schedules",
  "jobs",
  "pending_deliveries",
  "sweeps",
  "webhook_endpoints",
]

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
  readonly endpoint: string
  readonly now: DateTime.Utc
}

/** Changes every row to other states, and queues what is pending, as sweeps do. */
const moveTo = Effect.fnUntraced(function* ({ endpoint, now, orgId }: Place, { deliveries, jobs }: States) {
  const sql = yield* SqlClient.SqlClient
  const at = DateTime.toDateUtc(now)
  yield* sql`
    UPDATE jobs SET status = ${jobs}::text, lease_expires_at = CASE WHEN ${jobs} = 'running' THEN ${at}::timestamptz END,
      finished_at = CASE WHEN ${jobs} IN ('completed', 'canceled') THEN ${at}::timestamptz END WHERE org_id = ${orgId}`
  yield* sql`UPDATE deliveries SET state = ${deliveries} WHERE org_id = ${orgId}`
  yield* sql`DELETE FROM pending_deliveries WHERE org_id = ${orgId}`
  if (deliveries !== "pending") return
  yield* sql`
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
    SELECT ${endpoint}, id, event_id, 0, 0, ${at}, true, org_id, 2 FROM deliveries WHERE org_id = ${orgId}`
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
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT ${endpoint} || 'e' || id, ${orgId}, ${endpoint} || 'j' || id, 'job.completed', '{}', ${at} FROM ${each}`
  yield* sql`
    INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
    SELECT ${endpoint} || 'd' || id, ${orgId}, ${endpoint} || 'e' || id, ${endpoint} || 'j' || id, ${endpoint}, ${endpoint},
      'delivered', ${at}, ${at} FROM ${each}`
  yield* moveTo(place, states)
})

/** Rows of `rowsEach` of a page, and of pages that look for rare rows among 10,000: entries alone, and with their rows. */
const [page20, rareEntries, rareRows] = [20, 700, 10_000 / 3]

/** A call of a method, with how many rows it returns or changes at most. */
type Act = readonly [name: string, rows: number, act: Effect.Effect<unknown, unknown, World>]

/** Calls of every method of the repositories, in an org; the names begin with those of the methods. */
const actsOf = Effect.fnUntraced(function* ({ endpoint, now, orgId }: Place) {
  const queue = yield* DeliveryQueue
  const log = yield* DeliveryLogRepository
  const events = yield* EventRepository
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
  const recovery = { orgId, endpointId: endpoint, since, until: null }
  const sweep = (kind: "cancel" | "recover") =>
    Effect.gen(function* () {
      const sweepId = yield* newId
      yield* sql`
        INSERT INTO sweeps (id, org_id, kind, endpoint_id, lane, since, created_at)
        VALUES (${sweepId}, ${orgId}, ${kind}, ${endpoint}, ${endpoint}, ${DateTime.toDateUtc(since)}, now())`
      yield* sweeps.advance(sweepId, later, 100)
    })
  const template = {
    workflow: "w",
    input: null,
    deploymentId: null,
    callbackUrl: null,
    callbackSecret: null,
    skipCallbacks: true,
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
    (status): ReadonlyArray<Act> => [
      [`jobs.list of status ${status}`, 20, jobs.list(orgId, { status }, page)],
      [`jobs.list of status ${status} and workflow`, 20, jobs.list(orgId, { status, workflow: "workflow 7" }, page)],
    ],
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
    ["queue.nextDueAt", 1, queue.nextDueAt],
    ["queue.countDue", 100, queue.countDue(later, 100)],
    ["queue.correctTimes", 100, queue.correctTimes({ now: plus(now, -60), leaseUntil: now, limit: 100, after: null })],
    ...lists,
    ["log.list of an event", 20, log.list(orgId, { event_id: id("e") }, page)],
    ["log.list of a job", 20, log.list(orgId, { job_id: id("j") }, page)],
    ["log.find", 1, Effect.ignore(log.find(orgId, id("d")))],
    ["log.retry", 1, Effect.ignore(log.retry(orgId, id("d"), later))],
    ["log.recover", 900, log.recover(recovery, later)],
    [
      "log.recover after a cancellation",
      1_700,
      Effect.gen(function* () {
        yield* updateEndpoint(orgId, endpoint, later, { active: false })
        yield* updateEndpoint(orgId, endpoint, later, { active: true })
        yield* log.recover(recovery, later)
      }),
    ],
    ["events.publish", 10, publish(orgId, "a.b", later)],
    ["events.publish with a key", 10, publish(orgId, "a.b", later, { idempotencyKey: "key" })],
    ["events.list", 20, events.list(orgId, undefined, page)],
    ["events.list of a type", 20, events.list(orgId, "job.completed", page)],
    ["events.find", 1, Effect.ignore(events.find(orgId, id("e")))],
    ["events.types", 20, events.types(orgId, page)],
    ["jobs.insert", 10, insertJob(orgId)],
    ["jobs.claim", 20, jobClaim(undefined)],
    ["jobs.claim of a workflow", 20, jobClaim(["workflow 7"])],
    ["jobs.claim of workflows", 40, jobClaim(["workflow 7", "workflow 8"])],
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
    ["schedules.fireDue", 100, Effect.andThen(scheduled, schedules.fireDue(batch))],
    ["schedules.fireDue in turns", 100, Effect.andThen(scheduled, schedules.fireDue({ ...batch, after: "" }))],
    ["retention.findOld", 100, retention.findOld({ after: "", before: later, limit: 100 })],
    [
      "retention.remove",
      600,
      Effect.flatMap(retention.findOld({ after: "", before: later, limit: 100 }), retention.remove),
    ],
    ["retention.removeCanceled", 200, retention.removeCanceled(later, 100)],
    ["sweeps.next", 10, sweeps.next("", [])],
    ["sweeps.count", 10, sweeps.count(10)],
    ["sweeps.advance of a cancellation", 200, sweep("cancel")],
    ["sweeps.advance of a recovery", 200, sweep("recover")],
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
const stages: ReadonlyArray<States> = [
  { deliveries: "pending", jobs: "queued" },
  { deliveries: "canceled", jobs: "running" },
  { deliveries: "pending", jobs: "queued" },
  { deliveries: "delivered", jobs: "completed" },
  { deliveries: "failed", jobs: "canceled" },
]

describe("beside many rows whose states all change", () => {
  it.live(
    "each statement of deliveries, events and jobs reads a bounded number of rows with any statistics",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        for (const table of tables) yield* sql`ALTER TABLE ${sql(table)} SET (autovacuum_enabled = false)`
        const now = DateTime.add(yield* DateTime.now, { days: -1 })
        const places: Array<Place> = []
        for (let n = 0; n < 2; n++) {
          const { orgId } = yield* insertOrg()
          places.push({ orgId, endpoint: yield* insertEndpoint(orgId), now })
        }
        const [large, small] = places as [Place, Place]
        const [ofLarge, ofSmall] = [yield* actsOf(large), yield* actsOf(small)]
        const plan = sql`DISCARD PLANS`
        const found: Array<string> = []
        const check = Effect.fnUntraced(function* (when: string, acts = [...ofLarge, ...ofSmall]) {
          found.push(...(yield* tooMuch(acts, when)))
        })
        const [first, ...others] = stages
        yield* fill(small, 5, first!)
        yield* check("empty")
        yield* fill(large, count, first!)
        yield* check("planned when it was empty", ofLarge)
        yield* plan
        yield* check("without statistics")
        for (const states of others) {
          const { deliveries, jobs } = states
          yield* sql`VACUUM ANALYZE`
          yield* plan
          yield* check(`before ${deliveries}, ${jobs}: fresh`, ofLarge)
          yield* moveTo(large, states)
          yield* check(`${deliveries}, ${jobs}: planned before`, ofLarge)
          yield* plan
          yield* check(`${deliveries}, ${jobs}: stale`)
        }
        yield* sql`ANALYZE`
        yield* plan
        yield* check("fresh at the end", ofLarge)
        assert.deepStrictEqual(found, [])
      }).pipe(Effect.provide(world)),
    { timeout: 120_000 },
  )
})
