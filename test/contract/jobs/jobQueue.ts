import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { insertOrg } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import { completed, epoch, finish, insertJob, plus } from "../webhooks/webhookSupport.ts"

const jobs: typeof JobRepository.use = (use) => JobRepository.use(use)

/** The contract of every JobRepository about what waits and runs. */
export const jobQueue = (it: It) => {
  it.effect(
    "jobs: the queue has unfinished jobs by workflow and state, the oldest due one, and the keys that wait",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const since = DateTime.subtract(yield* DateTime.now, { days: 1 })
      const queue = jobs((all) => all.queue(orgId, since))
      const nothing = { workflows: [], is_all: true, oldest_due_at: null, created: 0, created_since: since, keys: [] }
      assert.deepStrictEqual(yield* queue, nothing)

      for (const concurrencyKey of ["ada", "ada", "ben", null]) {
        yield* insertJob(orgId, { workflow: "mail", concurrencyKey, now: plus(now, 5) })
      }
      yield* insertJob(orgId, { workflow: "mail", priority: -9, now })
      yield* insertJob(orgId, { workflow: "mail", now, runAt: plus(now, 3_600) })
      yield* insertJob(orgId, { workflow: "report", priority: 9, now: plus(now, 6) })
      yield* finish(orgId, yield* insertJob(orgId, { workflow: "report", now }), completed(), now)
      yield* insertJob((yield* insertOrg()).orgId, { workflow: "mail", now })
      const claim = { workflows: ["report"], limit: 1, now: plus(now, 10), leaseUntil: plus(now, 60) }
      assert.lengthOf(yield* jobs((all) => all.claim(orgId, claim)), 1)

      assert.deepStrictEqual(yield* queue, {
        workflows: [
          { workflow: "mail", queued: 5, delayed: 1, running: 0, is_all: true },
          { workflow: "report", queued: 0, delayed: 0, running: 1, is_all: true },
        ],
        is_all: true,
        oldest_due_at: now,
        created: 8,
        created_since: since,
        keys: [
          { workflow: "mail", concurrency_key: "ada", queued: 2, running: 0 },
          { workflow: "mail", concurrency_key: "ben", queued: 1, running: 0 },
        ],
      })
    },
  )

  it.effect("jobs: a delayed job is due in the queue since its time to run", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const oldest = Effect.map(
      jobs((all) => all.queue(orgId, now)),
      ({ oldest_due_at }) => oldest_due_at,
    )
    yield* insertJob(orgId, { now, runAt: plus(now, 60) })
    assert.isNull(yield* oldest)
    yield* jobs((all) => all.queueDelayed({ now: plus(now, 61), limit: 1_000, after: null }))
    assert.deepStrictEqual(yield* oldest, plus(now, 61))
  })
}
