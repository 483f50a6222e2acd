import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { JobSchedule } from "../../domain/jobs/JobSchedule.ts"
import { JobScheduleRepository, type NewJobSchedule, scheduleNotFound } from "../../domain/jobs/JobSchedules.ts"
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
/** The columns whose length counts towards the bytes of a page. */
const sizedColumns = ["workflow", "cron", "timezone", "input", "deployment_id", "callback_url"]

/** Inserts a schedule within the limits of its org. */
const insertSchedule = (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
  schedule: NewJobSchedule,
  entry: AuditEntry,
) => {
  const { orgId } = schedule
  const input = toJsonText(schedule.input)
  const inputBytes = StoredBytes.byteLength(input)
  const insert = (hasRoom: boolean) =>
    audited(
      sql,
      entry,
      sql`
        INSERT INTO job_schedules (id, org_id, cron, timezone, next_at, created_at, ${templateColumns(sql)})
        SELECT ${schedule.scheduleId}, org.id, ${schedule.cron}, ${schedule.timezone}, ${date(schedule.nextAt)},
          ${date(schedule.now)}, ${templateValues(sql, schedule, input)}
        FROM orgs org
        WHERE org.id = ${orgId} AND ${limit.guard(sql`${hasRoom}::boolean`)} AND ${bytes.fits(orgId, inputBytes)}
        RETURNING org_id AS "orgId"`,
    ).pipe(
      orUnavailable,
      Effect.map(([made]) => made),
    )
  const isInserted = (made: unknown) => made !== undefined
  return bytes
    .storing(orgId, inputBytes, isInserted, limit.admit(Limited.orgOwner(sql, orgId), insert))
    .pipe(Effect.flatMap((made) => (made === undefined ? bytes.refuse(orgId) : Effect.void)))
}

/** Job schedules in PostgreSQL. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const limit = yield* Limited.make("schedules")
    const bytes = yield* StoredBytes.make
    const findRoom = yield* JobRoom.make

    return JobScheduleRepository.of({
      insert: (schedule, entry) => insertSchedule(sql, limit, bytes, schedule, entry),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id AS schedule_id, workflow, cron, timezone, input, deployment_id, callback_url, skip_callbacks,
              next_at, created_at
            FROM job_schedules WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "schedule_id",
          sizedColumns,
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
        fireSchedules(sql, random, batch, findRoom).pipe(
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
