import { DateTime, Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { InvalidRequest } from "../../domain/Errors.ts"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { isBlocked, JobSchedule, LastJob, lastJobUnfinished, type Overlap } from "../../domain/jobs/JobSchedule.ts"
import {
  type JobScheduleChanges,
  JobScheduleRepository,
  type NewJobSchedule,
  scheduleNotFound,
} from "../../domain/jobs/JobScheduleRepository.ts"
import { changedRun } from "../../domain/jobs/cronTimes.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { audited } from "../audit/audited.ts"
import {
  afterCursor,
  date,
  dateOrNull,
  decodePage,
  decodeRows,
  isOfOrg,
  JsonText,
  pageOf,
  Time,
  toJsonText,
} from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as Limits from "../orgs/limits.ts"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"
import { insertJobs, templateColumns } from "./createJobs.ts"
import { finishedJob } from "./finishJobs.ts"
import { runSchedules } from "./runSchedules.ts"

const Row = Schema.Struct({
  ...JobSchedule.fields,
  input: JsonText,
  next_at: Schema.NullOr(Time),
  created_at: Time,
})
const decode = decodePage(Row)
const decodeFound = decodeRows(
  Schema.Struct({
    ...Row.fields,
    last_job_id: Schema.NullOr(LastJob.fields.job_id),
    last_status: Schema.NullOr(LastJob.fields.status),
    last_created_at: Schema.NullOr(Time),
    last_finished_at: Schema.NullOr(Time),
  }),
)
/** The columns whose length counts towards the bytes of a page. */
const sizedColumns = ["workflow", "cron", "timezone", "input", "deployment_id", "callback_url"]

/** The columns of a schedule `s`. */
const scheduleColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    s.id AS schedule_id, s.workflow, s.cron, s.timezone, s.input, s.deployment_id, s.callback_url, s.skip_callbacks,
    s.concurrency_key, s.priority, s.max_attempts, s.retry_delay_seconds, s.expires_in_seconds, s.overlap, s.next_at IS NOT NULL AS active, s.next_at, s.created_at`)

/** Reads a schedule with the last job that it created. */
const findSchedule = (sql: SqlClient.SqlClient, orgId: string, scheduleId: string) =>
  sql`
    SELECT ${scheduleColumns(sql)}, job.id AS last_job_id, job.status AS last_status, job.created_at AS last_created_at,
      job.finished_at AS last_finished_at
    FROM job_schedules s LEFT JOIN LATERAL (
      SELECT id, status, created_at, NULL::timestamptz AS finished_at FROM jobs
      WHERE id = s.last_job_id AND ${isOfOrg(sql, orgId)}
      UNION ALL ${finishedJob(sql, orgId, sql.literal("s.last_job_id"), "id, status, created_at, finished_at")}
    ) AS job ON true
    WHERE s.id = ${scheduleId} AND s.org_id = ${orgId}`.pipe(
    decodeFound,
    orUnavailable,
    Effect.flatMap(([row]) => {
      if (row === undefined) return Effect.fail(scheduleNotFound())
      const { last_created_at, last_finished_at: finished_at, last_job_id: job_id, last_status, ...schedule } = row
      const lastJob =
        job_id === null ? null : { job_id, status: last_status!, created_at: last_created_at!, finished_at }
      return Effect.succeed({ schedule, lastJob })
    }),
  )

/** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean, ${template.concurrencyKey}, ${template.priority}::smallint,
  ${template.maxAttempts}::smallint, ${template.retryDelaySeconds}::int, ${template.expiresInSeconds}::int`

/** Inserts a schedule within the limits of its org. */
const insertSchedule = (
  sql: SqlClient.SqlClient,
  limit: Limits.Limit,
  bytes: Limits.StoredBytes,
  schedule: NewJobSchedule,
  entry: AuditEntry,
) => {
  const { orgId } = schedule
  const input = toJsonText(schedule.input)
  const size = rowCost.schedule + byteLength(input, schedule.callbackUrl, schedule.concurrencyKey)
  const insert = (beside: Limits.Beside) =>
    audited(
      sql,
      entry,
      sql`
        INSERT INTO job_schedules (id, org_id, cron, timezone, overlap, next_at, created_at, ${templateColumns(sql)})
        SELECT ${schedule.scheduleId}, id, ${schedule.cron}, ${schedule.timezone}, ${schedule.overlap},
          ${dateOrNull(schedule.nextAt)}::timestamptz, ${date(schedule.now)}, ${templateValues(sql, schedule, input)}
        FROM rows
        RETURNING org_id AS "orgId"`,
      undefined,
      sql`
        SELECT id FROM orgs org
        WHERE id = ${orgId} AND ${limit.fits(beside)}`,
    ).pipe(
      orUnavailable,
      Effect.map(([made]) => made),
    )
  return limit
    .admit(Limits.orgOwner(sql, orgId), { bytes: size }, insert)
    .pipe(Effect.flatMap((made) => (made === undefined ? bytes.refuse(orgId) : Effect.void)))
}

/** Job schedules in PostgreSQL. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const limit = yield* Limits.make("schedules")
    const jobLimit = yield* Limits.make("unfinishedJobs")
    const bytes = yield* Limits.makeBytes

    return JobScheduleRepository.of({
      insert: (schedule, entry) => insertSchedule(sql, limit, bytes, schedule, entry),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT ${scheduleColumns(sql)} FROM job_schedules s WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "schedule_id",
          sizedColumns,
        ).pipe(decode, orUnavailable),

      find: (orgId, scheduleId) => findSchedule(sql, orgId, scheduleId),
      update: (orgId, scheduleId, changes, now, entry) =>
        changeSchedule(sql, bytes, orgId, scheduleId, changes, now, entry).pipe(sql.withTransaction, orUnavailable),
      run: (orgId, scheduleId, jobId, now) =>
        runSchedule(sql, jobLimit, bytes, orgId, scheduleId, jobId, now).pipe(sql.withTransaction, orUnavailable),

      remove: (orgId, scheduleId, entry) =>
        audited(
          sql,
          entry,
          sql`
            DELETE FROM job_schedules WHERE id = ${scheduleId} AND org_id = ${orgId}
            RETURNING org_id AS "orgId", ${sql.literal(Limits.bytesOf("schedule"))} AS bytes`,
        ).pipe(
          orUnavailable,
          Effect.flatMap(([removed]) =>
            removed === undefined
              ? Effect.fail(scheduleNotFound())
              : Effect.sync(() => usage.addBytes(orgId, -Number(removed.bytes))),
          ),
        ),

      runDue: (batch) =>
        runSchedules(sql, random, jobLimit, batch).pipe(sql.withTransaction, orUnavailableWithin("sweep")),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

interface ChangedRow {
  readonly cron: string
  readonly timezone: string
  readonly next_at: Date | null
}

/** The assignments of an UPDATE for the changed fields. */
const assignments = (sql: SqlClient.SqlClient, changes: JobScheduleChanges) => {
  const columns: Record<string, unknown> = {
    workflow: changes.workflow,
    input: changes.input === undefined ? undefined : toJsonText(changes.input),
    deployment_id: changes.deploymentId,
    callback_url: changes.callbackUrl,
    callback_secret: changes.callbackSecret,
    skip_callbacks: changes.skipCallbacks,
    concurrency_key: changes.concurrencyKey,
    priority: changes.priority,
    max_attempts: changes.maxAttempts,
    retry_delay_seconds: changes.retryDelaySeconds,
    expires_in_seconds: changes.expiresInSeconds,
    cron: changes.cron,
    timezone: changes.timezone,
    overlap: changes.overlap,
  }
  return Object.entries(columns).flatMap(([column, value]) =>
    value === undefined ? [] : [sql`${sql(column)} = ${value as string | number | boolean | null}`],
  )
}

/** Changes a schedule, in a transaction. */
const changeSchedule = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bytes: Limits.StoredBytes,
  orgId: string,
  scheduleId: string,
  changes: JobScheduleChanges,
  now: DateTime.Utc,
  entry: AuditEntry,
) {
  const is = sql`id = ${scheduleId} AND org_id = ${orgId}`
  const [row] = yield* sql<ChangedRow>`
    SELECT cron, timezone, next_at FROM job_schedules WHERE ${is} FOR UPDATE`
  if (row === undefined) return yield* scheduleNotFound()
  const current = { ...row, nextAt: row.next_at && DateTime.fromDateUnsafe(row.next_at) }
  const nextAt = yield* Effect.mapError(
    Effect.fromResult(changedRun(current, changes, now)),
    (error) => new InvalidRequest({ error: `${error}.` }),
  )
  const sets = [...assignments(sql, changes), sql`next_at = ${dateOrNull(nextAt)}::timestamptz`]
  const update = audited(
    sql,
    entry,
    sql`UPDATE job_schedules SET ${sql.csv(sets)} WHERE ${is} RETURNING org_id AS "orgId"`,
  )
  yield* bytes.changing("schedule", is, update)
  return undefined
})

interface RunRow {
  readonly overlap: Overlap
  readonly lastJobId: string | null
  /** The bytes of a job that it creates. */
  readonly bytes: number
}

/** Creates a job of a schedule, in a transaction. */
const runSchedule = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  limit: Limits.Limit,
  bytes: Limits.StoredBytes,
  orgId: string,
  scheduleId: string,
  jobId: string,
  now: DateTime.Utc,
) {
  const [schedule] = yield* sql<RunRow>`
    SELECT overlap, last_job_id AS "lastJobId", ${sql.literal(Limits.bytesOf("schedule"))} AS bytes FROM job_schedules
    WHERE id = ${scheduleId} AND org_id = ${orgId} FOR UPDATE`
  if (schedule === undefined) return yield* scheduleNotFound()
  const { lastJobId, overlap } = schedule
  // After the lock, so that it sees a job that was created just before.
  const [last] = yield* sql<{
    status: JobStatus
  }>`SELECT status FROM jobs WHERE id = ${lastJobId} AND ${isOfOrg(sql, orgId)}`
  if (isBlocked(overlap, last?.status ?? null)) return yield* lastJobUnfinished()

  const row = sql`
    SELECT ${jobId}, s.org_id, NULL::text, NULL::text, NULL::timestamptz, s.id, ${date(now)}::timestamptz, ${templateColumns(sql)}
    FROM job_schedules s JOIN orgs org ON org.id = s.org_id
    WHERE s.id = ${scheduleId} AND s.org_id = ${orgId} AND org.node IS NULL`
  const create = sql`
    WITH ${insertJobs(sql, row)}, noted AS (
      UPDATE job_schedules SET last_job_id = rows.id FROM rows
      WHERE job_schedules.id = ${scheduleId} AND job_schedules.org_id = ${orgId}
    )
    SELECT id FROM made`
  const made = yield* limit.within(Limits.orgOwner(sql, orgId), { bytes: schedule.bytes }, create)
  if (made === undefined || made.length === 0) return yield* bytes.refuse(orgId)
  return undefined
})
