import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect, Result } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { JobSchedule } from "#src/domain/jobs/JobSchedule.ts"
import type { NewJobSchedule } from "#src/domain/jobs/JobSchedules.ts"
import { JobScheduleRepository, nextFiring } from "#src/domain/jobs/JobSchedules.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { toStoredJson } from "#src/domain/StoredJson.ts"
import type { TurnBatch } from "#src/domain/orgs/Turns.ts"
import { assertAudited } from "../audit/auditLog.ts"
import { awkwardJson } from "./jobs.ts"
import { itemsOf, assertDefect, at, awkwardTexts, failureOf, insertOrg, newEntry, newId } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import { claimOne, completed, epoch, finish, jobsOf, noSuchSchedule, plus } from "../webhooks/webhookSupport.ts"

const newSchedule = {
  workflow: "report",
  cron: "*/5 * * * *",
  timezone: "UTC",
  input: null,
  deploymentId: null,
  callbackUrl: null,
  callbackSecret: null,
  skipCallbacks: false,
}

export const insertSchedule = Effect.fnUntraced(function* (
  orgId: string,
  nextAt: DateTime.Utc,
  overrides: Partial<NewJobSchedule> = {},
) {
  const scheduleId = yield* newId
  const schedule = { ...newSchedule, scheduleId, orgId, nextAt, now: plus(nextAt, -60), ...overrides }
  yield* JobScheduleRepository.use((schedules) => schedules.insert(schedule, newEntry()))
  return scheduleId
})
const schedulesOf = (orgId: string) =>
  JobScheduleRepository.use((schedules) => itemsOf(schedules.list(orgId, { limit: 1000 })))
const remove = (orgId: string, id: string) =>
  JobScheduleRepository.use((schedules) => schedules.remove(orgId, id, newEntry()))
const fireBatch = (now: DateTime.Utc, batch: Partial<TurnBatch> = {}) =>
  JobScheduleRepository.use((schedules) => schedules.fireDue({ now, limit: 100, after: null, ...batch }))
/** Fires everything that is due; returns the org of each. */
const fireDue = (now: DateTime.Utc) => Effect.map(fireBatch(now), ({ orgs }) => orgs)
const allJobs = (orgId: string) => JobRepository.use((jobs) => itemsOf(jobs.list(orgId, {}, { limit: 100 })))

/** What every JobScheduleRepository does. */
export const schedules = (it: It) => {
  it.effect("schedules: a change is made with its entry in the audit log, or not at all", () =>
    Effect.gen(function* () {
      const repository = yield* JobScheduleRepository
      const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
      const schedule = { ...newSchedule, scheduleId: yield* newId, orgId, nextAt: at(60), now: at(0) }
      const state = repository.list(orgId, { limit: 10 })
      yield* assertAudited(orgId, (entry) => repository.insert(schedule, entry), state)
      const { list } = yield* AuditRepository
      const before = yield* list(foreign, { limit: 10 })
      assert.strictEqual(yield* failureOf(remove(foreign, schedule.scheduleId)), noSuchSchedule)
      assert.deepStrictEqual(yield* list(foreign, { limit: 10 }), before)
      yield* assertAudited(orgId, (entry) => repository.remove(orgId, schedule.scheduleId, entry), state)
    }),
  )

  it.effect("schedules: are listed oldest first with their ten fields, and any input comes back", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const ids: Array<string> = []
      for (const [n, text] of awkwardTexts.entries()) {
        const input = awkwardJson[n]
        const skipCallbacks = n % 2 === 0
        const fields = {
          workflow: text,
          deploymentId: text,
          callbackUrl: "https://example.com/cb",
          input,
          skipCallbacks,
        }
        ids.push(yield* insertSchedule(orgId, plus(now, n), { ...fields, timezone: "Europe/Berlin" }))
      }
      for (const [n, { input, ...schedule }] of (yield* schedulesOf(orgId)).entries()) {
        assert.deepStrictEqual(Object.keys({ input, ...schedule }).sort(), Object.keys(JobSchedule.fields).sort())
        assert.strictEqual(JSON.stringify(input), JSON.stringify(awkwardJson[n]))
        assert.deepStrictEqual(schedule, {
          schedule_id: ids[n]!,
          workflow: awkwardTexts[n]!,
          cron: "*/5 * * * *",
          timezone: "Europe/Berlin",
          deployment_id: awkwardTexts[n]!,
          callback_url: "https://example.com/cb",
          skip_callbacks: n % 2 === 0,
          next_at: plus(now, n),
          created_at: plus(now, n - 60),
        })
      }
      yield* assertDefect(insertSchedule(yield* newId, now))
    }),
  )

  it.effect("schedules: another org's is the one that does not exist", () =>
    Effect.gen(function* () {
      const { orgId: own } = yield* insertOrg()
      const { orgId: foreign } = yield* insertOrg()
      const id = yield* insertSchedule(foreign, epoch())
      for (const unknown of [id, yield* newId]) {
        assert.strictEqual(yield* failureOf(remove(own, unknown)), noSuchSchedule)
      }
      assert.deepStrictEqual([(yield* schedulesOf(own)).length, (yield* schedulesOf(foreign)).length], [0, 1])
      yield* remove(foreign, id)
      assert.deepStrictEqual(yield* schedulesOf(foreign), [])
      assert.strictEqual(yield* failureOf(remove(foreign, id)), noSuchSchedule)
    }),
  )

  it.effect("schedules: a firing creates one job with what the schedule says, and the schedule goes on from now", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const { orgId: other } = yield* insertOrg()
      const due = epoch()
      const input = { deep: ["\u0000"] }
      yield* insertSchedule(orgId, due, { workflow: "w", input, deploymentId: "d", skipCallbacks: true })
      yield* insertSchedule(other, plus(due, 1))
      assert.deepStrictEqual(yield* fireDue(plus(due, -0.001)), [])
      assert.deepStrictEqual([yield* fireDue(due), yield* fireDue(due)], [[orgId], []])
      const [job, ...others] = yield* allJobs(orgId)
      assert.deepStrictEqual([others, yield* jobsOf(other)], [[], []])
      assert.deepInclude(job, {
        workflow: "w",
        status: "queued",
        input: toStoredJson(input),
        deployment_id: "d",
        skip_callbacks: true,
      })
      assert.deepInclude(job, { created_at: due, attempt: 0, callback_url: null })
      assert.deepStrictEqual(
        (yield* schedulesOf(orgId))[0]!.next_at,
        Result.getOrThrow(nextFiring("*/5 * * * *", "UTC", due)),
      )
      yield* fireDue(plus(due, 1))
    }),
  )

  it.effect("schedules: firings that were missed come as one", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      yield* insertSchedule(orgId, due)
      const late = plus(due, 86_400)
      assert.deepStrictEqual(yield* fireDue(late), [orgId])
      assert.strictEqual((yield* jobsOf(orgId)).length, 1)
      assert.deepStrictEqual(
        (yield* schedulesOf(orgId))[0]!.next_at,
        Result.getOrThrow(nextFiring("*/5 * * * *", "UTC", late)),
      )
    }),
  )

  it.effect("schedules: fire once, however many replicas look at once", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      for (let n = 0; n < 12; n++) yield* insertSchedule(orgId, plus(due, n))
      const fired = yield* Effect.replicateEffect(fireDue(plus(due, 12)), 4, { concurrency: "unbounded" })
      assert.deepStrictEqual(fired.flat(), Array(12).fill(orgId))
      assert.strictEqual((yield* jobsOf(orgId)).length, 12)
      assert.deepStrictEqual(yield* fireDue(plus(due, 12)), [])
    }),
  )

  it.effect("schedules: one that never fires again is gone after its last firing", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      yield* insertSchedule(orgId, due, { cron: "0 0 30 2 *" })
      assert.deepStrictEqual(yield* fireDue(due), [orgId])
      assert.deepStrictEqual([(yield* jobsOf(orgId)).length, yield* schedulesOf(orgId)], [1, []])
    }),
  )

  it.effect("schedules: a callback's secret comes along with the schedule's id, for which it is encrypted", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      const id = yield* insertSchedule(orgId, due, {
        callbackUrl: "https://example.com/cb?x=1",
        callbackSecret: "stored secret",
      })
      yield* fireDue(due)
      // The schedule is not needed any more for what it has made.
      yield* remove(orgId, id)
      yield* finish(orgId, (yield* jobsOf(orgId))[0]!, completed(), due)
      assert.deepInclude(yield* claimOne(due), {
        endpointId: null,
        url: "https://example.com/cb?x=1",
        secrets: [{ stored: "stored secret", owner: id }],
      })
    }),
  )

  it.effect("schedules: a batch fires those that are longest due, and says whether there may be more", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      for (const [n, workflow] of ["c", "a", "b"].entries()) {
        yield* insertSchedule(orgId, plus(due, (n + 2) % 3), { workflow })
      }
      const now = plus(due, 5)
      assert.deepStrictEqual(yield* fireBatch(now, { limit: 2 }), { orgs: [orgId, orgId], moved: 2, next: "" })
      assert.deepStrictEqual((yield* allJobs(orgId)).map(({ workflow }) => workflow).sort(), ["a", "b"])
      assert.deepStrictEqual(yield* fireBatch(now, { limit: 2 }), { orgs: [orgId], moved: 1, next: null })
    }),
  )

  it.effect("schedules: in turns every org has the same share of a batch, and the next batch goes on after them", () =>
    Effect.gen(function* () {
      const due = epoch()
      // The orgs of the tests before have ids before theirs.
      const { orgId: after } = yield* insertOrg()
      const [one, two, later] = [yield* insertOrg(), yield* insertOrg(), yield* insertOrg()].map(({ orgId }) => orgId)
      for (let n = 0; n < 4; n++) yield* insertSchedule(one!, due)
      yield* insertSchedule(two!, due)
      yield* insertSchedule(later!, plus(due, 60))
      const first = yield* fireBatch(due, { limit: 3, after })
      assert.deepStrictEqual({ ...first, orgs: first.orgs.toSorted() }, { orgs: [one!, two!], moved: 2, next: later! })
      assert.deepStrictEqual(yield* fireBatch(due, { limit: 3, after: later! }), { orgs: [], moved: 0, next: null })
      assert.deepStrictEqual(yield* fireBatch(due, { after }), { orgs: [one!, one!, one!], moved: 3, next: null })
      yield* fireBatch(plus(due, 60))
    }),
  )
}
