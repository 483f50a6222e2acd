import { assert } from "@effect/vitest"
import { type DateTime, Effect, Result } from "effect"
import type { JobReport } from "#src/domain/jobs/JobEnd.ts"
import { JobRepository, type NewJob } from "#src/domain/jobs/JobRepository.ts"
import { findWithUsage, refusal, together, updateOrg } from "../orgs/orgLimits.ts"
import { insertOrg, newId } from "../support.ts"
import { eventsOf } from "../webhooks/events.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  cancelJob,
  completed,
  epoch,
  findJob,
  insertEndpoint,
  insertJob,
  jobsOf,
  newJob,
  nonce,
  plus,
} from "../webhooks/webhookSupport.ts"

/**
 * Promise (Retries and batches of jobs): A batch of jobs is created whole or not at all, within the limits of its org;
 * each job of a batch that is completed has its own outcome.
 */

export const insertAll = Effect.fnUntraced(function* (orgId: string, all: ReadonlyArray<Partial<NewJob>>) {
  const jobs = yield* Effect.forEach(all, (fields) => newJob(orgId, fields))
  const made = yield* JobRepository.use((repository) => repository.insert(jobs))
  const ids = made.map(({ jobId }) => jobId)
  return { ids, own: jobs.map(({ jobId }) => jobId) }
})

const completeAll = (
  orgId: string,
  jobs: ReadonlyArray<readonly [jobId: string, attempt?: number]>,
  now: DateTime.Utc,
) =>
  Effect.gen(function* () {
    const reports = yield* Effect.forEach(jobs, ([jobId, attempt], n) =>
      Effect.map(newId, (endId) => {
        const report: JobReport = { _tag: "Ended", outcome: completed(n), attempt, retry: false }
        return { end: { orgId, jobId, endId, nonce, now }, report }
      }),
    )
    const outcomes = yield* JobRepository.use((repository) => repository.reportAll(orgId, reports))
    return outcomes.map((outcome) => (Result.isSuccess(outcome) ? outcome.success.status : outcome.failure.code))
  })

const usedBy = (orgId: string) =>
  Effect.map(findWithUsage(orgId), ({ used: { storedBytes, unfinishedJobs } }) => ({ storedBytes, unfinishedJobs }))

/** The contract of creations and completions of many jobs in every JobRepository. */
export const jobBatches = (it: It) => {
  it.effect("batch: a thousand jobs are created in their order, and claims take them", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const inputs = Array.from({ length: 1_000 }, (_, n) => ({ workflow: n % 2 ? "odd" : "even", input: n }))
    const { ids, own } = yield* insertAll(orgId, inputs)
    assert.deepStrictEqual(ids, own)
    assert.strictEqual((yield* usedBy(orgId)).unfinishedJobs, 1_000)
    assert.deepInclude(yield* findJob(orgId, ids[1]!), { workflow: "odd", status: "queued" })
    const claim = { workflows: undefined, limit: 2, now, leaseUntil: plus(now, 60) }
    const claimed = yield* JobRepository.use((jobs) => jobs.claim(orgId, claim))
    assert.deepStrictEqual(
      claimed.map(({ job_id }) => job_id),
      ids.slice(0, 2),
    )
  })

  it.effect(
    "batch: a job whose idempotency key is taken has the id of the earlier one, also within the batch",
    function* () {
      const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
      const earlier = yield* insertJob(orgId, { idempotencyKey: "b" })
      yield* insertJob(other.orgId, { idempotencyKey: "a" })
      const before = yield* usedBy(orgId)
      const keys = ["a", null, "b", "a"].map((idempotencyKey) => ({ idempotencyKey }))
      const { ids, own } = yield* insertAll(orgId, keys)
      assert.deepStrictEqual(ids, [own[0]!, own[1]!, earlier, own[0]!])
      assert.deepStrictEqual((yield* jobsOf(orgId)).toSorted(), [earlier, own[0]!, own[1]!].toSorted())
      // As much as these two alone: the others have stored nothing.
      const after = yield* usedBy(orgId)
      const more = yield* insertOrg()
      yield* insertAll(more.orgId, keys.slice(0, 2))
      assert.strictEqual(after.storedBytes - before.storedBytes, (yield* usedBy(more.orgId)).storedBytes)
      assert.deepStrictEqual((yield* insertAll(orgId, keys)).ids, [
        own[0]!,
        (yield* jobsOf(orgId))[0]!,
        earlier,
        own[0]!,
      ])
    },
  )

  // Seen failing: with one row of room, the whole batch was let through.
  it.effect("batch: one that passes a limit of its org creates nothing", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 10 } })
    const batch = insertAll(orgId, [{}, {}, {}, {}])
    assert.deepStrictEqual(yield* together(batch, 5), { ok: 2, "10 unfinished jobs": 3 })
    assert.strictEqual((yield* jobsOf(orgId)).length, 8)
    assert.strictEqual(yield* refusal(insertAll(orgId, [{}, {}])), "ok")
    const full = yield* insertOrg()
    yield* updateOrg(full.orgId, { limits: { storedBytes: 5_000 } })
    const large = insertAll(full.orgId, [{}, { input: "x".repeat(5_000) }])
    assert.match(yield* refusal(large), /stored bytes/)
    assert.deepStrictEqual(yield* jobsOf(full.orgId), [])
    assert.strictEqual((yield* usedBy(full.orgId)).storedBytes, 0)
  })

  it.effect(
    "batch: each job is completed by itself, with its event, and one that is lost stops no other",
    function* () {
      const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
      yield* insertEndpoint(orgId)
      const now = epoch()
      const { ids } = yield* insertAll(
        orgId,
        Array.from({ length: 300 }, () => ({})),
      )
      const [foreign, canceled] = [yield* insertJob(other.orgId), ids[3]!]
      yield* cancelJob(orgId, canceled, now)
      const wanted = ids.map((id, n) => (n === 7 ? ([id, 1] as const) : ([id] as const)))
      const outcomes = yield* completeAll(orgId, [...wanted, [foreign], [ids[0]!]], plus(now, 1))
      const expected = ids.map((_, n) => (n === 3 || n === 7 ? "conflict" : "completed"))
      assert.deepStrictEqual(outcomes, [...expected, "not_found", null])
      assert.deepInclude(yield* findJob(orgId, ids[299]!), { status: "completed", finished_at: plus(now, 1) })
      assert.deepInclude(yield* findJob(orgId, ids[7]!), { status: "queued" })
      const events = yield* Effect.forEach(ids, eventsOf)
      assert.deepStrictEqual(
        events.map(({ length }) => length),
        expected.map((outcome) => (outcome === "completed" ? 1 : 0)),
      )
      assert.deepStrictEqual(new Set(yield* completeAll(orgId, [[ids[0]!], [ids[9]!]], now)), new Set([null]))
    },
  )
}
