import { Context, DateTime, Effect, Layer, type Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { AuditLog } from "../audit/AuditLog.ts"
import { nextRun, nextRuns } from "./cronTimes.ts"
import { InvalidRequest } from "../Errors.ts"
import type { CreateJobSchedule, UpdateJobSchedule } from "./JobSchedule.ts"
import { JobScheduleRepository } from "./JobScheduleRepository.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import { JobTemplates } from "./JobTemplates.ts"
import { nextCursorIfMore, type WholeList, wholeListPage } from "../Page.ts"
import { makeQueuing } from "./dueJobs.ts"
import { currentTenant } from "../Principal.ts"
import { Wakeups } from "../Wakeups.ts"

/** Schedules that one transaction runs. */
const maxRunBatch = 500
/** The runs that `get` shows. */
const shownRuns = 5

/** Fails with `InvalidRequest` when a run cannot be computed. */
const orInvalid = <A>(run: Result.Result<A, string>) =>
  Effect.mapError(Effect.fromResult(run), (error) => new InvalidRequest({ error: `${error}.` }))

/** The schedules of the current tenant, and their runs. */
export class JobSchedules extends Context.Service<JobSchedules>()("gatehouse/domain/JobSchedules", {
  make: Effect.gen(function* () {
    const repository = yield* JobScheduleRepository
    const templates = yield* JobTemplates
    const random = yield* SecureRandom.SecureRandom
    const wakeups = yield* Wakeups
    const audit = yield* AuditLog

    return {
      create: Effect.fn("JobSchedules.create")(function* (input: typeof CreateJobSchedule.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const { active = true, cron, overlap = "allow", timezone = "UTC", workflow } = input
        const nextAt = yield* orInvalid(nextRun(cron, timezone, now))
        const scheduleId = yield* random.ulid
        const schedule = {
          ...(yield* templates.prepare(input, scheduleId)),
          scheduleId,
          orgId,
          cron,
          timezone,
          overlap,
          nextAt: active ? nextAt : null,
          now,
        }
        const details = { workflow, cron, timezone }
        const entry = yield* audit.entry({ action: "schedule.create", target: scheduleId, details })
        yield* repository.insert(schedule, entry)
        return scheduleId
      }),

      list: Effect.fn("JobSchedules.list")(function* (asked?: WholeList) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, wholeListPage(asked))
        return { schedules: found.items, ...nextCursorIfMore(found, (schedule) => schedule.schedule_id) }
      }),

      /** A schedule with its next runs and its last job. */
      get: Effect.fn("JobSchedules.get")(function* (scheduleId: string) {
        const orgId = yield* currentTenant
        const { lastJob, schedule } = yield* repository.find(orgId, scheduleId)
        const { active, cron, timezone } = schedule
        const next_times = active ? nextRuns(cron, timezone, yield* DateTime.now, shownRuns) : []
        return { ...schedule, next_times, last_job: lastJob }
      }),

      update: Effect.fn("JobSchedules.update")(function* (input: typeof UpdateJobSchedule.Type) {
        const orgId = yield* currentTenant
        const { active, cron, overlap, schedule_id: scheduleId, timezone, workflow } = input
        const timing = withoutUndefined({ active, cron, overlap, timezone })
        const changes = { ...(yield* templates.change(input, scheduleId)), ...timing }
        const details = withoutUndefined({ workflow, ...timing })
        const entry = yield* audit.entry({ action: "schedule.update", target: scheduleId, details })
        yield* repository.update(orgId, scheduleId, changes, yield* DateTime.now, entry)
      }),

      /** Creates a job of the schedule now, also while it is paused; returns the job's id. */
      run: Effect.fn("JobSchedules.run")(function* (scheduleId: string) {
        const orgId = yield* currentTenant
        const jobId = yield* random.ulid
        yield* repository.run(orgId, scheduleId, jobId, yield* DateTime.now)
        yield* wakeups.jobs(orgId)
        return jobId
      }),

      remove: Effect.fn("JobSchedules.remove")(function* (scheduleId: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "schedule.delete", target: scheduleId, details: {} })
        yield* repository.remove(orgId, scheduleId, entry)
      }),

      /**
       * Runs all due schedules; orgs take turns. However many runs of a schedule were missed, it creates one job, and
       * runs next at the first time after now.
       */
      runDue: makeQueuing(maxRunBatch, repository.runDue, wakeups.jobs),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
