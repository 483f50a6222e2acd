import type { DateTime } from "effect"
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { ClaimedJob } from "../../domain/jobs/Job.ts"
import { notRunning } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound, type JobRepository } from "../../domain/jobs/JobRepository.ts"
import { integers, texts } from "../database/arrays.ts"
import { date, decodeRows, JsonText, Time, withinBytes } from "../database/fragments.ts"

type JobClaim = Parameters<JobRepository["Service"]["claim"]>[1]
type Claimed = Pick<ClaimedJob, "job_id" | "attempt">

const Row = Schema.Struct({
  ...ClaimedJob.fields,
  input: JsonText,
  lease_expires_at: Time,
})
const decode = decodeRows(Row)

/** Claims the oldest queued jobs, up to the limit and the bytes of a page. */
export const claimJobs = (sql: SqlClient.SqlClient, orgId: string, { workflow, limit, now, leaseUntil }: JobClaim) =>
  sql`
    -- Materialized: a plan that runs the subquery again for each row would take more than the limit.
    WITH queued AS MATERIALIZED (
      SELECT id, input FROM jobs
      WHERE org_id = ${orgId} AND status = 'queued'
        ${workflow === undefined ? sql.literal("") : sql`AND workflow = ${workflow}`}
      ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED
    ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT id, input FROM queued`, "id", ["input"])})
    UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(leaseUntil)},
      updated_at = ${date(now)}
    WHERE id IN (SELECT id FROM picked)
    RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at`.pipe(
    decode,
    // RETURNING keeps no order.
    Effect.map((jobs) => jobs.toSorted((a, b) => (a.job_id < b.job_id ? -1 : 1))),
  )

/** Queues claimed jobs again as if they had not been claimed. Skips jobs that were finished or claimed again since. */
export const releaseJobs = (
  sql: SqlClient.SqlClient,
  orgId: string,
  jobs: ReadonlyArray<Claimed>,
  now: DateTime.Utc,
) => sql`
  UPDATE jobs SET status = 'queued', attempt = jobs.attempt - 1, lease_expires_at = NULL, updated_at = ${date(now)}
  FROM unnest(${texts(jobs.map((job) => job.job_id))}, ${integers(jobs.map((job) => job.attempt))})
    AS claimed (id, attempt)
  WHERE jobs.id = claimed.id AND jobs.attempt = claimed.attempt AND jobs.org_id = ${orgId}
    AND jobs.status = 'running'`

/** Moves the end of a running job's lease. Fails with `Conflict` when the job is not running. */
export const extendLease = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  jobId: string,
  leaseUntil: DateTime.Utc,
  now: DateTime.Utc,
) {
  // The status is a parameter, which fits no partial index: a plan must not read all running jobs.
  const extended = yield* sql`
    UPDATE jobs SET lease_expires_at = ${date(leaseUntil)}, updated_at = ${date(now)}
    WHERE id = ${jobId} AND org_id = ${orgId} AND status = ${"running"} RETURNING id`
  if (extended.length > 0) return
  const existing = yield* sql`SELECT id FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`
  return yield* existing.length > 0 ? Effect.fail(notRunning()) : Effect.fail(jobNotFound())
})
