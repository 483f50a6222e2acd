// Runs on PostgreSQL only: the embedded database has one session, so sessions never meet there.
import { assert } from "@effect/vitest"
import { type DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { meanwhile, untilWaiting } from "../meet.ts"
import { until } from "../../support/wait.ts"
import { insertOrg, newEntry, newId } from "../support.ts"
import { insertSchedule } from "./schedules.ts"
import { createJob, epoch, failed, findJob, finish, insertJob, plus } from "../webhooks/webhookSupport.ts"

const world = Layer.mergeAll(JobsSql.layer, JobSchedulesSql.layer, OrgsSql.layer).pipe(
  Layer.provideMerge(crypto.layer),
  Layer.provideMerge(databases.postgres),
)

/** A running job with a unique key. */
const insertRunning = Effect.fnUntraced(function* (now: DateTime.Utc) {
  const { orgId } = yield* insertOrg()
  const unique = { key: "one", states: ["queued", "running"] as const, since: null, debounces: false }
  const { jobId } = yield* createJob(orgId, { unique, maxAttempts: 3 })
  const claim = { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }
  yield* JobRepository.use((jobs) => jobs.claim(orgId, claim))
  return { orgId, status: Effect.map(findJob(orgId, jobId), ({ status }) => status) }
})

// Uses real time, because waits for locks are seen by looking again.
layer(world, { excludeTestServices: true })("leases and locks", (it) => {
  // Seen failing without the state in the statement that waits for the job: the worker never got the second input.
  it.effect("a debounced creation that waits for the claim of its job creates another one", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const unique = { key: "one", states: ["queued"] as const, since: null, debounces: true }
    const first = yield* createJob(orgId, { unique, input: 1 })
    const claim = { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }
    const [[claimed], second] = yield* meanwhile(
      JobRepository.use((jobs) => jobs.claim(orgId, claim)),
      createJob(orgId, { unique, input: 2, runAt: plus(now, 10) }),
    )
    assert.deepStrictEqual([claimed?.job_id, JSON.stringify(claimed?.input)], [first.jobId, "1"])
    assert.deepStrictEqual([second.created, JSON.stringify((yield* findJob(orgId, second.jobId)).input)], [true, "2"])
  })

  // Seen failing: the attempts before did not fit their column, and no retry of the job, by a filter neither, went on.
  it.effect("a job is retried however often it was claimed", function* () {
    const sql = yield* SqlClient.SqlClient
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const jobId = yield* insertJob(orgId, { maxAttempts: 1 })
    const retry = JobRepository.use((jobs) =>
      jobs.retry(orgId, jobId, undefined, now, newEntry({ action: "job.retry", target: jobId })),
    )
    const claimAndFail = Effect.gen(function* () {
      const claim = { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }
      const [claimed] = yield* JobRepository.use((jobs) => jobs.claim(orgId, claim))
      yield* finish(orgId, jobId, failed(), now, { attempt: claimed!.attempt })
    })
    yield* claimAndFail
    yield* sql`UPDATE finished_jobs SET attempt = 40000, finished_attempt = 40000, attempts_before = 32767,
      max_attempts = 32767 WHERE id = ${jobId}`
    yield* retry
    yield* claimAndFail
    const { attempt, status } = yield* findJob(orgId, jobId)
    assert.deepStrictEqual([attempt, status], [40_001, "failed"])
  })

  // Seen failing without the lock of the jobs that are returned: the job lost the attempt that had failed.
  it.effect("a claim that is returned while its job is queued for a retry leaves that as it is", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const jobId = yield* insertJob(orgId, { maxAttempts: 3 })
    const claim = { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }
    const claimed = yield* JobRepository.use((jobs) => jobs.claim(orgId, claim))
    yield* meanwhile(
      finish(orgId, jobId, failed(), now, { attempt: 1, retry: true }),
      JobRepository.use((jobs) => jobs.release(orgId, claimed, now)),
    )
    const { attempt, status } = yield* findJob(orgId, jobId)
    assert.deepStrictEqual([attempt, status], [1, "queued"])
  })

  // Seen failing when one statement locked the schedule and read its last job, in a snapshot from before the lock.
  it.effect("a run of a schedule that waits for another run sees the job of that", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const scheduleId = yield* insertSchedule(orgId, plus(now, 3_600), { overlap: "skip" })
    const run = Effect.flatMap(newId, (jobId) =>
      Effect.flip(JobScheduleRepository.use((schedules) => schedules.run(orgId, scheduleId, jobId, now))),
    )
    const [, refused] = yield* meanwhile(Effect.flip(run), run)
    assert.strictEqual(refused._tag, "Conflict")
  })

  // Seen failing when the condition compared the org of the move with itself: no job of any org was due.
  it.effect("the move of one org delays no lease of another", function* () {
    const sql = yield* SqlClient.SqlClient
    const now = epoch()
    const [moving, other] = [yield* insertRunning(now), yield* insertRunning(now)]
    yield* sql`INSERT INTO org_moves (org_id, id, state) VALUES (${moving.orgId}, 'move', 'left')`
    yield* JobRepository.use((jobs) => jobs.expireLeases({ after: null, limit: 1_000, now: plus(now, 120) }))
    assert.deepStrictEqual([yield* moving.status, yield* other.status], ["running", "queued"])
    yield* sql`DELETE FROM org_moves`
    yield* sql`DELETE FROM jobs`
  })

  // Seen failing when a batch waited for the unique key of a job.
  it.effect(
    "a transaction that holds a unique key delays no lease of another org, and that job expires later",
    function* () {
      const sql = yield* SqlClient.SqlClient
      const now = epoch()
      const [slow, other] = [yield* insertRunning(now), yield* insertRunning(now)]
      const [held, over] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const holder = yield* Effect.gen(function* () {
        yield* sql`SELECT FROM job_keys WHERE org_id = ${slow.orgId} FOR UPDATE`
        yield* Deferred.succeed(held, undefined)
        yield* Deferred.await(over)
      }).pipe(sql.withTransaction, Effect.forkChild)
      yield* Deferred.await(held)
      const expire = JobRepository.use((jobs) => jobs.expireLeases({ after: null, limit: 1_000, now: plus(now, 120) }))
      const waits = Effect.as(untilWaiting(1), "waits")
      const { queued, exhausted } = yield* Effect.raceFirst(expire, Effect.flatMap(waits, Effect.die))
      assert.deepStrictEqual([yield* slow.status, yield* other.status], ["running", "queued"])
      assert.deepStrictEqual([queued, exhausted], [1, []])
      yield* Deferred.succeed(over, undefined)
      yield* Fiber.join(holder)
      // A batch that reads from the beginning comes within seconds.
      yield* until("its lease to expire", Effect.andThen(expire, slow.status), (status) => status === "queued")
    },
  )
})
