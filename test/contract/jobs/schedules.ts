import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect, Result } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { JobSchedule } from "#src/domain/jobs/JobSchedule.ts"
import type { JobScheduleChanges, NewJobSchedule } from "#src/domain/jobs/JobScheduleRepository.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { nextRun } from "#src/domain/jobs/cronTimes.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { toStoredJson } from "../../fakes/storedJson.ts"
import type { RoundRobinBatch } from "#src/domain/roundRobin.ts"
import { assertAudited } from "../audit/auditLog.ts"
import { awkwardJson } from "./jobs.ts"
import { itemsOf, at, awkwardTexts, failureOf, insertOrg, newEntry, newId } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  cancelJob,
  claimOne,
  completed,
  day,
  epoch,
  finish,
  jobsOf,
  noSuchSchedule,
  plus,
} from "../webhooks/webhookSupport.ts"

const newSchedule = {
  workflow: "report",
  cron: "*/5 * * * *",
  timezone: "UTC",
  input: null,
  deploymentId: null,
  callbackUrl: null,
  callbackSecret: null,
  skipCallbacks: false,
  concurrencyKey: null,
  priority: 0,
  maxAttempts: 3,
  retryDelaySeconds: 10,
  expiresInSeconds: null,
  overlap: "allow" as const,
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
const findSchedule = (orgId: string, id: string) => JobScheduleRepository.use((schedules) => schedules.find(orgId, id))
const update = (orgId: string, id: string, changes: JobScheduleChanges, now: DateTime.Utc) =>
  JobScheduleRepository.use((schedules) => schedules.update(orgId, id, changes, now, newEntry()))
/** Runs a schedule now; returns the id of its job. */
const run = Effect.fnUntraced(function* (orgId: string, id: string, now: DateTime.Utc) {
  const jobId = yield* newId
  yield* JobScheduleRepository.use((schedules) => schedules.run(orgId, id, jobId, now))
  return jobId
})
const runBatch = (now: DateTime.Utc, batch: Partial<RoundRobinBatch> = {}) =>
  JobScheduleRepository.use((schedules) => schedules.runDue({ now, limit: 100, after: null, ...batch }))
/** Runs everything that is due; returns the org of each. */
const runDue = (now: DateTime.Utc) => Effect.map(runBatch(now), ({ orgs }) => orgs)
const allJobs = (orgId: string) => JobRepository.use((jobs) => itemsOf(jobs.list(orgId, {}, { limit: 100 })))

/** The contract of every JobScheduleRepository. */
export const schedules = (it: It) => {
  it.effect("schedules: a change and its entry in the audit log are made together, or not at all", function* () {
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
  })

  it.effect("schedules: one whose next run cannot be computed creates the job that is due, and pauses", function* () {
    const { orgId } = yield* insertOrg()
    const due = epoch()
    const zone = yield* insertSchedule(orgId, due, { timezone: "+48:00" })
    const dates = yield* insertSchedule(orgId, due, { cron: "0 0 30 2 *" })
    const fine = yield* insertSchedule(orgId, due)
    assert.lengthOf(yield* runDue(due), 3)
    assert.deepStrictEqual(yield* runDue(plus(due, 60)), [])
    const found = yield* schedulesOf(orgId)
    assert.deepStrictEqual(
      found.map(({ active, next_at, schedule_id }) => [schedule_id, active, next_at !== null]),
      [
        [zone, false, false],
        [dates, false, false],
        [fine, true, true],
      ],
    )
    // Other fields of it can change; it resumes with a zone that can be read.
    yield* update(orgId, zone, { workflow: "other" }, plus(due, 60))
    yield* failureOf(update(orgId, zone, { active: true }, plus(due, 60)))
    yield* update(orgId, zone, { active: true, timezone: "+05:30" }, plus(due, 60))
  })

  it.effect("schedules: a list has the oldest first with all fields, and returns any input", function* () {
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
        concurrencyKey: text.slice(0, 200),
        expiresInSeconds: n + 1,
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
        concurrency_key: awkwardTexts[n]!.slice(0, 200),
        expires_in_seconds: n + 1,
        priority: 0,
        max_attempts: 3,
        retry_delay_seconds: 10,
        overlap: "allow",
        active: true,
        next_at: plus(now, n),
        created_at: plus(now, n - 60),
      })
    }
  })

  it.effect("schedules: a schedule of another org is not found, as if it did not exist", function* () {
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
  })

  it.effect("schedules: a run creates one job from the schedule, and the next run is later than now", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: other } = yield* insertOrg()
    const due = epoch()
    const input = { deep: ["\u0000"] }
    yield* insertSchedule(orgId, due, { workflow: "w", input, deploymentId: "d", skipCallbacks: true })
    yield* insertSchedule(other, plus(due, 1))
    assert.deepStrictEqual(yield* runDue(plus(due, -0.001)), [])
    assert.deepStrictEqual([yield* runDue(due), yield* runDue(due)], [[orgId], []])
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
      Result.getOrThrow(nextRun("*/5 * * * *", "UTC", due)),
    )
    yield* runDue(plus(due, 1))
  })

  it.effect("schedules: missed runs create one job together", function* () {
    const { orgId } = yield* insertOrg()
    const due = epoch()
    yield* insertSchedule(orgId, due)
    const late = plus(due, 86_400)
    assert.deepStrictEqual(yield* runDue(late), [orgId])
    assert.strictEqual((yield* jobsOf(orgId)).length, 1)
    assert.deepStrictEqual(
      (yield* schedulesOf(orgId))[0]!.next_at,
      Result.getOrThrow(nextRun("*/5 * * * *", "UTC", late)),
    )
  })

  it.effect("schedules: a run happens once, however many replicas try at the same time", function* () {
    const { orgId } = yield* insertOrg()
    const due = epoch()
    for (let n = 0; n < 12; n++) yield* insertSchedule(orgId, plus(due, n))
    const ran = yield* Effect.replicateEffect(runDue(plus(due, 12)), 4, { concurrency: "unbounded" })
    assert.deepStrictEqual(ran.flat(), Array(12).fill(orgId))
    assert.strictEqual((yield* jobsOf(orgId)).length, 12)
    assert.deepStrictEqual(yield* runDue(plus(due, 12)), [])
  })

  it.effect(
    "schedules: a job carries the secret of its callback, and the id of the schedule that encrypts it",
    function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      const id = yield* insertSchedule(orgId, due, {
        callbackUrl: "https://example.com/cb?x=1",
        callbackSecret: "stored secret",
      })
      yield* runDue(due)
      // The job no longer needs its schedule.
      yield* remove(orgId, id)
      yield* finish(orgId, (yield* jobsOf(orgId))[0]!, completed(), due)
      assert.deepInclude(yield* claimOne(due), {
        endpointId: null,
        url: "https://example.com/cb?x=1",
        secrets: [{ stored: "stored secret", owner: id }],
      })
    },
  )

  it.effect(
    "schedules: a batch runs the most overdue schedules first, and tells whether there may be more",
    function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      for (const [n, workflow] of ["c", "a", "b"].entries()) {
        yield* insertSchedule(orgId, plus(due, (n + 2) % 3), { workflow })
      }
      const now = plus(due, 5)
      assert.deepStrictEqual(yield* runBatch(now, { limit: 2 }), { orgs: [orgId, orgId], moved: 2, next: "" })
      assert.deepStrictEqual((yield* allJobs(orgId)).map(({ workflow }) => workflow).sort(), ["a", "b"])
      assert.deepStrictEqual(yield* runBatch(now, { limit: 2 }), { orgs: [orgId], moved: 1, next: null })
    },
  )

  it.effect(
    "schedules: every org has the same share of a batch, and the next batch continues with the orgs after them",
    function* () {
      const due = epoch()
      // Orgs of earlier tests have smaller ids.
      const { orgId: after } = yield* insertOrg()
      const [one, two, later] = [yield* insertOrg(), yield* insertOrg(), yield* insertOrg()].map(({ orgId }) => orgId)
      for (let n = 0; n < 4; n++) yield* insertSchedule(one!, due)
      yield* insertSchedule(two!, due)
      yield* insertSchedule(later!, plus(due, 60))
      const first = yield* runBatch(due, { limit: 3, after })
      assert.deepStrictEqual({ ...first, orgs: first.orgs.toSorted() }, { orgs: [one!, two!], moved: 2, next: later! })
      assert.deepStrictEqual(yield* runBatch(due, { limit: 3, after: later! }), { orgs: [], moved: 0, next: null })
      assert.deepStrictEqual(yield* runBatch(due, { after }), { orgs: [one!, one!, one!], moved: 3, next: null })
      yield* runBatch(plus(due, 60))
    },
  )

  it.effect("schedules: a change sets the named fields, and the schedule runs by its new times", function* () {
    const { orgId } = yield* insertOrg()
    const { orgId: foreign } = yield* insertOrg()
    const now = epoch()
    const id = yield* insertSchedule(orgId, plus(now, 60), {
      input: { old: 1 },
      callbackUrl: "https://example.com/cb",
      callbackSecret: "stored secret",
    })
    const before = yield* findSchedule(orgId, id)
    yield* update(orgId, id, { priority: 7, overlap: "skip", deploymentId: "d" }, now)
    const changed = { priority: 7, overlap: "skip" as const, deployment_id: "d" }
    assert.deepStrictEqual(yield* findSchedule(orgId, id), {
      ...before,
      schedule: { ...before.schedule, ...changed },
    })
    yield* update(orgId, id, { input: null, callbackUrl: null, callbackSecret: null, maxAttempts: 9 }, now)
    yield* update(orgId, id, { retryDelaySeconds: 99, skipCallbacks: true, workflow: "new" }, now)
    assert.deepInclude((yield* findSchedule(orgId, id)).schedule, {
      ...changed,
      input: null,
      callback_url: null,
      max_attempts: 9,
      retry_delay_seconds: 99,
      skip_callbacks: true,
      workflow: "new",
      next_at: plus(now, 60),
    })
    yield* update(orgId, id, { cron: "0 4 * * *", timezone: "Europe/Berlin" }, now)
    const next = Result.getOrThrow(nextRun("0 4 * * *", "Europe/Berlin", now))
    assert.deepStrictEqual((yield* findSchedule(orgId, id)).schedule.next_at, next)
    const refused = yield* failureOf(update(orgId, id, { cron: "0 0 30 2 *" }, now))
    assert.strictEqual(refused, JSON.stringify({ error: "cron names dates that never come.", code: "invalid_request" }))
    for (const unknown of [id, yield* newId]) {
      assert.strictEqual(yield* failureOf(update(foreign, unknown, { priority: 1 }, now)), noSuchSchedule)
      assert.strictEqual(yield* failureOf(findSchedule(foreign, unknown)), noSuchSchedule)
      assert.strictEqual(yield* failureOf(run(foreign, unknown, now)), noSuchSchedule)
    }
    assert.strictEqual((yield* findSchedule(orgId, id)).schedule.cron, "0 4 * * *")
    yield* remove(orgId, id)
  })

  it.effect("schedules: an update and its entry in the audit log are made together, or not at all", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const id = yield* insertSchedule(orgId, plus(now, 60))
    const state = Effect.map(findSchedule(orgId, id), ({ schedule }) => schedule.priority)
    const change = (entry: ReturnType<typeof newEntry>) =>
      JobScheduleRepository.use((schedules) => schedules.update(orgId, id, { priority: 3 }, now, entry))
    yield* assertAudited(orgId, change, state)
    yield* remove(orgId, id)
  })

  it.effect("schedules: a paused schedule does not run, and resumes without the runs it missed", function* () {
    const { orgId } = yield* insertOrg()
    const due = epoch()
    const id = yield* insertSchedule(orgId, due)
    yield* update(orgId, id, { active: false }, due)
    assert.deepStrictEqual(yield* runDue(plus(due, day)), [])
    assert.deepInclude((yield* findSchedule(orgId, id)).schedule, { active: false, next_at: null })
    yield* update(orgId, id, { cron: "*/7 * * * *" }, due)
    assert.deepInclude((yield* findSchedule(orgId, id)).schedule, { active: false, next_at: null })
    yield* update(orgId, id, { active: true }, plus(due, day))
    assert.deepStrictEqual(yield* runDue(plus(due, day)), [])
    const next = Result.getOrThrow(nextRun("*/7 * * * *", "UTC", plus(due, day)))
    assert.deepInclude((yield* findSchedule(orgId, id)).schedule, { active: true, next_at: next })
    assert.deepStrictEqual(yield* runDue(next), [orgId])
    const paused = yield* insertSchedule(orgId, due, { nextAt: null })
    assert.deepInclude((yield* findSchedule(orgId, paused)).schedule, { active: false, next_at: null })
    yield* remove(orgId, id)
  })

  it.effect(
    "schedules: a schedule that skips creates no job while its last job is unfinished, by its cron or by run",
    function* () {
      const { orgId } = yield* insertOrg()
      const due = epoch()
      const id = yield* insertSchedule(orgId, due, { cron: "* * * * *", overlap: "skip" })
      const last = Effect.map(findSchedule(orgId, id), ({ lastJob }) => lastJob)
      assert.isNull(yield* last)
      assert.deepStrictEqual(yield* runDue(due), [orgId])
      const [first] = yield* jobsOf(orgId)
      assert.deepStrictEqual(yield* last, { job_id: first!, status: "queued", created_at: due, finished_at: null })
      assert.deepStrictEqual(yield* runDue(plus(due, 60)), [])
      const blocked = JSON.stringify({
        error:
          "The last job of this schedule is unfinished, and the schedule's overlap is skip. Wait until the job ends, or cancel it.",
        code: "conflict",
      })
      assert.strictEqual(yield* failureOf(run(orgId, id, plus(due, 70))), blocked)
      yield* JobRepository.use((jobs) =>
        jobs.claim(orgId, { workflows: undefined, limit: 1, now: due, leaseUntil: plus(due, day) }),
      )
      assert.deepStrictEqual(yield* runDue(plus(due, 120)), [])
      yield* finish(orgId, first!, completed(), plus(due, 130))
      assert.deepInclude(yield* last, { status: "completed", finished_at: plus(due, 130) })
      const second = yield* run(orgId, id, plus(due, 140))
      assert.deepStrictEqual((yield* jobsOf(orgId))[0], second)
      assert.deepStrictEqual(yield* runDue(plus(due, 180)), [])
      // A job that was canceled is finished.
      yield* cancelJob(orgId, second, plus(due, 190))
      assert.deepStrictEqual(yield* runDue(plus(due, 240)), [orgId])
      yield* remove(orgId, id)
    },
  )

  it.effect("schedules: run creates the job of a run, also while paused, and does not move the next run", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const fields = {
      workflow: "w",
      input: [1],
      priority: -3,
      maxAttempts: 7,
      retryDelaySeconds: 5,
      deploymentId: "d",
    }
    const id = yield* insertSchedule(orgId, plus(now, 60), fields)
    const jobId = yield* run(orgId, id, now)
    const job = yield* JobRepository.use((jobs) => jobs.find(orgId, jobId))
    assert.strictEqual(JSON.stringify(job.input), "[1]")
    const shown = { workflow: "w", priority: -3, max_attempts: 7, retry_delay_seconds: 5, deployment_id: "d" }
    assert.deepInclude(job, { ...shown, status: "queued", created_at: now })
    assert.deepStrictEqual((yield* findSchedule(orgId, id)).schedule.next_at, plus(now, 60))
    assert.deepStrictEqual(yield* runDue(plus(now, 60)), [orgId])
    assert.deepInclude((yield* allJobs(orgId))[0], shown)
    yield* update(orgId, id, { active: false }, now)
    yield* run(orgId, id, now)
    assert.strictEqual((yield* jobsOf(orgId)).length, 3)
    yield* remove(orgId, id)
  })
}
