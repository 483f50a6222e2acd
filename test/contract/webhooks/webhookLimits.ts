import { assert } from "@effect/vitest"
import { type DateTime, Effect } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import type { NewJobSchedule } from "#src/domain/jobs/JobScheduleRepository.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { graceBytes, rowCost } from "#src/domain/orgs/StoredBytes.ts"
import { PendingDeliveries } from "#src/domain/webhooks/PendingLimit.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { eventsOf } from "./events.ts"
import { findWithUsage, refusal, together, updateOrg } from "../orgs/orgLimits.ts"
import { at, insertOrg, newEntry, newId } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  completed,
  failed,
  endpointsOf,
  epoch,
  finish,
  insertEndpoint,
  insertJob,
  jobsOf,
  makeEvent,
  plus,
  publish,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

const insertSchedule = Effect.fnUntraced(function* (orgId: string, overrides: Partial<NewJobSchedule> = {}) {
  const schedule: NewJobSchedule = {
    scheduleId: yield* newId,
    orgId,
    workflow: "report",
    cron: "0 4 * * *",
    timezone: "UTC",
    input: null,
    deploymentId: null,
    callbackUrl: null,
    callbackSecret: null,
    skipCallbacks: false,
    concurrencyKey: null,
    expiresInSeconds: null,
    priority: 0,
    maxAttempts: 3,
    retryDelaySeconds: 10,
    overlap: "allow",
    nextAt: at(0),
    now: at(0),
    ...overrides,
  }
  yield* JobScheduleRepository.use((schedules) => schedules.insert(schedule, newEntry()))
  return schedule.scheduleId
})
const removeSchedule = (orgId: string, id: string) =>
  JobScheduleRepository.use((schedules) => schedules.remove(orgId, id, newEntry()))
/** Runs the schedules of a test's orgs. */
const run = (now: DateTime.Utc, orgs: ReadonlyArray<string>) =>
  JobScheduleRepository.use((schedules) =>
    Effect.map(schedules.runDue({ now, limit: 100, after: null }), (ran) =>
      ran.orgs.filter((orgId) => orgs.includes(orgId)).toSorted(),
    ),
  )
const overLimit = (orgs: ReadonlyArray<string>) =>
  PendingDeliveries.use(({ overLimit }) =>
    Effect.map(overLimit, (all) => all.filter(({ orgId }) => orgs.includes(orgId))),
  )
const usedBy = (orgId: string) => Effect.map(findWithUsage(orgId), ({ used }) => used)

/** The contract of the limits of the webhook interface in every repository. */
export const webhookLimits = (it: It) => {
  // Seen failing: a fault of the service, and a 500.
  it.effect("limits: an org that was deleted during a request gets nothing", function* () {
    const orgId = yield* newId
    const outcomes = yield* Effect.all([
      Effect.flip(insertEndpoint(orgId)),
      Effect.flip(insertSchedule(orgId)),
      Effect.flip(insertJob(orgId)),
      Effect.flip(publish(orgId, "a.b", at(0))),
    ])
    assert.deepStrictEqual(
      outcomes.map(({ _tag }) => _tag),
      ["Unavailable", "Unavailable", "Unavailable", "Unavailable"],
    )
  })

  it.effect("limits: an org at its limit of endpoints or schedules gets no more", function* () {
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    yield* updateOrg(orgId, { limits: { endpoints: 2, schedules: 3 } })
    const before = at(86_400)
    assert.deepStrictEqual(yield* together(insertEndpoint(orgId), 10), { ok: 2, "2 webhook endpoints": 8 })
    const later = { nextAt: before }
    assert.deepStrictEqual(yield* together(insertSchedule(orgId, later), 10), { ok: 3, "3 schedules": 7 })
    assert.strictEqual(yield* refusal(insertEndpoint(other.orgId)), "ok")
    assert.strictEqual(yield* refusal(insertSchedule(other.orgId, later)), "ok")
    const { endpoints, schedules } = yield* usedBy(orgId)
    assert.deepStrictEqual({ endpoints, schedules }, { endpoints: 2, schedules: 3 })
    const [endpoint] = yield* endpointsOf(orgId)
    yield* WebhookEndpointRepository.use((all) => all.remove(orgId, endpoint!.webhook_endpoint_id, at(1), newEntry()))
    assert.deepStrictEqual(yield* together(insertEndpoint(orgId), 3), { ok: 1, "2 webhook endpoints": 2 })
  })

  it.effect(
    "limits: an org at its limit of unfinished jobs gets no more, and a finished job counts no longer",
    function* () {
      const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
      yield* updateOrg(orgId, { limits: { unfinishedJobs: 3 } })
      const first = yield* insertJob(orgId, { idempotencyKey: "first" })
      assert.deepStrictEqual(yield* together(insertJob(orgId), 10), { ok: 2, "3 unfinished jobs": 8 })
      assert.strictEqual(yield* refusal(insertJob(other.orgId)), "ok")
      // A repeated creation is no new job.
      assert.strictEqual(yield* insertJob(orgId, { idempotencyKey: "first" }), first)
      assert.strictEqual((yield* usedBy(orgId)).unfinishedJobs, 3)
      yield* finish(orgId, first, completed(), at(1))
      assert.strictEqual((yield* usedBy(orgId)).unfinishedJobs, 2)
      assert.deepStrictEqual(yield* together(insertJob(orgId), 3), { ok: 1, "3 unfinished jobs": 2 })
    },
  )

  it.effect("limits: rows with their inputs are counted in bytes, and refused past the limit", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { storedBytes: 4_100 } })
    // Each character has two bytes in UTF-8, and the JSON has two quotes.
    const input = "ñ".repeat(14)
    assert.deepStrictEqual(yield* together(insertJob(orgId, { input }), 10), { ok: 3, "4100 stored bytes": 7 })
    const three = 3 * (rowCost.job + 30)
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, three)
    const schedule = insertSchedule(orgId, { input: "1".repeat(8), nextAt: at(86_400) })
    const scheduled = yield* schedule
    assert.strictEqual(yield* refusal(schedule), "4100 stored bytes")
    // A job without an input is a row, too.
    assert.strictEqual(yield* refusal(insertJob(orgId)), "4100 stored bytes")
    yield* removeSchedule(orgId, scheduled)
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, three)
    // The job exists, so nothing is stored a second time.
    const again = { idempotencyKey: "k", input: 1 }
    assert.strictEqual(yield* insertJob(orgId, again), yield* insertJob(orgId, again))
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, three + rowCost.job + 1 + 1)
  })

  // Seen failing: a result of any length was stored, whatever the limit.
  it.effect(
    "limits: results and payloads are counted once, and a job can be finished shortly past the limit",
    function* () {
      const { orgId } = yield* insertOrg()
      const [first, second] = [yield* insertJob(orgId), yield* insertJob(orgId)]
      yield* updateOrg(orgId, { limits: { storedBytes: 1 } })
      const bodies = Effect.map(Effect.all([eventsOf(first), eventsOf(second)]), (all) =>
        all.flat().reduce((bytes, body) => bytes + Buffer.byteLength(body), 0),
      )
      yield* finish(orgId, first, completed("ñ"), at(1))
      const row = rowCost.job + rowCost.event
      const once = row + 4 + (yield* bodies) + rowCost.job
      assert.strictEqual((yield* usedBy(orgId)).storedBytes, once)
      yield* finish(orgId, first, completed("ñ"), at(2))
      assert.strictEqual((yield* usedBy(orgId)).storedBytes, once)
      const long = completed("x".repeat(graceBytes))
      assert.strictEqual(yield* refusal(finish(orgId, second, long, at(2))), "1 stored bytes")
      yield* finish(orgId, second, failed("boom", [1]), at(3))
      assert.strictEqual((yield* usedBy(orgId)).storedBytes, 2 * row + 4 + 4 + 3 + (yield* bodies))
      assert.strictEqual(yield* refusal(insertJob(orgId, { input: 1 })), "1 stored bytes")
    },
  )

  // Seen failing: publishes that shared a statement did not count, and one that was refused counted for another's
  // event.
  it.effect("limits: each event counts, whatever is published at the same time", function* () {
    const [{ orgId }, full] = [yield* insertOrg(), yield* insertOrg()]
    yield* updateOrg(full.orgId, { limits: { storedBytes: 0 } })
    const publishTo = (org: string) => refusal(publish(org, "a.b", at(0), { body: '{"x":1}' }))
    const both = yield* Effect.all([publishTo(orgId), publishTo(full.orgId)], { concurrency: "unbounded" })
    assert.deepStrictEqual(both, ["ok", "0 stored bytes"])
    yield* Effect.replicateEffect(publishTo(orgId), 4, { concurrency: "unbounded" })
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, 5 * (rowCost.event + 7))
    assert.strictEqual((yield* usedBy(full.orgId)).storedBytes, 0)
  })

  it.effect("limits: a schedule of an org at its limit creates no job and moves to its next run", function* () {
    const now = epoch()
    const [jobs, bytes, other] = [yield* insertOrg(), yield* insertOrg(), yield* insertOrg()]
    const orgs = [jobs.orgId, bytes.orgId, other.orgId]
    for (const orgId of orgs) yield* insertSchedule(orgId, { cron: "* * * * *", nextAt: now, now, input: "input" })
    yield* updateOrg(jobs.orgId, { limits: { unfinishedJobs: 1 } })
    yield* updateOrg(bytes.orgId, { limits: { storedBytes: 0 } })
    assert.deepStrictEqual(yield* run(now, orgs), [jobs.orgId, other.orgId].toSorted())
    assert.deepStrictEqual(yield* run(plus(now, 60), orgs), [other.orgId])
    assert.deepStrictEqual(yield* run(plus(now, 60), orgs), [])
    const batch = { now: plus(now, 120), limit: 100, after: null }
    const { moved, orgs: ran } = yield* JobScheduleRepository.use((schedules) => schedules.runDue(batch))
    assert.isAtLeast(moved, ran.length + 2)
    assert.strictEqual((yield* jobsOf(jobs.orgId)).length, 1)
    assert.strictEqual((yield* usedBy(other.orgId)).storedBytes, rowCost.schedule + 3 * rowCost.job + 4 * 7)
  })

  it.effect("limits: in an org with too many pending deliveries, the endpoint with the most is found", function* () {
    const now = epoch()
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const orgs = [orgId, other.orgId]
    yield* updateOrg(orgId, { limits: { pendingDeliveries: 3 } })
    const first = yield* insertEndpoint(orgId, { now })
    yield* makeEvent(orgId, now)
    const second = yield* insertEndpoint(orgId, { now })
    yield* makeEvent(orgId, now)
    yield* insertEndpoint(other.orgId, { now })
    for (let n = 0; n < 5; n++) yield* makeEvent(other.orgId, now)
    assert.strictEqual((yield* usedBy(orgId)).pendingDeliveries, 3)
    assert.deepStrictEqual(yield* overLimit(orgs), [])
    yield* makeEvent(orgId, now, { callbackUrl: "https://example.com/hook", callbackSecret: "stored" })
    const over = { orgId, limit: 3, pending: 4, endpointId: first }
    assert.deepStrictEqual(yield* overLimit(orgs), [over])

    const entry = newEntry({ action: "webhook_endpoint.deactivate", actor: "service", target: first })
    const deactivate = WebhookEndpointRepository.use((all) => all.deactivate(orgId, first, now, entry))
    assert.isTrue(yield* deactivate)
    assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: first }), ["canceled", "canceled"])
    assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: second }), ["pending"])
    const { get } = yield* WebhookEndpointRepository
    const { active, deactivated_at, deactivated_reason } = yield* get(orgId, { id: first })
    assert.deepStrictEqual([active, deactivated_at, deactivated_reason], [false, now, "failing"])
    // Again, or for another org, it changes nothing and leaves no entry.
    assert.isFalse(yield* deactivate)
    assert.isFalse(yield* WebhookEndpointRepository.use((all) => all.deactivate(other.orgId, second, now, newEntry())))
    const entries = yield* AuditRepository.use((log) => log.list(orgId, { limit: 100 }))
    assert.strictEqual(entries.items.filter(({ actor }) => actor === "service").length, 1)
    assert.deepStrictEqual(yield* overLimit(orgs), [])

    yield* updateOrg(orgId, { limits: { pendingDeliveries: 0 } })
    yield* makeEvent(orgId, now)
    const [last, ...others] = yield* overLimit(orgs)
    assert.deepStrictEqual([last!.orgId, last!.limit, last!.endpointId, others], [orgId, 0, second, []])
    assert.isAbove(last!.pending, 0)

    // After its activation, new deliveries of the endpoint count, and canceled ones do not.
    yield* updateEndpoint(orgId, first, now, { active: true })
    yield* updateEndpoint(orgId, second, now, { active: false })
    yield* makeEvent(orgId, now)
    assert.strictEqual((yield* usedBy(orgId)).pendingDeliveries, 2)
    assert.deepInclude((yield* overLimit(orgs))[0], { orgId, endpointId: first })
  })
}
