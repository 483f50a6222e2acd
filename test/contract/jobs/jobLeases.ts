import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { ClaimedJob } from "#src/domain/jobs/Job.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { toStoredJson } from "../../fakes/storedJson.ts"
import type { RoundRobinBatch } from "#src/domain/roundRobin.ts"
import { failureOf, insertOrg, newId } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  completed,
  epoch,
  findJob,
  failExpired,
  finish,
  heartbeat,
  insertJob,
  noSuchJob,
  notRunning,
  plus,
} from "../webhooks/webhookSupport.ts"

const claimJobs = (
  orgId: string,
  now: DateTime.Utc,
  { workflow, limit = 100, lease = 60 }: { workflow?: string; limit?: number; lease?: number } = {},
) => {
  const workflows = workflow === undefined ? undefined : [workflow]
  return JobRepository.use((jobs) => jobs.claim(orgId, { workflows, limit, now, leaseUntil: plus(now, lease) }))
}
const claimIds = (...args: Parameters<typeof claimJobs>) =>
  Effect.map(claimJobs(...args), (jobs) => jobs.map(({ job_id }) => job_id))
const extend = (orgId: string, jobId: string, until: DateTime.Utc, now: DateTime.Utc) =>
  JobRepository.use((jobs) => jobs.extendLease(orgId, jobId, heartbeat(until, now)))
const expireBatch = (now: DateTime.Utc, batch: Partial<RoundRobinBatch> = {}) =>
  JobRepository.use((jobs) => jobs.expireLeases({ now, limit: 1_000, after: null, ...batch }))
const expire = (now: DateTime.Utc) => Effect.map(expireBatch(now), ({ exhausted }) => exhausted)
/** Claims a number of new jobs of an org, with leases of a minute. */
const insertRunning = Effect.fnUntraced(function* (orgId: string, now: DateTime.Utc, count: number) {
  for (let n = 0; n < count; n++) yield* insertJob(orgId)
  return yield* claimIds(orgId, now, { limit: count })
})
const runningOf = (orgId: string) =>
  Effect.map(
    JobRepository.use((jobs) => jobs.list(orgId, { status: "running" }, { limit: 100 })),
    ({ items }) => items.length,
  )

/** The contract of leases in every JobRepository. */
export const jobLeases = (it: It) => {
  it.effect(
    "leases: a released job is queued as before; a release changes no job of a later claim, finished job or foreign job",
    function* () {
      const { orgId } = yield* insertOrg()
      const { orgId: foreign } = yield* insertOrg()
      const now = epoch()
      const release = (org: string, claimed: ReadonlyArray<ClaimedJob>) =>
        JobRepository.use((jobs) => jobs.release(org, claimed, now))
      const ids = [yield* newId, yield* newId, yield* newId]
      for (const jobId of ids) yield* insertJob(orgId, { jobId })
      const claimed = yield* claimJobs(orgId, now)
      yield* release(foreign, claimed)
      assert.deepStrictEqual(yield* claimIds(orgId, now), [])
      yield* finish(orgId, ids[1]!, completed(), now)
      yield* release(orgId, claimed.slice(0, 2))
      const queued = yield* findJob(orgId, ids[0]!)
      assert.deepStrictEqual([queued.status, queued.attempt, queued.lease_expires_at], ["queued", 0, null])
      assert.strictEqual((yield* findJob(orgId, ids[1]!)).status, "completed")
      assert.strictEqual((yield* claimJobs(orgId, now))[0]!.attempt, 1)
      yield* expire(plus(now, 61))
      assert.strictEqual((yield* claimJobs(orgId, plus(now, 62)))[0]!.attempt, 2)
      // Releases the first claim, whose lease has expired.
      yield* release(orgId, claimed)
      assert.strictEqual((yield* findJob(orgId, ids[0]!)).status, "running")
      yield* release(orgId, [])
    },
  )

  it.effect("leases: a claim takes the oldest jobs first, up to its limit, each once", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: foreign } = yield* insertOrg()
    const now = epoch()
    yield* insertJob(foreign)
    const ids = [yield* newId, yield* newId, yield* newId]
    for (const jobId of ids.toReversed()) yield* insertJob(orgId, { jobId, input: { n: 1 }, deploymentId: "d" })
    const [first, ...others] = yield* claimJobs(orgId, now, { limit: 1 })
    assert.deepStrictEqual(others, [])
    assert.deepStrictEqual(Object.keys(first!).sort(), Object.keys(ClaimedJob.fields).sort())
    assert.deepStrictEqual(first, {
      job_id: ids[0]!,
      workflow: "report",
      input: toStoredJson({ n: 1 }),
      deployment_id: "d",
      attempt: 1,
      lease_expires_at: plus(now, 60),
    })
    assert.deepStrictEqual(yield* claimIds(orgId, now), [ids[1], ids[2]])
    assert.deepStrictEqual(yield* claimIds(orgId, plus(now, 61)), [])
    const job = yield* findJob(orgId, ids[0]!)
    assert.deepStrictEqual(
      [job.status, job.attempt, job.lease_expires_at, job.updated_at],
      ["running", 1, plus(now, 60), now],
    )
  })

  it.effect("leases: a claim of a workflow takes no job of another", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const [a, b, c] = [
      yield* insertJob(orgId, { workflow: "x" }),
      yield* insertJob(orgId, { workflow: "y" }),
      yield* insertJob(orgId, { workflow: "x" }),
    ]
    assert.deepStrictEqual(yield* claimIds(orgId, now, { workflow: "y" }), [b])
    assert.deepStrictEqual(yield* claimIds(orgId, now, { workflow: "z" }), [])
    assert.deepStrictEqual(yield* claimIds(orgId, now, { workflow: "x" }), [a, c])
  })

  it.effect("leases: concurrent claims never take the same job, and together take all of them", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const ids: Array<string> = []
    for (let n = 0; n < 24; n++) ids.push(yield* insertJob(orgId))
    const got = yield* Effect.replicateEffect(claimIds(orgId, now, { limit: 3 }), 8, { concurrency: "unbounded" })
    assert.isTrue(got.every((some) => some.length <= 3))
    // Claims again what the first claims skipped.
    const rest = yield* claimIds(orgId, now)
    assert.deepStrictEqual([...got.flat(), ...rest].sort(), ids)
  })

  it.effect("leases: a heartbeat extends the lease of a running job only", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: foreign } = yield* insertOrg()
    const now = epoch()
    const jobId = yield* insertJob(orgId)
    assert.strictEqual(yield* failureOf(extend(orgId, jobId, now, now)), notRunning)
    yield* claimIds(orgId, now)
    yield* extend(orgId, jobId, plus(now, 200), plus(now, 30))
    const { lease_expires_at, updated_at, attempt } = yield* findJob(orgId, jobId)
    assert.deepStrictEqual([lease_expires_at, updated_at, attempt], [plus(now, 200), plus(now, 30), 1])
    for (const id of [jobId, yield* newId]) {
      assert.strictEqual(yield* failureOf(extend(foreign, id, plus(now, 999), now)), noSuchJob)
    }
    yield* finish(orgId, jobId, completed(), plus(now, 40))
    assert.strictEqual(yield* failureOf(extend(orgId, jobId, plus(now, 300), now)), notRunning)
    assert.deepStrictEqual((yield* findJob(orgId, jobId)).lease_expires_at, null)
  })

  it.effect(
    "leases: a job with an expired lease returns to its place in the queue, and after the third lease can be failed",
    function* () {
      const { orgId } = yield* insertOrg()
      let now = epoch()
      const jobId = yield* insertJob(orgId)
      const later = yield* insertJob(orgId)
      for (const attempt of [1, 2, 3]) {
        const [job] = yield* claimJobs(orgId, now, { limit: 1 })
        assert.deepStrictEqual([job?.job_id, job?.attempt], [jobId, attempt])
        assert.deepStrictEqual(yield* expire(plus(now, 59.999)), [])
        assert.strictEqual((yield* findJob(orgId, jobId)).status, "running")
        now = plus(now, 60)
        assert.deepStrictEqual(yield* expire(now), attempt < 3 ? [] : [{ orgId, jobId }])
        const { status, lease_expires_at } = yield* findJob(orgId, jobId)
        const isLast = attempt === 3
        assert.deepStrictEqual(
          { status, lease_expires_at },
          isLast ? { status: "running", lease_expires_at: now } : { status: "queued", lease_expires_at: null },
        )
      }
      // The job is still running: each batch returns it until it is failed.
      assert.deepStrictEqual(yield* expire(now), [{ orgId, jobId }])
      assert.deepStrictEqual(yield* claimIds(orgId, now), [later])
      yield* failExpired(orgId, jobId, now)
      assert.deepStrictEqual(yield* expire(now), [])
      assert.strictEqual((yield* findJob(orgId, jobId)).status, "failed")
    },
  )

  it.effect("leases: a job whose lease was extended in time is not failed", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const jobId = yield* insertJob(orgId, { maxAttempts: 1 })
    assert.strictEqual(yield* failureOf(failExpired(orgId, jobId, now)), notRunning)
    yield* claimIds(orgId, now)
    yield* extend(orgId, jobId, plus(now, 90), plus(now, 59))
    assert.deepStrictEqual(yield* expire(plus(now, 60)), [])
    assert.strictEqual(yield* failureOf(failExpired(orgId, jobId, plus(now, 89.999))), notRunning)
    assert.strictEqual((yield* findJob(orgId, jobId)).status, "running")
    yield* failExpired(orgId, jobId, plus(now, 90))
    const { error, status } = yield* findJob(orgId, jobId)
    assert.deepStrictEqual([status, error], ["failed", "lease expired"])
  })

  it.effect("leases: a batch expires the oldest leases first, and tells whether there may be more", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const first = yield* insertRunning(orgId, now, 2)
    yield* insertRunning(orgId, plus(now, 1), 1)
    assert.deepStrictEqual(yield* expireBatch(plus(now, 61), { limit: 2 }), { queued: 2, exhausted: [], next: "" })
    assert.deepStrictEqual((yield* claimIds(orgId, plus(now, 61))).toSorted(), first.toSorted())
    assert.deepStrictEqual(yield* expireBatch(plus(now, 61), { limit: 2 }), { queued: 1, exhausted: [], next: null })
    yield* expireBatch(plus(now, 200))
  })

  it.effect(
    "leases: every org has the same share of a batch, and the next batch continues with the orgs after them",
    function* () {
      const now = epoch()
      const orgs: Array<string> = []
      for (const count of [5, 1, 2, 3]) {
        const { orgId } = yield* insertOrg()
        yield* insertRunning(orgId, now, count)
        orgs.push(orgId)
      }
      const { orgId: later } = yield* insertOrg()
      yield* insertRunning(later, plus(now, 30), 1)
      orgs.push(later)
      // Orgs of earlier tests have smaller ids.
      const after = orgs[0]!.slice(0, -1)
      const due = plus(now, 60)
      assert.deepStrictEqual(yield* expireBatch(due, { limit: 4, after }), {
        queued: 4,
        exhausted: [],
        next: orgs[3]!,
      })
      assert.deepStrictEqual(yield* Effect.forEach(orgs, runningOf), [4, 0, 1, 2, 1])
      assert.deepStrictEqual(yield* expireBatch(due, { limit: 4, after: orgs[3]! }), {
        queued: 0,
        exhausted: [],
        next: null,
      })
      assert.deepStrictEqual(yield* expireBatch(due, { limit: 100, after }), { queued: 7, exhausted: [], next: null })
      assert.deepStrictEqual(yield* Effect.forEach(orgs, runningOf), [0, 0, 0, 0, 1])
      yield* expireBatch(plus(now, 200))
    },
  )
}
