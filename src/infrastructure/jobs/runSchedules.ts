import { Effect, Result } from "effect"
import type { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { isBlocked, type Overlap } from "../../domain/jobs/JobSchedule.ts"
import type { RunBatch } from "../../domain/jobs/JobScheduleRepository.ts"
import { nextRun } from "../../domain/jobs/cronTimes.ts"
import { countReached } from "../../domain/orgs/OrgLimits.ts"
import { date, texts, times } from "../database/fragments.ts"
import { pickDue } from "../orgs/pickDue.ts"
import * as Limits from "../orgs/limits.ts"
import { insertJobs, templateColumns } from "./createJobs.ts"

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
  coalesce(octet_length(input), 0) + coalesce(octet_length(callback_url), 0) + coalesce(octet_length(concurrency_key), 0) AS bytes`

/**
 * Locks the due schedules of a batch. When their inputs are too large for a batch, takes the first schedules of each
 * org.
 */
const lockDue = (sql: SqlClient.SqlClient, batch: RunBatch) => {
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
const findBlocked = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, schedules: ReadonlyArray<DueSchedule>) {
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

/**
 * Runs one batch of due schedules, in a transaction. Creates a job for each, and computes the next run from now, so
 * that missed runs create one job. Pauses a schedule whose next run cannot be computed. A schedule that is blocked by
 * its last job, or whose org has no room for a job, moves on without one.
 */
export const runSchedules = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  limit: Limits.Limit,
  batch: RunBatch,
) {
  const { now } = batch
  const { next, schedules } = yield* lockDue(sql, batch)
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
  const blocked = yield* findBlocked(sql, schedules)
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
    const sized = `org_id, ${Limits.bytesOf("job")} AS bytes`
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
    schedules.flatMap(({ orgId }, at) => (jobIds[at] === null || (of !== undefined && orgId !== of) ? [] : [orgId]))
  const { jobIds } = yield* limit.withRooms(wanted, run, ({ jobIds, stored }, orgId) => ({
    rows: jobsOf(jobIds, orgId).length,
    bytes: stored.get(orgId) ?? 0,
  }))
  return { orgs: jobsOf(jobIds), moved: schedules.length, next }
})
