import { DateTime, Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidRequest } from "#src/domain/Errors.ts"
import { changedRun, nextRun } from "#src/domain/jobs/cronTimes.ts"
import { isBlocked, lastJobUnfinished } from "#src/domain/jobs/JobSchedule.ts"
import { JobScheduleRepository, scheduleNotFound } from "#src/domain/jobs/JobScheduleRepository.ts"
import type { StoredSchedule } from "./WebhookWorld.ts"
import { toStoredJson } from "./storedJson.ts"
import { storedJob } from "./Jobs.ts"
import { batchOf } from "./roundRobin.ts"
import { ownedBy, rowBytes, rowsOf, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, keepEntry, needRoom, pageOf } from "./World.ts"

/** Job schedules in memory. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const world = yield* WebhookWorld
    const { schedules, jobs, needOrg } = world
    const random = yield* SecureRandom.SecureRandom

    const lastJobOf = ({ lastJobId }: StoredSchedule) => (lastJobId === null ? undefined : jobs.get(lastJobId)?.row)
    /** Creates a job of a schedule, unless its org is at its limit. */
    const createJob = Effect.fnUntraced(function* (stored: StoredSchedule, jobId: string, now: DateTime.Utc) {
      const { callbackSecret, orgId, row } = stored
      yield* needRoom(world, "unfinishedJobs", orgId)
      yield* needRoom(
        world,
        "storedBytes",
        orgId,
        rowBytes("job", [row.callback_url, row.concurrency_key], [row.input]),
      )
      const job = {
        jobId,
        orgId,
        workflow: row.workflow,
        input: row.input,
        deploymentId: row.deployment_id,
        callbackUrl: row.callback_url,
        callbackSecret,
        skipCallbacks: row.skip_callbacks,
        concurrencyKey: row.concurrency_key,
        expiresInSeconds: row.expires_in_seconds,
        priority: row.priority,
        maxAttempts: row.max_attempts,
        retryDelaySeconds: row.retry_delay_seconds,
        idempotencyKey: null,
        unique: null,
        runAt: null,
        now,
      }
      jobs.set(jobId, storedJob(job, row.schedule_id))
      schedules.set(row.schedule_id, { ...stored, lastJobId: jobId })
    })

    return JobScheduleRepository.of({
      insert: (schedule, entry) =>
        Effect.gen(function* () {
          yield* needOrg(schedule.orgId)
          yield* needRoom(world, "schedules", schedule.orgId)
          yield* needRoom(
            world,
            "storedBytes",
            schedule.orgId,
            rowBytes("schedule", [schedule.callbackUrl, schedule.concurrencyKey], [schedule.input]),
          )
          keepEntry(world, schedule.orgId, entry)
          schedules.set(schedule.scheduleId, {
            orgId: schedule.orgId,
            row: {
              schedule_id: schedule.scheduleId,
              workflow: schedule.workflow,
              cron: schedule.cron,
              timezone: schedule.timezone,
              input: toStoredJson(schedule.input),
              deployment_id: schedule.deploymentId,
              callback_url: schedule.callbackUrl,
              skip_callbacks: schedule.skipCallbacks,
              concurrency_key: schedule.concurrencyKey,
              expires_in_seconds: schedule.expiresInSeconds,
              priority: schedule.priority,
              max_attempts: schedule.maxAttempts,
              retry_delay_seconds: schedule.retryDelaySeconds,
              overlap: schedule.overlap,
              active: schedule.nextAt !== null,
              next_at: schedule.nextAt,
              created_at: schedule.now,
            },
            callbackSecret: schedule.callbackSecret,
            lastJobId: null,
          })
        }),

      list: (orgId, page) => Effect.sync(() => pageOf(rowsOf(schedules, orgId), (row) => row.schedule_id, page)),

      find: (orgId, scheduleId) =>
        Effect.map(findOr(ownedBy(schedules, orgId, scheduleId), scheduleNotFound), (stored) => {
          const last = lastJobOf(stored)
          return {
            schedule: stored.row,
            lastJob:
              last === undefined
                ? null
                : {
                    job_id: last.job_id,
                    status: last.status,
                    created_at: last.created_at,
                    finished_at: last.finished_at,
                  },
          }
        }),

      update: Effect.fnUntraced(function* (orgId, scheduleId, changes, now, entry) {
        const stored = yield* findOr(ownedBy(schedules, orgId, scheduleId), scheduleNotFound)
        const { row } = stored
        const { cron = row.cron, overlap = row.overlap, timezone = row.timezone, workflow = row.workflow } = changes
        const next_at = yield* Effect.mapError(
          Effect.fromResult(changedRun({ ...row, nextAt: row.next_at }, changes, now)),
          (error) => new InvalidRequest({ error: `${error}.` }),
        )
        const input = changes.input === undefined ? row.input : toStoredJson(changes.input)
        const { callbackUrl = row.callback_url, deploymentId = row.deployment_id } = changes
        const { concurrencyKey = row.concurrency_key, expiresInSeconds = row.expires_in_seconds } = changes
        const before = rowBytes("schedule", [row.callback_url, row.concurrency_key], [row.input])
        yield* needRoom(
          world,
          "storedBytes",
          orgId,
          rowBytes("schedule", [callbackUrl, concurrencyKey], [input]) - before,
        )
        keepEntry(world, orgId, entry)
        const changed = { cron, overlap, timezone, workflow, input, next_at, active: next_at !== null }
        schedules.set(scheduleId, {
          ...stored,
          callbackSecret: changes.callbackSecret === undefined ? stored.callbackSecret : changes.callbackSecret,
          row: {
            ...row,
            ...changed,
            deployment_id: deploymentId,
            callback_url: callbackUrl,
            concurrency_key: concurrencyKey,
            expires_in_seconds: expiresInSeconds,
            skip_callbacks: changes.skipCallbacks ?? row.skip_callbacks,
            priority: changes.priority ?? row.priority,
            max_attempts: changes.maxAttempts ?? row.max_attempts,
            retry_delay_seconds: changes.retryDelaySeconds ?? row.retry_delay_seconds,
          },
        })
      }),

      run: Effect.fnUntraced(function* (orgId, scheduleId, jobId, now) {
        const stored = yield* findOr(ownedBy(schedules, orgId, scheduleId), scheduleNotFound)
        if (isBlocked(stored.row.overlap, lastJobOf(stored)?.status ?? null)) return yield* lastJobUnfinished()
        yield* createJob(stored, jobId, now)
      }),

      remove: (orgId, scheduleId, entry) =>
        Effect.map(findOr(ownedBy(schedules, orgId, scheduleId), scheduleNotFound), () => {
          keepEntry(world, orgId, entry)
          schedules.delete(scheduleId)
        }),

      runDue: Effect.fnUntraced(function* ({ now, ...batch }) {
        const { next, picked } = batchOf(
          [...schedules.values()]
            .filter(({ row }) => row.next_at !== null)
            .toSorted((a, b) => DateTime.toEpochMillis(a.row.next_at!) - DateTime.toEpochMillis(b.row.next_at!)),
          ({ row }) => DateTime.isLessThanOrEqualTo(row.next_at!, now),
          batch,
        )
        const orgs: Array<string> = []
        for (const stored of picked) {
          const { cron, overlap, schedule_id: id, timezone } = stored.row
          const blocked = isBlocked(overlap, lastJobOf(stored)?.status ?? null)
          const created = blocked ? undefined : yield* Effect.result(createJob(stored, yield* random.ulid, now))
          if (created !== undefined && Result.isSuccess(created)) orgs.push(stored.orgId)
          const next_at = Result.getOrNull(nextRun(cron, timezone, now))
          const row = { ...stored.row, next_at, active: next_at !== null }
          schedules.set(id, { ...schedules.get(id)!, row })
        }
        return { orgs, moved: picked.length, next }
      }),
    })
  }),
)
