import { type DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import type { Overlap } from "../../domain/jobs/JobSchedule.ts"
import { isBlocked, lastJobUnfinished, scheduleNotFound } from "../../domain/jobs/JobScheduleRepository.ts"
import { date, isOfOrg } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
import * as Limited from "../orgs/limited.ts"
import type * as StoredBytes from "../orgs/storedBytes.ts"
import { insertJobs, templateColumns } from "./insertJobs.ts"

interface Row {
  readonly overlap: Overlap
  readonly lastJobId: string | null
  readonly inputBytes: number
}

/** Creates a job of a schedule, in a transaction. */
export const runSchedule = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  jobLimit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
  orgId: string,
  scheduleId: string,
  jobId: string,
  now: DateTime.Utc,
) {
  const [schedule] = yield* sql<Row>`
    SELECT overlap, last_job_id AS "lastJobId", coalesce(octet_length(input), 0) AS "inputBytes" FROM job_schedules
    WHERE id = ${scheduleId} AND org_id = ${orgId} FOR UPDATE`
  if (schedule === undefined) return yield* scheduleNotFound()
  const { inputBytes, lastJobId, overlap } = schedule
  // After the lock, so that it sees a job that was created just before.
  const [last] = yield* sql<{
    status: JobStatus
  }>`SELECT status FROM jobs WHERE id = ${lastJobId} AND ${isOfOrg(sql, orgId)}`
  if (isBlocked(overlap, last?.status ?? null)) return yield* lastJobUnfinished()
  yield* jobLimit.take(Limited.orgOwner(sql, orgId))

  const row = sql`
    SELECT ${jobId}, s.org_id, NULL, NULL::timestamptz, s.id, ${date(now)}::timestamptz, ${templateColumns(sql)}
    FROM job_schedules s JOIN orgs org ON org.id = s.org_id
    WHERE s.id = ${scheduleId} AND s.org_id = ${orgId} AND ${bytes.fits(orgId, inputBytes)}`
  const noted: Part = {
    name: "noted",
    isRead: true,
    rows: sql`
      UPDATE job_schedules SET last_job_id = rows.id FROM rows
      WHERE job_schedules.id = ${scheduleId} AND job_schedules.org_id = ${orgId}`,
  }
  const [made] = yield* bytes.storing(
    orgId,
    inputBytes,
    (rows) => rows.length > 0,
    Effect.suspend(() => runParts(sql, [...insertJobs(sql, row), noted], sql`SELECT id FROM made`)),
  )
  if (made === undefined) return yield* bytes.refuse(orgId)
  return undefined
})
