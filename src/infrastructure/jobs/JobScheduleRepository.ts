import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { JobSchedule } from "../../domain/jobs/JobSchedule.ts"
import { JobScheduleRepository, scheduleNotFound } from "../../domain/jobs/JobSchedules.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { fireSchedules } from "./fireSchedules.ts"
import { templateColumns, templateValues } from "./insertJobs.ts"
import { afterCursor, date, decodePage, JsonText, pageOf, toJsonText, Time } from "../database/fragments.ts"
import * as JobRoom from "./jobRoom.ts"
import * as Limited from "../orgs/limited.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

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
    const usage = yield* OrgUsage
    const limit = yield* Limited.make("schedules")
    const bytes = yield* StoredBytes.make
    const room = yield* JobRoom.make

    return JobScheduleRepository.of({
      insert: (schedule, entry) => {
        const { orgId } = schedule
        const input = toJsonText(schedule.input)
        const size = StoredBytes.byteLength(input)
        const insert = (room: boolean) =>
          audited(
            sql,
            entry,
            sql`
              INSERT INTO job_schedules (id, org_id, cron, timezone, next_at, created_at, ${templateColumns(sql)})
              SELECT ${schedule.scheduleId}, org.id, ${schedule.cron}, ${schedule.timezone}, ${date(schedule.nextAt)},
                ${date(schedule.now)}, ${templateValues(sql, schedule, input)}
              FROM orgs org
              WHERE org.id = ${orgId} AND ${limit.guard(sql`${room}::boolean`)} AND ${bytes.fits(orgId, size)}
              RETURNING org_id AS "orgId"`,
          ).pipe(
            orUnavailable,
            Effect.map(([made]) => made),
          )
        return bytes
          .storing(
            orgId,
            size,
            (made) => made !== undefined,
            limit.admit({ key: orgId, from: () => sql`orgs org WHERE id = ${orgId}` }, insert),
          )
          .pipe(Effect.flatMap((made) => (made === undefined ? bytes.refuse(orgId) : Effect.void)))
      },

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
          sql`
            DELETE FROM job_schedules WHERE id = ${scheduleId} AND org_id = ${orgId}
            RETURNING org_id AS "orgId", coalesce(octet_length(input), 0) AS bytes`,
        ).pipe(
          orUnavailable,
          Effect.flatMap(([removed]) =>
            removed === undefined
              ? Effect.fail(scheduleNotFound())
              : Effect.sync(() => usage.addBytes(orgId, -Number(removed.bytes))),
          ),
        ),

      fireDue: (batch) =>
        fireSchedules(sql, random, batch, room).pipe(
          sql.withTransaction,
          orUnavailableWithin("sweep"),
          Effect.map(({ stored, ...fired }) => {
            for (const { orgId, bytes } of stored) usage.addBytes(orgId, bytes)
            return fired
          }),
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
