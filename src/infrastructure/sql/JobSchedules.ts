import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { JobSchedule } from "../../domain/JobSchedule.ts"
import { JobScheduleRepository, scheduleNotFound } from "../../domain/JobSchedules.ts"
import { orUnavailable, orUnavailableWithin } from "../orUnavailable.ts"
import { audited } from "./audited.ts"
import { fireSchedules } from "./fireSchedules.ts"
import { afterCursor, date, decodePage, JsonText, pageOf, toJsonText, Time } from "./fragments.ts"

const Row = Schema.Struct({
  ...JobSchedule.fields,
  input: JsonText,
  next_at: Time,
  created_at: Time,
})
const decode = decodePage(Row)
/** What counts to a page's bytes. */
const texts = ["workflow", "cron", "timezone", "input", "deployment_id", "callback_url"]

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

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id AS schedule_id, workflow, cron, timezone, input, deployment_id, callback_url, skip_callbacks,
              next_at, created_at
            FROM job_schedules WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "schedule_id",
          texts,
        ).pipe(decode, orUnavailable),

      remove: (orgId, scheduleId, entry) =>
        audited(
          sql,
          entry,
          sql`DELETE FROM job_schedules WHERE id = ${scheduleId} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
        ).pipe(
          orUnavailable,
          Effect.flatMap((rows) => (rows.length === 0 ? Effect.fail(scheduleNotFound()) : Effect.void)),
        ),

      fireDue: (batch) => fireSchedules(sql, random, batch).pipe(sql.withTransaction, orUnavailableWithin("sweep")),
    })
  }),
)
