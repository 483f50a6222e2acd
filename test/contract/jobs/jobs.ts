import { assert } from "@effect/vitest"
import { DateTime, Effect, Schema } from "effect"
import { Job, JobDetail } from "#src/domain/jobs/Job.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { noRows, assertDefect, assertPages, awkwardTexts, failureOf, insertOrg, newId } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import { completed, epoch, failed, findJob, finish, insertJob, jobsOf, noSuchJob } from "../webhooks/webhookSupport.ts"

const shown = Schema.encodeSync(Job)

/** JSON that a jsonb column or a careless driver would refuse or change. */
export const awkwardJson: ReadonlyArray<unknown> = [
  { b: 1, a: [1, 2.5, -0.1, 1e21, 1e-7, Number.MAX_SAFE_INTEGER], "": { "b.c": null } },
  "\u0000 \ud800 \udc00\ud800 \u2028",
  { "\u0000": "\ud83d", __proto__x: [true, false, null] },
  "",
  "null",
  0,
  false,
  [],
  {},
  "😀".repeat(50_000),
  awkwardTexts,
]

/** The contract of every JobRepository, without leases and ends of jobs. */
export const jobs = (it: It) => {
  it.effect("jobs: a new job is queued and has its fields", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    for (const text of awkwardTexts) {
      const jobId = yield* newId
      const made = yield* insertJob(orgId, {
        jobId,
        workflow: text,
        deploymentId: text,
        callbackUrl: "https://example.com/cb",
        callbackSecret: "stored secret",
        skipCallbacks: true,
        now,
      })
      assert.strictEqual(made, jobId)
      const job = yield* findJob(orgId, jobId)
      assert.deepStrictEqual(Object.keys(job).sort(), Object.keys(JobDetail.fields).sort())
      assert.deepStrictEqual(shown(job), {
        job_id: jobId,
        workflow: text,
        status: "queued",
        input: null,
        deployment_id: text,
        callback_url: "https://example.com/cb",
        skip_callbacks: true,
        concurrency_key: null,
        priority: 0,
        max_attempts: 3,
        retry_delay_seconds: 10,
        run_at: null,
        unique_key: null,
        expires_at: null,
        attempt: 0,
        progress: null,
        note: null,
        lease_expires_at: null,
        result: null,
        error: null,
        mapped_stack: null,
        created_at: DateTime.formatIso(now),
        updated_at: DateTime.formatIso(now),
        finished_at: null,
      })
    }
  })

  it.effect("jobs: any JSON is returned as it was stored", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    for (const json of awkwardJson) {
      const jobId = yield* insertJob(orgId, { input: json })
      yield* finish(orgId, jobId, completed(json), now)
      const { input, result } = yield* findJob(orgId, jobId)
      assert.deepStrictEqual(
        [JSON.stringify(input), JSON.stringify(result)],
        [JSON.stringify(json), JSON.stringify(json)],
      )
      const other = yield* insertJob(orgId, {})
      yield* finish(orgId, other, failed(awkwardTexts[1]!, json), now)
      const { error, mapped_stack } = yield* findJob(orgId, other)
      assert.deepStrictEqual([error, JSON.stringify(mapped_stack)], [awkwardTexts[1]!, JSON.stringify(json)])
    }
  })

  it.effect("jobs: a repeated id is a defect", function* () {
    const { orgId } = yield* insertOrg()
    const jobId = yield* insertJob(orgId)
    yield* assertDefect(insertJob(orgId, { jobId }))
  })

  it.effect("jobs: a job of another org is not found, as if it did not exist", function* () {
    const { orgId: own } = yield* insertOrg()
    const { orgId: foreign } = yield* insertOrg()
    const jobId = yield* insertJob(foreign)
    for (const id of [jobId, yield* newId]) assert.strictEqual(yield* failureOf(findJob(own, id)), noSuchJob)
    assert.deepStrictEqual(yield* jobsOf(own), [])
  })

  it.effect("jobs: an idempotency key creates one job in its org, whatever a later request sends", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: other } = yield* insertOrg()
    const idempotencyKey = awkwardTexts[0]!
    const first = yield* insertJob(orgId, { idempotencyKey, workflow: "first" })
    assert.strictEqual(yield* insertJob(orgId, { idempotencyKey, workflow: "second" }), first)
    yield* finish(orgId, first, completed(), epoch())
    assert.strictEqual(yield* insertJob(orgId, { idempotencyKey }), first)
    assert.notStrictEqual(yield* insertJob(other, { idempotencyKey }), first)
    assert.notStrictEqual(yield* insertJob(orgId, { idempotencyKey: `${idempotencyKey} ` }), first)
    assert.notStrictEqual(yield* insertJob(orgId), yield* insertJob(orgId))
    assert.strictEqual((yield* findJob(orgId, first)).workflow, "first")
  })

  it.effect("jobs: requests at once with one idempotency key create one job", function* () {
    const { orgId } = yield* insertOrg()
    const made = yield* Effect.replicateEffect(insertJob(orgId, { idempotencyKey: "once" }), 20, {
      concurrency: "unbounded",
    })
    assert.strictEqual(new Set(made).size, 1)
    assert.deepStrictEqual(yield* jobsOf(orgId), [made[0]!])
  })

  it.effect("jobs: a list has the jobs of one org, newest first, in pages, by status and workflow", function* () {
    const { list } = yield* JobRepository
    const { orgId } = yield* insertOrg()
    const { orgId: foreign } = yield* insertOrg()
    const now = epoch()
    const ids: Array<string> = []
    for (let n = 0; n < 6; n++) {
      ids.unshift(yield* insertJob(orgId, { workflow: n % 2 === 0 ? "even" : "odd" }))
      yield* insertJob(foreign, { workflow: "even" })
    }
    const [odd5, even4, odd3, even2, odd1, even0] = ids as [string, string, string, string, string, string]
    yield* finish(orgId, even4, completed(), now)
    yield* finish(orgId, odd1, completed(), now)
    const idOf = (job: Job) => job.job_id
    yield* assertPages((page) => list(orgId, {}, page), idOf, ids)
    yield* assertPages((page) => list(orgId, { status: "completed" }, page), idOf, [even4, odd1])
    yield* assertPages((page) => list(orgId, { workflow: "odd" }, page), idOf, [odd5, odd3, odd1])
    yield* assertPages((page) => list(orgId, { workflow: "even", status: "queued" }, page), idOf, [even2, even0])
    assert.deepStrictEqual(yield* list(orgId, { status: "failed" }, { limit: 5 }), { ...noRows, scannedTo: null })
    assert.deepStrictEqual(yield* list(orgId, { workflow: "none" }, { limit: 5 }), { ...noRows, scannedTo: null })
  })
}
