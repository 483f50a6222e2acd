import { assert, describe } from "@effect/vitest"
import { Context, Effect, Fiber, Latch, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import type { Workflow } from "#src/domain/jobs/WorkflowSettings.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import { it } from "../../support/it.ts"
import { layer } from "../races.ts"
import { insertOrg } from "../support.ts"
import { completed, createJob, epoch, finish, plus } from "../webhooks/webhookSupport.ts"
import { setWorkflow } from "./workflows.ts"

/**
 * Promise (Limits of workflows): 100 claims at once at two replicas exceed no concurrency of a workflow or of a key,
 * and no rate, and use all of it.
 */

/** Promise (Limits of workflows): A claim that has waited for one of another replica counts what that has taken. */

/** The repositories of two replicas on one database. */
const replicas = Effect.gen(function* () {
  const build = Effect.map(Layer.build(Layer.fresh(JobsSql.layer)), (built) => Context.get(built, JobRepository))
  return [yield* build, yield* build] as const
})

const insertJobs = Effect.fnUntraced(function* (orgId: string, count: number, keys: number) {
  for (let n = 0; n < count; n++) yield* createJob(orgId, { concurrencyKey: keys === 0 ? null : `key ${n % keys}` })
})

/** Whether the running jobs of an org are within its limits. */
const runningOf = Effect.fnUntraced(function* (orgId: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ all: number; ofKey: number }>`
    SELECT coalesce(sum(n), 0)::int AS all, coalesce(max(n) FILTER (WHERE concurrency_key IS NOT NULL), 0)::int AS "ofKey"
    FROM (
      SELECT concurrency_key, count(*) AS n FROM jobs WHERE org_id = ${orgId} AND status = 'running' GROUP BY 1
    ) AS keys`
  return row!
})

const claimed = Effect.fnUntraced(function* (orgId: string, settings: Partial<Workflow>, keys: number) {
  yield* insertJobs(orgId, 120, keys)
  yield* setWorkflow(orgId, settings)
  const now = epoch()
  const all = yield* replicas
  const claim = (n: number) =>
    all[n % 2]!.claim(orgId, { workflows: ["report"], limit: 1 + (n % 3), now, leaseUntil: plus(now, 60) })
  const found = yield* Effect.forEach(Array.from({ length: 100 }), (_, n) => claim(n), { concurrency: "unbounded" })
  return { ids: found.flat().map(({ job_id }) => job_id), claim }
})

describe("100 claims at once at two replicas", () => {
  it.live("exceed no concurrency, and leave none of it unused", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const { claim, ids } = yield* claimed(orgId, { concurrency: 20 }, 0)
      assert.strictEqual(ids.length, 20)
      assert.strictEqual((yield* runningOf(orgId)).all, 20)
      // While others end and claims go on, there are never more.
      for (let round = 0; round < 10; round++) {
        const ends = Effect.forEach(ids.splice(0, 7), (id) => finish(orgId, id, completed(), epoch()), {
          concurrency: "unbounded",
        })
        const claims = Effect.forEach(Array.from({ length: 10 }), (_, n) => claim(n), { concurrency: "unbounded" })
        const [, found] = yield* Effect.all([ends, claims], { concurrency: 2 })
        ids.push(...found.flat().map(({ job_id }) => job_id))
        assert.isAtMost((yield* runningOf(orgId)).all, 20)
      }
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )

  it.live("exceed no concurrency of a key, and reach that of each key", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const { ids } = yield* claimed(orgId, { concurrency_per_key: 2 }, 15)
      assert.strictEqual(ids.length, 30)
      assert.deepStrictEqual(yield* runningOf(orgId), { all: 30, ofKey: 2 })
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )

  it.live("exceed no concurrency while keys take turns", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const { ids } = yield* claimed(orgId, { concurrency: 20, concurrency_per_key: 2 }, 60)
      assert.strictEqual(ids.length, 20)
      assert.isAtMost((yield* runningOf(orgId)).ofKey, 2)
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )

  it.live("start as many jobs as the rate allows", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const { ids } = yield* claimed(orgId, { rate: { limit: 33, window_seconds: 3600 } }, 7)
      assert.strictEqual(ids.length, 33)
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )

  // Seen failing with the time of the claim: a replica that is ahead forgets starts too early.
  it.live("keep a rate by the database's clock, whatever that of a replica says", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* insertJobs(orgId, 2, 0)
      yield* setWorkflow(orgId, { rate: { limit: 1, window_seconds: 3600 } })
      const all = yield* replicas
      const now = epoch()
      const claims = yield* Effect.forEach([now, plus(now, 7_200)], (now, n) =>
        all[n]!.claim(orgId, { workflows: ["report"], limit: 1, now, leaseUntil: plus(now, 60) }),
      )
      assert.deepStrictEqual(
        claims.map(({ length }) => length),
        [1, 0],
      )
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )

  // Seen failing without the comparison of versions: the second counted in a snapshot from before the first.
  it.live("count what a claim has taken for which they waited", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { orgId } = yield* insertOrg()
      yield* insertJobs(orgId, 2, 0)
      yield* setWorkflow(orgId, { concurrency: 1 })
      const [here, other] = yield* replicas
      const now = epoch()
      const claim = { workflows: ["report"], limit: 1, now, leaseUntil: plus(now, 60) }
      const isWaiting = sql<{ is: boolean }>`
        SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))) AS is`
      const isTaken = Latch.makeUnsafe(false)
      // In a session of its own, beside a job that is before the one that the first has taken.
      const urgent = createJob(orgId, { priority: 1 })
      const waiting = yield* Effect.forkScoped(isTaken.whenOpen(Effect.andThen(urgent, other.claim(orgId, claim))))
      const first = yield* Effect.gen(function* () {
        const first = yield* here.claim(orgId, claim)
        yield* isTaken.open
        yield* Effect.repeat(isWaiting, { until: ([row]) => row!.is, schedule: Schedule.spaced("5 millis") })
        return first
      }).pipe(sql.withTransaction)
      assert.strictEqual(first.length, 1)
      assert.deepStrictEqual(yield* Fiber.join(waiting), [])
    }).pipe(Effect.scoped, Effect.provide(layer)),
  )
})
