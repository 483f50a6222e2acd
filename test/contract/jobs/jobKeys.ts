import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { UniqueJob } from "#src/domain/jobs/JobRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { failureOf, insertOrg, newEntry } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  completed,
  createJob,
  epoch,
  failed,
  failExpired,
  findJob,
  finish,
  jobsOf,
  plus,
} from "../webhooks/webhookSupport.ts"

const unique = (more: Partial<UniqueJob> = {}): UniqueJob => ({
  key: "one",
  states: ["queued", "running"],
  since: null,
  debounces: false,
  ...more,
})
const debounced = unique({ states: ["queued"], debounces: true })

const claimOne = (orgId: string, now: DateTime.Utc) =>
  JobRepository.use((jobs) => jobs.claim(orgId, { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }))

/** The contract of every JobRepository about unique and debounced jobs. */
export const jobKeys = (it: It) => {
  it.effect("jobs: a unique key has one unfinished job in each workflow", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const first = yield* createJob(orgId, { unique: unique(), input: 1 })
    assert.isTrue(first.created)
    assert.deepStrictEqual(yield* createJob(orgId, { unique: unique(), input: 2 }), { ...first, created: false })
    const [other, free, foreign] = [
      yield* createJob(orgId, { unique: unique(), workflow: "other" }),
      yield* createJob(orgId, { unique: unique({ key: "two" }) }),
      yield* createJob((yield* insertOrg()).orgId, { unique: unique() }),
    ]
    assert.deepStrictEqual([other.created, free.created, foreign.created], [true, true, true])
    assert.strictEqual((yield* findJob(orgId, first.jobId)).unique_key, "one")

    yield* claimOne(orgId, now)
    assert.deepStrictEqual(yield* createJob(orgId, { unique: unique() }), { ...first, created: false })
    yield* finish(orgId, first.jobId, completed(), now)
    assert.strictEqual((yield* findJob(orgId, first.jobId)).unique_key, "one")
    assert.isTrue((yield* createJob(orgId, { unique: unique() })).created)
    assert.strictEqual((yield* jobsOf(orgId)).length, 4)
  })

  it.effect("jobs: a unique key can allow another job while the first one runs", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const queued = unique({ states: ["queued"] })
    const first = yield* createJob(orgId, { unique: queued })
    assert.isFalse((yield* createJob(orgId, { unique: queued })).created)
    yield* claimOne(orgId, now)
    const second = yield* createJob(orgId, { unique: queued })
    assert.isTrue(second.created)
    assert.strictEqual((yield* createJob(orgId, { unique: queued })).jobId, second.jobId)
    assert.notStrictEqual(first.jobId, second.jobId)
  })

  it.effect("jobs: a unique key holds for its time after the job has ended", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const made = yield* createJob(orgId, { unique: unique() })
    yield* finish(orgId, made.jobId, completed(), now)
    const within = (since: number) => unique({ since: DateTime.makeUnsafe(since) })
    assert.deepStrictEqual(yield* createJob(orgId, { unique: within(0) }), { ...made, created: false })
    assert.isTrue((yield* createJob(orgId, { unique: within(Date.UTC(2200, 0)) })).created)
  })

  it.effect(
    "jobs: a failed job is retried unless an unfinished one has its unique key, and has the key again",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const create = createJob(orgId, { unique: unique() })
      const retry = (jobId: string) => JobRepository.use((jobs) => jobs.retry(orgId, jobId, undefined, now, newEntry()))
      const others = [{ unique: unique({ key: "two" }) }, { unique: unique(), workflow: "other" }]
      const besides = yield* Effect.forEach(others, (other) => createJob(orgId, other))
      const first = yield* create
      yield* finish(orgId, first.jobId, failed(), now)
      const second = yield* create
      assert.isTrue(second.created)
      const refused = yield* failureOf(retry(first.jobId))
      assert.include(refused, `The job ${second.jobId} has the same unique key`)
      assert.strictEqual((yield* findJob(orgId, first.jobId)).status, "failed")

      yield* finish(orgId, second.jobId, failed(), now)
      yield* retry(first.jobId)
      assert.deepInclude(yield* findJob(orgId, first.jobId), { status: "queued", unique_key: "one" })
      assert.deepStrictEqual(yield* create, { ...first, created: false })
      assert.include(yield* failureOf(retry(second.jobId)), `The job ${first.jobId} has the same unique key`)
      yield* finish(orgId, first.jobId, failed(), now)
      yield* retry(second.jobId)
      // Other keys stay those of their jobs.
      for (const [n, other] of others.entries()) {
        assert.deepStrictEqual(yield* createJob(orgId, other), { ...besides[n]!, created: false })
      }
      assert.deepStrictEqual(yield* create, { ...second, created: false })
    },
  )

  it.effect("jobs: a job does not return to the queue while a newer one has its unique key", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const create = createJob(orgId, { unique: unique({ states: ["queued"] }) })
    const retry = (jobId: string) => finish(orgId, jobId, failed("quota"), now, { attempt: 1, retry: true })
    /** Expires the leases of the org, as the worker does. */
    const expire = Effect.gen(function* () {
      const jobs = yield* JobRepository
      const { exhausted } = yield* jobs.expireLeases({ after: null, limit: 1_000, now: plus(now, 120) })
      for (const one of exhausted) if (one.orgId === orgId) yield* failExpired(orgId, one.jobId, plus(now, 120))
    })
    /** A claimed job, and a newer one with its key. */
    const both = Effect.gen(function* () {
      const { jobId: older } = yield* create
      yield* claimOne(orgId, now)
      const { jobId: newer } = yield* create
      return { older, newer }
    })
    const after = Effect.fnUntraced(function* ({ newer, older }: { older: string; newer: string }) {
      const { error, status } = yield* findJob(orgId, older)
      assert.strictEqual((yield* findJob(orgId, newer)).status, "queued")
      assert.deepStrictEqual(yield* create, { jobId: newer, created: false })
      yield* finish(orgId, newer, completed(), now)
      return [status, error]
    })
    const retried = yield* both
    yield* retry(retried.older)
    assert.deepStrictEqual(yield* after(retried), ["failed", "replaced: a newer job has its unique key. quota"])
    // The same attempt may say it again.
    yield* retry(retried.older)

    const lost = yield* both
    yield* expire
    assert.deepStrictEqual(yield* after(lost), ["failed", "replaced: a newer job has its unique key. lease expired"])

    const released = yield* both
    yield* JobRepository.use((jobs) => jobs.release(orgId, [{ job_id: released.older, attempt: 1 }], now))
    assert.strictEqual((yield* findJob(orgId, released.older)).status, "running")
    yield* expire
    assert.deepStrictEqual((yield* after(released))[0], "failed")

    // Without a newer one, it returns, and so it does when the newer one has finished. It has the key again.
    const returns = Effect.fnUntraced(function* (jobId: string) {
      assert.strictEqual((yield* findJob(orgId, jobId)).status, "queued")
      assert.deepStrictEqual(yield* create, { jobId, created: false })
      yield* finish(orgId, jobId, completed(), now)
    })
    const { jobId: alone } = yield* create
    yield* claimOne(orgId, now)
    yield* retry(alone)
    yield* returns(alone)
    const finished = Effect.gen(function* () {
      const { newer, older } = yield* both
      yield* finish(orgId, newer, completed(), now)
      return older
    })
    const failedAfter = yield* finished
    yield* retry(failedAfter)
    yield* returns(failedAfter)
    const lostAfter = yield* finished
    yield* expire
    yield* returns(lostAfter)
    const releasedAfter = yield* finished
    yield* JobRepository.use((jobs) => jobs.release(orgId, [{ job_id: releasedAfter, attempt: 1 }], now))
    yield* returns(releasedAfter)
  })

  it.effect("jobs: an attempt may repeat a failure with a retry, whatever its number", function* () {
    const { orgId } = yield* insertOrg()
    let now = epoch()
    const { jobId } = yield* createJob(orgId, { maxAttempts: 100 })
    for (let attempt = 1; attempt <= 40; attempt++) {
      const [claimed] = yield* claimOne(orgId, now)
      assert.strictEqual(claimed?.attempt, attempt)
      const retry = finish(orgId, jobId, failed("busy"), now, { attempt, retry: true })
      yield* retry
      yield* retry
      now = plus(now, 4_000)
      yield* JobRepository.use((jobs) => jobs.queueDelayed({ after: null, limit: 1_000, now }))
    }
  })

  it.effect(
    "jobs: a debounced creation keeps the time in which a queued job without a time to run must be claimed",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const { jobId } = yield* createJob(orgId, { unique: debounced, expiresInSeconds: 60, now })
      yield* createJob(orgId, { unique: debounced, runAt: plus(now, 30), now: plus(now, 1) })
      assert.deepStrictEqual((yield* findJob(orgId, jobId)).expires_at, plus(now, 90))
      yield* createJob(orgId, { unique: debounced, runAt: plus(now, 40), now: plus(now, 2) })
      assert.deepStrictEqual((yield* findJob(orgId, jobId)).expires_at, plus(now, 100))
    },
  )

  it.effect("jobs: a debounced job has the last input and time, until it is claimed", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const create = (input: unknown, seconds: number) =>
      createJob(orgId, { unique: debounced, input, runAt: plus(now, seconds) })
    const first = yield* create("a", 10)
    assert.deepStrictEqual(yield* create("a longer input", 20), { ...first, created: false })
    const shown = yield* findJob(orgId, first.jobId)
    assert.strictEqual(JSON.stringify(shown.input), '"a longer input"')
    assert.deepStrictEqual(shown.run_at, plus(now, 20))
    const open = (seconds: number) =>
      JobRepository.use((jobs) => jobs.queueDelayed({ after: null, limit: 1_000, now: plus(now, seconds) }))
    yield* open(15)
    assert.deepStrictEqual(yield* claimOne(orgId, plus(now, 15)), [])
    yield* open(21)
    // It is not claimed yet: it waits again.
    assert.isFalse((yield* create("last", 40)).created)
    assert.deepStrictEqual(yield* claimOne(orgId, plus(now, 22)), [])
    yield* open(41)
    const [claimed] = yield* claimOne(orgId, plus(now, 41))
    assert.strictEqual(claimed?.job_id, first.jobId)
    assert.strictEqual(JSON.stringify(claimed?.input), '"last"')
    assert.isTrue((yield* create("next", 60)).created)
  })

  it.effect(
    "jobs: a debounced job that waits for its retry begins again with the last input and its time",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const create = (input: unknown, seconds: number) =>
        createJob(orgId, { unique: debounced, input, runAt: plus(now, seconds), maxAttempts: 5 })
      const { claim, find, finishStep, queueDelayed } = yield* JobRepository
      const open = (seconds: number) => queueDelayed({ after: null, limit: 1_000, now: plus(now, seconds) })
      const { jobId } = yield* create("old", 1)
      yield* open(2)
      assert.lengthOf(yield* claimOne(orgId, plus(now, 2)), 1)
      yield* finishStep(orgId, jobId, { attempt: 1, name: "a", result: 1, now: plus(now, 3) })
      yield* finish(orgId, jobId, failed("busy"), plus(now, 3), { attempt: 1, retry: true })
      assert.deepStrictEqual(yield* create("new", 9_000), { jobId, created: false })
      assert.deepInclude(yield* find(orgId, jobId), {
        status: "queued",
        run_at: plus(now, 9_000),
        max_attempts: 6,
        steps: [],
      })
      assert.strictEqual((yield* jobsOf(orgId)).length, 1)
      yield* open(9_001)
      const lease = { limit: 2, now: plus(now, 9_001), leaseUntil: plus(now, 9_100) }
      const claimed = yield* claim(orgId, { workflows: undefined, ...lease })
      assert.deepStrictEqual(
        claimed.map(({ attempt, input, job_id }) => [job_id, attempt, JSON.stringify(input)]),
        [[jobId, 2, '"new"']],
      )
    },
  )
}
