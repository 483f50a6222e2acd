import { DateTime, Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { JobScheduleRepository, nextFiring, scheduleNotFound } from "#src/domain/jobs/JobSchedules.ts"
import { toStoredJson } from "#src/domain/StoredJson.ts"
import { storedJob } from "./Jobs.ts"
import { batchOf } from "./turns.ts"
import { byteLength, ownedBy, rowsOf, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, keepEntry, needRoom, pageOf } from "./World.ts"

/** Job schedules in memory. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const world = yield* WebhookWorld
    const { schedules, jobs, needOrg } = world
    const random = yield* SecureRandom.SecureRandom

    return JobScheduleRepository.of({
      insert: (schedule, entry) =>
        Effect.gen(function* () {
          needOrg(schedule.orgId)
          yield* needRoom(world, "schedules", schedule.orgId)
          yield* needRoom(world, "storedBytes", schedule.orgId, byteLength(schedule.input))
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
              next_at: schedule.nextAt,
              created_at: schedule.now,
            },
            callbackSecret: schedule.callbackSecret,
          })
        }),

      list: (orgId, page) => Effect.sync(() => pageOf(rowsOf(schedules, orgId), (row) => row.schedule_id, page)),

      remove: (orgId, scheduleId, entry) =>
        Effect.map(findOr(ownedBy(schedules, orgId, scheduleId), scheduleNotFound), () => {
          keepEntry(world, orgId, entry)
          schedules.delete(scheduleId)
        }),

      fireDue: Effect.fnUntraced(function* ({ now, ...batch }) {
        const { next, picked } = batchOf(
          [...schedules.values()].toSorted(
            (a, b) => DateTime.toEpochMillis(a.row.next_at) - DateTime.toEpochMillis(b.row.next_at),
          ),
          ({ row }) => DateTime.isLessThanOrEqualTo(row.next_at, now),
          batch,
        )
        const orgs: Array<string> = []
        for (const { orgId, row, callbackSecret } of picked) {
          const { schedule_id: id, workflow, cron, timezone, input, deployment_id, callback_url, skip_callbacks } = row
          const job = {
            jobId: yield* random.ulid,
            orgId,
            workflow,
            input,
            deploymentId: deployment_id,
            callbackUrl: callback_url,
            callbackSecret,
            skipCallbacks: skip_callbacks,
            idempotencyKey: null,
            now,
          }
          const checkLimits = Effect.andThen(
            needRoom(world, "unfinishedJobs", orgId),
            needRoom(world, "storedBytes", orgId),
          )
          if (Result.isSuccess(yield* Effect.result(checkLimits))) {
            jobs.set(job.jobId, storedJob(job, id))
            orgs.push(orgId)
          }
          const nextAt = Result.getOrUndefined(nextFiring(cron, timezone, now))
          if (nextAt === undefined) schedules.delete(id)
          else schedules.set(id, { orgId, row: { ...row, next_at: nextAt }, callbackSecret })
        }
        return { orgs, moved: picked.length, next }
      }),
    })
  }),
)
