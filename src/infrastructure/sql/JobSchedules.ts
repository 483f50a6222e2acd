import { Effect, Layer, Result, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { JobSchedule } from "../../domain/JobSchedule.ts"
import { JobScheduleRepository, nextFiring, scheduleNotFound } from "../../domain/JobSchedules.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { audited } from "./audited.ts"
import { date, decodeRows, JsonText, toJsonText, Time } from "./fragments.ts"

const Row = Schema.Struct({
  ...JobSchedule.fields,
  input: JsonText,
  next_at: Time,
  created_at: Time,
})
const decode = decodeRows(Row)

/** Job schedules in PostgreSQL. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom

    return JobScheduleRepository.of({
      insert: (schedule, entry) =>
        audited(
          sql,
          entry,
          sql`
            INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, input, deployment_id, callback_url,
              callback_secret, skip_callbacks, next_at, created_at)
            VALUES (${schedule.scheduleId}, ${schedule.orgId}, ${schedule.workflow}, ${schedule.cron},
              ${schedule.timezone}, ${toJsonText(schedule.input)}, ${schedule.deploymentId}, ${schedule.callbackUrl},
              ${schedule.callbackSecret}, ${schedule.skipCallbacks}, ${date(schedule.nextAt)}, ${date(schedule.now)})
            RETURNING org_id AS "orgId"`,
        ).pipe(Effect.asVoid, orUnavailable),

      list: (orgId) =>
        sql`
          SELECT id AS schedule_id, workflow, cron, timezone, input, deployment_id, callback_url, skip_callbacks,
            next_at, created_at
          FROM job_schedules WHERE org_id = ${orgId} ORDER BY id`.pipe(decode, orUnavailable),

      remove: (orgId, scheduleId, entry) =>
        audited(
          sql,
          entry,
          sql`DELETE FROM job_schedules WHERE id = ${scheduleId} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
        ).pipe(
          orUnavailable,
          Effect.flatMap((rows) => (rows.length === 0 ? Effect.fail(scheduleNotFound()) : Effect.void)),
        ),

      fireDue: (now) =>
        Effect.gen(function* () {
          const due = yield* sql<{ id: string; orgId: string; cron: string; timezone: string }>`
            SELECT id, org_id AS "orgId", cron, timezone FROM job_schedules WHERE next_at <= ${date(now)}
            ORDER BY next_at LIMIT 100 FOR UPDATE SKIP LOCKED`
          for (const { id, cron, timezone } of due) {
            yield* sql`
              INSERT INTO jobs (id, org_id, workflow, input, deployment_id, callback_url, callback_secret,
                callback_secret_owner, skip_callbacks, status, created_at, updated_at)
              SELECT ${yield* random.ulid}, org_id, workflow, input, deployment_id, callback_url, callback_secret, id,
                skip_callbacks, 'queued', ${date(now)}, ${date(now)}
              FROM job_schedules WHERE id = ${id}`
            // Counted from now, so that firings missed while nothing ran come as one.
            const next = Result.getOrUndefined(nextFiring(cron, timezone, now))
            yield* next === undefined
              ? sql`DELETE FROM job_schedules WHERE id = ${id}`
              : sql`UPDATE job_schedules SET next_at = ${date(next)} WHERE id = ${id}`
          }
          return due.map(({ orgId }) => orgId)
        }).pipe(sql.withTransaction, orUnavailable),
    })
  }),
)
