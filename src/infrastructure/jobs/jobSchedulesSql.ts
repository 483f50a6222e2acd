import { DateTime, Effect, Layer, Schema, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { InvalidRequest } from "../../domain/Errors.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { isBlocked, JobSchedule, LastJob, lastJobUnfinished, type Overlap } from "../../domain/jobs/JobSchedule.ts"
import {
  type JobScheduleChanges,
  JobScheduleRepository,
  scheduleNotFound,
} from "../../domain/jobs/JobScheduleRepository.ts"
import { changedRun, nextRun } from "../../domain/jobs/cronTimes.ts"
import type { RoundRobinBatch } from "../../domain/roundRobin.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { audited } from "../audit/audited.ts"
import {
  afterCursor,
  assignments,
  date,
  dateOrNull,
  decodePage,
  decodeRows,
  isOfOrg,
  JsonText,
  pageOf,
  texts,
  Time,
  times,
  toJsonText,
} from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"
import { insertJobs, templateColumns } from "./createJobs.ts"
import { finishedJob } from "./reportJobs.ts"
import { countReached } from "../../domain/orgs/OrgLimits.ts"
import { pickDue } from "../queue/pickDue.ts"

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

/** Job schedules in PostgreSQL. */
export const layer = Layer.effect(
  JobScheduleRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const limit = yield* Limits.make("schedules")
    const jobLimit = yield* Limits.make("unfinishedJobs")
    const bytes = yield* ByteLimit.make

    /** The columns of a schedule `s`. */
    const scheduleColumns = () =>
      sql.literal(`
        s.id AS schedule_id, s.workflow, s.cron, s.timezone, s.input, s.deployment_id, s.callback_url, s.skip_callbacks,
        s.concurrency_key, s.priority, s.max_attempts, s.retry_delay_seconds, s.expires_in_seconds, s.overlap,
          s.next_at IS NOT NULL AS active, s.next_at, s.created_at`)

    /** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
    const templateValues = (template: JobTemplate, input: string | null) => sql`
      ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
      ${template.callbackSecret}, ${template.skipCallbacks}::boolean, ${template.concurrencyKey},
        ${template.priority}::smallint,
      ${template.maxAttempts}::smallint, ${template.retryDelaySeconds}::int, ${template.expiresInSeconds}::int`

    /** The assignments of an UPDATE for the changed fields. */
    const changesOf = (changes: JobScheduleChanges) =>
      assignments(sql, {
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
      })

    /**
     * Locks the due schedules of a batch. When their inputs are too large for a batch, takes the first schedules of
     * each org.
     */
    const lockDue = (batch: RoundRobinBatch) => {
      const isCut = sql`(SELECT count(*) FROM picked) > (SELECT count(*) FROM fits)`
      const { next, picked } = pickDue(sql, dueSchedules, columns, batch, null, isCut)
      return sql<{ schedules: ReadonlyArray<DueSchedule>; next: string | null }>`
        ${picked}, ranked AS (
          SELECT *, row_number() OVER (PARTITION BY org_id ORDER BY next_at, id) AS rank FROM picked
        ), summed AS (
          SELECT *, sum(bytes) OVER (ORDER BY rank, next_at, id) - bytes AS bytes_before FROM ranked
        ), fits AS MATERIALIZED (
          SELECT id, org_id, cron, timezone, overlap, last_job_id FROM summed WHERE bytes_before < ${maxBatchBytes}
        )
        SELECT ${next} AS next,
          (SELECT coalesce(json_agg(json_build_object('id', id, 'orgId', org_id, 'cron', cron, 'timezone', timezone,
             'overlap', overlap, 'lastJobId', last_job_id)), '[]') FROM fits) AS schedules`.pipe(
        Effect.map(([row]) => row!),
      )
    }

    /**
     * Finds which of the locked schedules must not create a job. A statement of its own, so that it sees the last job,
     * which another transaction may have created just before the lock.
     */
    const findBlocked = Effect.fnUntraced(function* (schedules: ReadonlyArray<DueSchedule>) {
      const skipping = schedules.filter(({ lastJobId, overlap }) => overlap === "skip" && lastJobId !== null)
      if (skipping.length === 0) return new Set<string>()
      const jobs = yield* sql<{ id: string; status: JobStatus }>`
        SELECT job.id, job.status FROM unnest(${texts(skipping.map(({ lastJobId }) => lastJobId))},
          ${texts(skipping.map(({ orgId }) => orgId))}) AS asked (id, org_id)
        CROSS JOIN LATERAL (SELECT id, status FROM jobs WHERE id = asked.id AND org_id = asked.org_id LIMIT 1) AS job`
      const statuses = new Map(jobs.map(({ id, status }) => [id, status]))
      const blocked = skipping.filter(({ lastJobId, overlap }) => isBlocked(overlap, statuses.get(lastJobId!) ?? null))
      return new Set(blocked.map(({ id }) => id))
    })

    return JobScheduleRepository.of({
      insert: (schedule, entry) => {
        const { orgId } = schedule
        const input = toJsonText(schedule.input)
        const size = rowCost.schedule + byteLength(input, schedule.callbackUrl, schedule.concurrencyKey)
        const insert = (beside: Limits.Beside) =>
          audited(
            sql,
            entry,
            sql`
              INSERT INTO job_schedules (id, org_id, cron, timezone, overlap, next_at, created_at,
                ${templateColumns(sql)})
              SELECT ${schedule.scheduleId}, id, ${schedule.cron}, ${schedule.timezone}, ${schedule.overlap},
                ${dateOrNull(schedule.nextAt)}::timestamptz, ${date(schedule.now)}, ${templateValues(schedule, input)}
              FROM rows
              RETURNING org_id AS "orgId"`,
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
      },

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT ${scheduleColumns()} FROM job_schedules s WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "schedule_id",
          sizedColumns,
        ).pipe(decode, orUnavailable),

      find: (orgId, scheduleId) =>
        sql`
          SELECT ${scheduleColumns()}, job.id AS last_job_id, job.status AS last_status,
            job.created_at AS last_created_at,
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
            const {
              last_created_at,
              last_finished_at: finished_at,
              last_job_id: job_id,
              last_status,
              ...schedule
            } = row
            const lastJob =
              job_id === null ? null : { job_id, status: last_status!, created_at: last_created_at!, finished_at }
            return Effect.succeed({ schedule, lastJob })
          }),
        ),
      update: Effect.fnUntraced(
        function* (orgId, scheduleId, changes, now, entry) {
          const is = sql`id = ${scheduleId} AND org_id = ${orgId}`
          const [row] = yield* sql<ChangedRow>`
            SELECT cron, timezone, next_at FROM job_schedules WHERE ${is} FOR UPDATE`
          if (row === undefined) return yield* scheduleNotFound()
          const current = { ...row, nextAt: row.next_at && DateTime.fromDateUnsafe(row.next_at) }
          const nextAt = yield* Effect.mapError(
            Effect.fromResult(changedRun(current, changes, now)),
            (error) => new InvalidRequest({ error: `${error}.` }),
          )
          const sets = [...changesOf(changes), sql`next_at = ${dateOrNull(nextAt)}::timestamptz`]
          const update = audited(
            sql,
            entry,
            sql`UPDATE job_schedules SET ${sql.csv(sets)} WHERE ${is} RETURNING org_id AS "orgId"`,
          )
          yield* bytes.changing("schedule", is, update)
          return undefined
        },
        sql.withTransaction,
        orUnavailable,
      ),
      run: Effect.fnUntraced(
        function* (orgId, scheduleId, jobId, now) {
          const [schedule] = yield* sql<RunRow>`
            SELECT overlap, last_job_id AS "lastJobId", ${sql.literal(ByteLimit.bytesOf("schedule"))} AS bytes
              FROM job_schedules
            WHERE id = ${scheduleId} AND org_id = ${orgId} FOR UPDATE`
          if (schedule === undefined) return yield* scheduleNotFound()
          const { lastJobId, overlap } = schedule
          // After the lock, so that it sees a job that was created just before.
          const [last] = yield* sql<{
            status: JobStatus
          }>`SELECT status FROM jobs WHERE id = ${lastJobId} AND ${isOfOrg(sql, orgId)}`
          if (isBlocked(overlap, last?.status ?? null)) return yield* lastJobUnfinished()

          const row = sql`
            SELECT ${jobId}, s.org_id, NULL::text, NULL::text, NULL::timestamptz, s.id, ${date(now)}::timestamptz,
              ${templateColumns(sql)}
            FROM job_schedules s JOIN orgs org ON org.id = s.org_id
            WHERE s.id = ${scheduleId} AND s.org_id = ${orgId} AND org.node IS NULL`
          const create = sql`
            WITH ${insertJobs(sql, row)}, noted AS (
              UPDATE job_schedules SET last_job_id = rows.id FROM rows
              WHERE job_schedules.id = ${scheduleId} AND job_schedules.org_id = ${orgId}
            )
            SELECT id FROM made`
          const made = yield* jobLimit.within(Limits.orgOwner(sql, orgId), { bytes: schedule.bytes }, create)
          if (made.length === 0) return yield* bytes.refuse(orgId)
          return undefined
        },
        sql.withTransaction,
        orUnavailable,
      ),

      remove: (orgId, scheduleId, entry) =>
        audited<{ readonly orgId: string; readonly bytes: number }>(
          sql,
          entry,
          sql`
            DELETE FROM job_schedules WHERE id = ${scheduleId} AND org_id = ${orgId}
            RETURNING org_id AS "orgId", ${sql.literal(ByteLimit.bytesOf("schedule"))} AS bytes`,
        ).pipe(
          orUnavailable,
          Effect.flatMap(([removed]) =>
            removed === undefined
              ? Effect.fail(scheduleNotFound())
              : Effect.sync(() => usage.addBytes(orgId, -removed.bytes)),
          ),
        ),

      /**
       * Runs one batch of due schedules, in a transaction. Creates a job for each, and computes the next run from now,
       * so that missed runs create one job. Pauses a schedule whose next run cannot be computed. A schedule that is
       * blocked by its last job, or whose org has no room for a job, moves on without one.
       */
      runDue: Effect.fnUntraced(
        function* (batch) {
          const { now } = batch
          const { next, schedules } = yield* lockDue(batch)
          if (schedules.length === 0) return { orgs: [], moved: 0, next }

          const runs = new Map<string, ReturnType<typeof nextRun>>()
          const nextAt = ({ cron, timezone }: DueSchedule) => {
            const key = `${timezone} ${cron}`
            const run = runs.get(key) ?? nextRun(cron, timezone, now)
            runs.set(key, run)
            return Result.getOrNull(run)
          }
          const nexts = schedules.map(nextAt)
          const ids = texts(schedules.map(({ id }) => id))
          const blocked = yield* findBlocked(schedules)
          const wanted = new Map<string, number>()
          for (const { id, orgId } of schedules) wanted.set(orgId, (wanted.get(orgId) ?? 0) + (blocked.has(id) ? 0 : 1))
          const run = Effect.fnUntraced(function* (rooms: Limits.Rooms) {
            const left = new Map([...rooms].map(([orgId, { rows }]) => [orgId, rows]))
            const jobIds = yield* Effect.forEach(schedules, ({ id, orgId }) => {
              if (blocked.has(id)) return Effect.succeed(null)
              const room = left.get(orgId) ?? 0
              left.set(orgId, room - 1)
              if ((rooms.get(orgId)?.bytes ?? 0) <= 0) return Effect.as(countReached("storedBytes"), null)
              return room > 0 ? random.ulid : Effect.as(countReached("unfinishedJobs"), null)
            })
            const rows = sql`
              SELECT ran.job_id, s.org_id, NULL::text, NULL::text, NULL::timestamptz, s.id,
                ${date(now)}::timestamptz, ${templateColumns(sql)}
              FROM ran CROSS JOIN LATERAL (SELECT * FROM job_schedules WHERE id = ran.id LIMIT 1) AS s
              WHERE ran.job_id IS NOT NULL`
            const sized = `org_id, ${ByteLimit.bytesOf("job")} AS bytes`
            const stored = yield* sql<{ orgId: string; bytes: number }>`
              WITH ran AS (
                SELECT * FROM unnest(${ids}, ${texts(jobIds)}, ${times(nexts)}) AS ran (id, job_id, next_at)
              ), ${insertJobs(sql, rows, { returning: sized })}, moved AS (
                UPDATE job_schedules SET next_at = ran.next_at, last_job_id = coalesce(ran.job_id, last_job_id) FROM ran
                WHERE job_schedules.id = ANY(${ids}) AND job_schedules.id = ran.id
              )
              SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes FROM made GROUP BY org_id`
            return { jobIds, stored: new Map(stored.map(({ bytes, orgId }) => [orgId, bytes])) }
          })
          const jobsOf = (jobIds: ReadonlyArray<string | null>, of?: string) =>
            schedules.flatMap(({ orgId }, at) =>
              jobIds[at] === null || (of !== undefined && orgId !== of) ? [] : [orgId],
            )
          const { jobIds } = yield* jobLimit.withRooms(wanted, run, ({ jobIds, stored }, orgId) => ({
            rows: jobsOf(jobIds, orgId).length,
            bytes: stored.get(orgId) ?? 0,
          }))
          return { orgs: jobsOf(jobIds), moved: schedules.length, next }
        },
        sql.withTransaction,
        orUnavailableWithin("sweep"),
      ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

interface ChangedRow {
  readonly cron: string
  readonly timezone: string
  readonly next_at: Date | null
}

interface RunRow {
  readonly overlap: Overlap
  readonly lastJobId: string | null
  /** The bytes of a job that it creates. */
  readonly bytes: number
}

/** Bytes of inputs and callbacks after which a batch takes no further schedule. */
const maxBatchBytes = 16 * 1024 * 1024

interface DueSchedule {
  readonly id: string
  readonly orgId: string
  readonly cron: string
  readonly timezone: string
  readonly overlap: Overlap
  readonly lastJobId: string | null
}

const dueSchedules = {
  table: "job_schedules",
  time: "next_at",
  byTime: "priority >= -100",
  byOrg: "max_attempts >= 0",
}
const columns = `id, org_id, cron, timezone, overlap, last_job_id, next_at,
  coalesce(octet_length(input), 0) + coalesce(octet_length(callback_url), 0)
    + coalesce(octet_length(concurrency_key), 0) AS bytes`
