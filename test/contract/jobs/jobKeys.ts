import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { UniqueJob } from "#src/domain/jobs/JobRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { failureOf, insertOrg, newEntry } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import { completed, createJob, epoch, failed, findJob, finish, jobsOf, plus } from "../webhooks/webhookSupport.ts"

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
  it.effect("jobs: a unique key has one unfinished job in each workflow", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("jobs: a unique key can allow another job while the first one runs", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("jobs: a unique key holds for its time after the job has ended", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const made = yield* createJob(orgId, { unique: unique() })
      yield* finish(orgId, made.jobId, completed(), now)
      const within = (since: number) => unique({ since: DateTime.makeUnsafe(since) })
      assert.deepStrictEqual(yield* createJob(orgId, { unique: within(0) }), { ...made, created: false })
      assert.isTrue((yield* createJob(orgId, { unique: within(Date.UTC(2200, 0)) })).created)
    }),
  )

  it.effect("jobs: a failed job is retried unless an unfinished one has its unique key, and has the key again", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const create = createJob(orgId, { unique: unique() })
      const retry = (jobId: string) => JobRepository.use((jobs) => jobs.retry(orgId, jobId, undefined, now, newEntry()))
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
      assert.deepStrictEqual(yield* create, { ...second, created: false })
    }),
  )

  it.effect("jobs: a debounced job has the last input and time, until it is claimed", () =>
    Effect.gen(function* () {
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
    }),
  )
}
