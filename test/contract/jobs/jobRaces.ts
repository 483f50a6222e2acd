import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { JobScheduleRepository } from "#src/domain/jobs/JobSchedules.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { eventsOf } from "../webhooks/events.ts"
import { assertOneWon, meet } from "../meet.ts"
import { insertSchedule } from "./schedules.ts"
import { insertOrg, newEntry, noRows } from "../support.ts"
import {
  completed,
  deliveriesOf,
  epoch,
  failed,
  findJob,
  failExpired,
  finish,
  insertEndpoint,
  insertJob,
} from "../webhooks/webhookSupport.ts"
import { jobsOf, plus } from "../webhooks/webhookSupport.ts"

const jobs: typeof JobRepository.use = (use) => JobRepository.use(use)

/** A job, and an endpoint that is to hear of its end once. */
const insertWork = Effect.gen(function* () {
  const { orgId } = yield* insertOrg()
  yield* insertEndpoint(orgId)
  return { orgId, jobId: yield* insertJob(orgId), now: epoch() }
})

/** The job has one end, told once. */
const assertToldOnce = Effect.fnUntraced(function* (orgId: string, jobId: string) {
  const { status } = yield* findJob(orgId, jobId)
  const events = yield* eventsOf(jobId)
  assert.deepStrictEqual(
    events.map((event) => (JSON.parse(event) as { status: string }).status),
    [status],
  )
  assert.strictEqual((yield* deliveriesOf(orgId, { job_id: jobId })).length, 1)
  return status
})

const claimJob = (orgId: string, now: ReturnType<typeof epoch>, claimed: Array<string>) =>
  jobs((all) => all.claim(orgId, { workflow: undefined, limit: 1, now, leaseUntil: plus(now, 60) })).pipe(
    Effect.tap((found) => Effect.sync(() => claimed.push(...found.map((job) => job.job_id)))),
  )

/** Pairs of writes of jobs and schedules. Seen failing without the lock on the job that is finished: two events. */
export const jobRaces = {
  "complete a job, fail it": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    const outcomes = yield* meet(finish(orgId, jobId, completed(), now), finish(orgId, jobId, failed(), now))
    assertOneWon(outcomes, "Conflict")
    assert.strictEqual(yield* assertToldOnce(orgId, jobId), outcomes[0] === "ok" ? "completed" : "failed")
    return outcomes
  }),

  "complete a job, complete it": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    const outcomes = yield* meet(finish(orgId, jobId, completed(1), now), finish(orgId, jobId, completed(2), now))
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    yield* assertToldOnce(orgId, jobId)
    return outcomes
  }),

  "claim a job, claim it": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    const claimed: Array<string> = []
    const outcomes = yield* meet(claimJob(orgId, now, claimed), claimJob(orgId, now, claimed))
    assert.deepStrictEqual(claimed, [jobId])
    assert.strictEqual((yield* findJob(orgId, jobId)).attempt, 1)
    return outcomes
  }),

  "claim a job, complete it": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    const claimed: Array<string> = []
    const outcomes = yield* meet(claimJob(orgId, now, claimed), finish(orgId, jobId, completed(), now))
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    // Claimed or not, it does not go back to running.
    assert.strictEqual(yield* assertToldOnce(orgId, jobId), "completed")
    assert.isNull((yield* findJob(orgId, jobId)).lease_expires_at)
    return [...outcomes, claimed.length === 0 ? "not claimed" : "claimed before"]
  }),

  "extend a lease, complete the job": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    yield* claimJob(orgId, now, [])
    const extend = jobs((all) => all.extendLease(orgId, jobId, plus(now, 120), now))
    const outcomes = yield* meet(extend, finish(orgId, jobId, completed(), now))
    assert.include(["ok", "Conflict"], outcomes[0])
    assert.strictEqual(outcomes[1], "ok")
    assert.strictEqual(yield* assertToldOnce(orgId, jobId), "completed")
    assert.isNull((yield* findJob(orgId, jobId)).lease_expires_at)
    return outcomes
  }),

  "complete a job, fail it for its lease": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    yield* claimJob(orgId, now, [])
    const late = plus(now, 61)
    const expire = failExpired(orgId, jobId, late)
    const outcomes = yield* meet(finish(orgId, jobId, completed(), late), expire)
    assertOneWon(outcomes, "Conflict")
    yield* assertToldOnce(orgId, jobId)
    return outcomes
  }),

  "extend a lease, take the job back for it": Effect.gen(function* () {
    const { orgId, jobId, now } = yield* insertWork
    yield* claimJob(orgId, now, [])
    const late = plus(now, 61)
    const outcomes = yield* meet(
      jobs((all) => all.extendLease(orgId, jobId, plus(late, 60), late)),
      jobs((all) => all.expireLeases({ now: late, maxAttempts: 3, limit: 1_000, after: null })),
    )
    const { status } = yield* findJob(orgId, jobId)
    // Who was told that the lease goes on has it.
    assert.strictEqual(status, outcomes[0] === "ok" ? "running" : "queued")
    return outcomes
  }),

  "create a job by its idempotency key, create it": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const made: Array<string> = []
    const create = Effect.map(insertJob(orgId, { idempotencyKey: "once" }), (id) => made.push(id))
    const outcomes = yield* meet(create, create)
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    assert.strictEqual(made[0], made[1])
    assert.deepStrictEqual(yield* jobsOf(orgId), [made[0]!])
    return outcomes
  }),

  "fire a schedule, fire it": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertSchedule(orgId, now)
    const fire = JobScheduleRepository.use((schedules) => schedules.fireDue({ now, limit: 100, after: null }))
    const outcomes = yield* meet(fire, fire)
    assert.strictEqual((yield* jobsOf(orgId)).length, 1)
    return outcomes
  }),

  "fire a schedule, delete it": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const id = yield* insertSchedule(orgId, now)
    const outcomes = yield* meet(
      JobScheduleRepository.use((schedules) => schedules.fireDue({ now, limit: 100, after: null })),
      JobScheduleRepository.use((schedules) => schedules.remove(orgId, id, newEntry())),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    assert.deepStrictEqual(
      yield* JobScheduleRepository.use((schedules) => schedules.list(orgId, { limit: 10 })),
      noRows,
    )
    const fired = (yield* jobsOf(orgId)).length
    assert.isAtMost(fired, 1)
    return [...outcomes, `${fired} jobs`]
  }),
}
