import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import { leaseExpired } from "#src/domain/jobs/JobEnd.ts"
import type { NewJob } from "#src/domain/jobs/JobRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import type { RoundRobinBatch } from "#src/domain/roundRobin.ts"
import { failureOf, insertOrg, newId } from "../support.ts"
import { eventsOf } from "../webhooks/events.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  cancelJob,
  completed,
  deliveriesOf,
  epoch,
  failed,
  findJob,
  failExpired,
  finish,
  heartbeat,
  insertEndpoint,
  insertJob,
  noSuchJob,
  notRunning,
  otherOutcome,
  plus,
} from "../webhooks/webhookSupport.ts"

const claim = (orgId: string, now: DateTime.Utc, workflows?: ReadonlyArray<string>, limit = 100) =>
  JobRepository.use((jobs) => jobs.claim(orgId, { workflows, limit, now, leaseUntil: plus(now, 60) }))
const claimIds = (...args: Parameters<typeof claim>) =>
  Effect.map(claim(...args), (jobs) => jobs.map(({ job_id }) => job_id))
const queueBatch = (now: DateTime.Utc, batch: Partial<RoundRobinBatch> = {}) =>
  JobRepository.use((jobs) => jobs.queueDelayed({ now, limit: 1_000, after: null, ...batch }))
const conflict = (error: string) => JSON.stringify({ error, code: "conflict" })
const over = (attempt: number) =>
  conflict(`Attempt ${attempt} of the job is not running: its lease expired, or it has ended. Stop the work.`)
const canceled = conflict("The job is canceled: stop the work.")

/** An org with an endpoint and a claimed job. */
const insertClaimed = Effect.fnUntraced(function* (fields: Partial<NewJob> = {}) {
  const { orgId } = yield* insertOrg()
  yield* insertEndpoint(orgId)
  const now = epoch()
  const jobId = yield* insertJob(orgId, fields)
  yield* claim(orgId, now)
  return { orgId, jobId, now }
})

/** The contract of priorities, delays, fences, retries and cancellations in every JobRepository. */
export const jobReports = (it: It) => {
  it.effect(
    "queue: a claim takes the highest priority first, then the oldest job, of any or of the named workflows",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const insert = (workflow: string, priority: number) => insertJob(orgId, { workflow, priority })
      const [a, b, c, d, e] = [
        yield* insert("x", 0),
        yield* insert("y", -100),
        yield* insert("z", 100),
        yield* insert("x", 5),
        yield* insert("y", 5),
      ]
      assert.deepStrictEqual(yield* claimIds(orgId, now, ["x", "y"], 1), [d])
      assert.deepStrictEqual(yield* claimIds(orgId, now, ["none", "x", "y"], 2), [e, a])
      assert.deepStrictEqual(yield* claimIds(orgId, now, undefined, 1), [c])
      assert.deepStrictEqual(yield* claimIds(orgId, now), [b])
      assert.deepInclude(yield* findJob(orgId, c), { priority: 100, attempt: 1 })
    },
  )

  it.effect("a report returns the new status of its job, and no status when it changes nothing", function* () {
    const { orgId, jobId, now } = yield* insertClaimed({ maxAttempts: 2 })
    const statusOf = Effect.map(({ status }: { readonly status: string | null }) => status)
    const retry = { attempt: 1, retry: true }
    assert.strictEqual(yield* statusOf(finish(orgId, jobId, failed(), now, retry)), "queued")
    assert.strictEqual(yield* statusOf(finish(orgId, jobId, failed(), now, retry)), null)
    assert.strictEqual(yield* statusOf(finish(orgId, jobId, completed(), now)), "completed")
    assert.strictEqual(yield* statusOf(finish(orgId, jobId, completed(), now)), null)
    const other = yield* insertJob(orgId)
    assert.strictEqual(yield* statusOf(cancelJob(orgId, other, now)), "canceled")
    assert.strictEqual(yield* statusOf(cancelJob(orgId, other, now)), null)
  })

  it.effect("queue: concurrent claims of several workflows never take the same job", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const ids: Array<string> = []
    for (let n = 0; n < 24; n++) ids.push(yield* insertJob(orgId, { workflow: n % 2 ? "odd" : "even" }))
    const got = yield* Effect.replicateEffect(claimIds(orgId, now, ["even", "odd"], 3), 8, {
      concurrency: "unbounded",
    })
    assert.isTrue(got.every((some) => some.length <= 3))
    const rest = yield* claimIds(orgId, now)
    assert.deepStrictEqual([...got.flat(), ...rest].sort(), ids)
  })

  it.effect("queue: a delayed job can be claimed from its time on, and not before", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: other } = yield* insertOrg()
    const now = epoch()
    const [later, soon] = [
      yield* insertJob(orgId, { runAt: plus(now, 60) }),
      yield* insertJob(orgId, { runAt: plus(now, 30) }),
    ]
    const foreign = yield* insertJob(other, { runAt: plus(now, 30) })
    assert.deepInclude(yield* findJob(orgId, soon), { status: "queued", run_at: plus(now, 30) })
    assert.deepStrictEqual(yield* queueBatch(plus(now, 29.999)), { orgs: [], moved: 0, next: null })
    assert.deepStrictEqual(yield* claimIds(orgId, now), [])
    assert.deepStrictEqual(yield* queueBatch(plus(now, 30)), {
      orgs: [orgId, other].sort(),
      moved: 2,
      next: null,
    })
    assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 30)), [soon])
    assert.deepStrictEqual(yield* claimIds(other, plus(now, 30)), [foreign])
    assert.deepStrictEqual(yield* queueBatch(plus(now, 60)), { orgs: [orgId], moved: 1, next: null })
    assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 60)), [later])
  })

  it.effect("queue: delayed jobs become due in batches, in which every org has the same share", function* () {
    const now = epoch()
    const { orgId: after } = yield* insertOrg()
    const [one, two] = [(yield* insertOrg()).orgId, (yield* insertOrg()).orgId]
    for (let n = 0; n < 4; n++) yield* insertJob(one, { runAt: now })
    yield* insertJob(two, { runAt: now })
    assert.deepStrictEqual(yield* queueBatch(now, { limit: 2, after }), { orgs: [one, two], moved: 2, next: two })
    assert.deepStrictEqual(yield* queueBatch(now, { limit: 2, after: two }), { orgs: [], moved: 0, next: null })
    assert.deepStrictEqual(yield* queueBatch(now, { limit: 2 }), { orgs: [one], moved: 2, next: "" })
    assert.deepStrictEqual(yield* queueBatch(now, { limit: 2 }), { orgs: [one], moved: 1, next: null })
    assert.strictEqual((yield* claimIds(one, now)).length, 4)
  })

  it.effect(
    "fence: after the next claim, a worker whose lease expired changes nothing, and the result of the last claim stays",
    function* () {
      const { jobId, now, orgId } = yield* insertClaimed()
      const late = plus(now, 61)
      yield* JobRepository.use((jobs) => jobs.expireLeases({ now: late, limit: 1_000, after: null }))
      const beat = (attempt: number) =>
        JobRepository.use((jobs) => jobs.extendLease(orgId, jobId, heartbeat(plus(late, 99), late, attempt)))
      // The job is queued: no attempt is running.
      assert.strictEqual(yield* failureOf(finish(orgId, jobId, completed("old"), late, { attempt: 1 })), over(1))
      assert.strictEqual(yield* failureOf(beat(1)), notRunning)
      yield* claim(orgId, late)
      for (const outcome of [completed("old"), failed()]) {
        assert.strictEqual(yield* failureOf(finish(orgId, jobId, outcome, late, { attempt: 1 })), over(1))
      }
      assert.strictEqual(yield* failureOf(beat(1)), over(1))
      yield* beat(2)
      assert.deepInclude(yield* findJob(orgId, jobId), { status: "running", lease_expires_at: plus(late, 99) })
      yield* finish(orgId, jobId, completed("new"), late, { attempt: 2 })
      // The answer may have been lost, so the same report again succeeds.
      yield* finish(orgId, jobId, completed("again"), late, { attempt: 2 })
      assert.strictEqual(yield* failureOf(finish(orgId, jobId, completed("old"), late, { attempt: 1 })), over(1))
      assert.strictEqual(yield* failureOf(finish(orgId, jobId, failed(), late, { attempt: 2 })), otherOutcome)
      assert.strictEqual(JSON.stringify((yield* findJob(orgId, jobId)).result), '"new"')
      assert.strictEqual((yield* eventsOf(jobId)).length, 1)
    },
  )

  // Seen failing: the report was answered as one that the job has, and its error was lost.
  it.effect(
    "fence: a report of an attempt whose lease expired is refused when the job has failed by that",
    function* () {
      const { jobId, now, orgId } = yield* insertClaimed({ maxAttempts: 1 })
      const late = plus(now, 61)
      yield* failExpired(orgId, jobId, late)
      for (const outcome of [completed("late"), failed()]) {
        assert.strictEqual(yield* failureOf(finish(orgId, jobId, outcome, late, { attempt: 1 })), over(1))
      }
      assert.strictEqual((yield* findJob(orgId, jobId)).error, "lease expired")
    },
  )

  it.effect(
    "retry: a failed attempt queues the job again after its delay, and only the last attempt creates an event",
    function* () {
      const { jobId, now, orgId } = yield* insertClaimed({ maxAttempts: 2, retryDelaySeconds: 30 })
      const error = failed("first", ["a stack"])
      yield* finish(orgId, jobId, error, now, { attempt: 1, retry: true })
      const queued = yield* findJob(orgId, jobId)
      const { attempt, error: said, finished_at, lease_expires_at, run_at, status } = queued
      assert.deepStrictEqual(
        { attempt, said, finished_at, lease_expires_at, run_at, status },
        {
          attempt: 1,
          said: "first",
          finished_at: null,
          lease_expires_at: null,
          run_at: plus(now, 30),
          status: "queued",
        },
      )
      assert.strictEqual(JSON.stringify(queued.mapped_stack), '["a stack"]')
      // The same report again changes nothing, before and after the next claim.
      yield* finish(orgId, jobId, error, plus(now, 5), { attempt: 1, retry: true })
      assert.deepStrictEqual((yield* findJob(orgId, jobId)).run_at, plus(now, 30))
      assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 29)), [])
      yield* queueBatch(plus(now, 30))
      assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 30)), [jobId])
      yield* finish(orgId, jobId, error, plus(now, 31), { attempt: 1, retry: true })
      assert.strictEqual((yield* findJob(orgId, jobId)).status, "running")
      assert.deepStrictEqual(yield* eventsOf(jobId), [])

      yield* finish(orgId, jobId, failed("last"), plus(now, 32), { attempt: 2, retry: true })
      assert.deepInclude(yield* findJob(orgId, jobId), { status: "failed", error: "last", mapped_stack: null })
      assert.strictEqual((yield* eventsOf(jobId)).length, 1)
      assert.strictEqual((yield* deliveriesOf(orgId, { job_id: jobId })).length, 1)
    },
  )

  it.effect("retry: a job that completes after a failed attempt has no error", function* () {
    const { jobId, now, orgId } = yield* insertClaimed()
    yield* finish(orgId, jobId, failed("first", 1), now, { retry: true })
    yield* finish(orgId, jobId, completed(1), now)
    assert.deepInclude(yield* findJob(orgId, jobId), { status: "completed", error: null, mapped_stack: null })
    assert.deepStrictEqual((yield* queueBatch(plus(now, 3600))).moved, 0)
  })

  it.effect("leases: a job can be claimed as often as its leases may expire", function* () {
    const { jobId, now, orgId } = yield* insertClaimed({ maxAttempts: 1 })
    const late = plus(now, 60)
    const { exhausted } = yield* JobRepository.use((jobs) =>
      jobs.expireLeases({ now: late, limit: 1_000, after: null }),
    )
    assert.deepStrictEqual(exhausted, [{ orgId, jobId }])
    yield* failExpired(orgId, jobId, late)
    assert.deepInclude(yield* findJob(orgId, jobId), { status: "failed", error: leaseExpired.error })
  })

  it.effect(
    "cancel: a queued, delayed or running job is canceled without an event; a finished one is not",
    function* () {
      const { jobId, now, orgId } = yield* insertClaimed()
      const [queued, delayed] = [yield* insertJob(orgId), yield* insertJob(orgId, { runAt: plus(now, 1) })]
      for (const id of [jobId, queued, delayed, jobId]) yield* cancelJob(orgId, id, plus(now, 1))
      assert.deepInclude(yield* findJob(orgId, jobId), {
        status: "canceled",
        lease_expires_at: null,
        finished_at: plus(now, 1),
      })
      assert.deepStrictEqual((yield* queueBatch(plus(now, 2))).moved, 0)
      assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 2)), [])
      for (const id of [jobId, queued, delayed]) {
        assert.deepStrictEqual(yield* eventsOf(id), [])
        assert.strictEqual(yield* failureOf(finish(orgId, id, completed(), now)), canceled)
        assert.strictEqual(yield* failureOf(finish(orgId, id, failed(), now, { attempt: 1, retry: true })), canceled)
        const beat = heartbeat(plus(now, 60), now, 1)
        assert.strictEqual(yield* failureOf(JobRepository.use((jobs) => jobs.extendLease(orgId, id, beat))), canceled)
      }
      const { items } = yield* JobRepository.use((jobs) => jobs.list(orgId, { status: "canceled" }, { limit: 9 }))
      assert.strictEqual(items.length, 3)

      const done = yield* insertJob(orgId)
      yield* finish(orgId, done, completed(), now)
      assert.strictEqual(
        yield* failureOf(cancelJob(orgId, done, now)),
        conflict("The job has already finished and cannot be canceled."),
      )
      const { orgId: foreign } = yield* insertOrg()
      for (const id of [done, yield* newId])
        assert.strictEqual(yield* failureOf(cancelJob(foreign, id, now)), noSuchJob)
    },
  )

  it.effect("heartbeat: progress and note stay until the next claim", function* () {
    const { jobId, now, orgId } = yield* insertClaimed()
    const beat = (fields: object) =>
      JobRepository.use((jobs) => jobs.extendLease(orgId, jobId, { ...heartbeat(plus(now, 60), now, 1), ...fields }))
    const shown = Effect.map(findJob(orgId, jobId), ({ note, progress }) => [progress, note])
    assert.deepStrictEqual(yield* shown, [null, null])
    yield* beat({ progress: 0.25, note: "row \u2028 4" })
    yield* beat({ progress: 1 / 3 })
    assert.deepStrictEqual(yield* shown, [1 / 3, "row \u2028 4"])
    yield* beat({ note: "" })
    yield* beat({})
    assert.deepStrictEqual(yield* shown, [1 / 3, ""])
    yield* finish(orgId, jobId, failed(), now, { retry: true })
    yield* queueBatch(plus(now, 3600))
    yield* claim(orgId, plus(now, 3600))
    assert.deepStrictEqual(yield* shown, [null, null])
  })

  it.effect("reports: concurrent reports of an org are decided one by one, and each job has one event", function* () {
    const { orgId } = yield* insertOrg()
    yield* insertEndpoint(orgId)
    const now = epoch()
    const ids: Array<string> = []
    for (let n = 0; n < 20; n++) ids.push(yield* insertJob(orgId, n % 3 === 0 ? { skipCallbacks: true } : {}))
    const both = yield* Effect.forEach(
      ids.flatMap((id) => [finish(orgId, id, completed(id), now), finish(orgId, id, failed(id), now)]),
      Effect.result,
      { concurrency: "unbounded" },
    )
    assert.strictEqual(both.filter(({ _tag }) => _tag === "Success").length, 20)
    assert.strictEqual(yield* failureOf(finish(orgId, yield* newId, completed(), now)), noSuchJob)
    for (const [n, id] of ids.entries()) {
      const { error, result, status } = yield* findJob(orgId, id)
      assert.strictEqual(status === "completed" ? JSON.parse(JSON.stringify(result)) : error, id)
      assert.strictEqual((yield* eventsOf(id)).length, 1)
      assert.strictEqual((yield* deliveriesOf(orgId, { job_id: id })).length, n % 3 === 0 ? 0 : 1)
    }
  })
}
