import type { DateTime } from "effect"
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { ClaimedJob } from "../../domain/jobs/Job.ts"
import { type JobState, refusedHeartbeat } from "../../domain/jobs/JobEnd.ts"
import { type Heartbeat, jobNotFound, type JobRepository } from "../../domain/jobs/JobRepository.ts"
import { integers, texts } from "../database/arrays.ts"
import { date, decodeRows, isOfOrg, JsonText, Time, withinBytes } from "../database/fragments.ts"

type JobClaim = Parameters<JobRepository["Service"]["claim"]>[1]
type Claimed = Pick<ClaimedJob, "job_id" | "attempt">

const decode = decodeRows(
  Schema.Struct({
    ...ClaimedJob.fields,
    input: JsonText,
    lease_expires_at: Time,
    priority: Schema.Int,
  }),
)

/** Jobs of several workflows that a claim considers beyond its limit, because other claims may hold the first. */
const spareCandidates = 32

/** SQL: the next jobs of the queue, in its order. Locks them and skips those that others have locked. */
const nextJobs = (sql: SqlClient.SqlClient, orgId: string, { workflows, limit }: JobClaim) => {
  const columns = sql.literal("id, input, priority")
  // An org that was deleted meanwhile has no jobs, though a sweep may not have removed them.
  const orgExists = sql`EXISTS (SELECT FROM orgs WHERE id = ${orgId})`
  const isQueued = sql`status = 'queued' AND NOT delayed AND ${orgExists}`
  const queued = sql`org_id = ${orgId} AND ${isQueued}`
  const [workflow, ...others] = workflows ?? []
  if (workflow === undefined || others.length === 0) {
    // The last condition is true of every job: it allows only the index in the order of the claim.
    const ofQueue = workflow === undefined ? sql`priority >= -100` : sql`workflow = ${workflow} AND attempt >= 0`
    return sql`
      SELECT ${columns} FROM jobs WHERE ${queued} AND ${ofQueue}
      ORDER BY priority DESC, id LIMIT ${limit} FOR UPDATE SKIP LOCKED`
  }
  // The heads of each workflow, each one range of the index. Only jobs that are claimed are locked, in the order of the queue.
  const candidates = limit + spareCandidates
  return sql`
    SELECT job.* FROM (
      SELECT head.id FROM unnest(${texts(workflows!)}) AS asked (workflow) CROSS JOIN LATERAL (
        SELECT id, priority FROM jobs WHERE ${queued} AND workflow = asked.workflow AND attempt >= 0
        ORDER BY priority DESC, id LIMIT ${candidates}
      ) AS head ORDER BY head.priority DESC, head.id LIMIT ${candidates}
    ) AS candidate CROSS JOIN LATERAL (
      SELECT ${columns} FROM jobs WHERE id = candidate.id AND ${isOfOrg(sql, orgId)} AND ${isQueued} FOR UPDATE SKIP LOCKED
    ) AS job LIMIT ${limit}`
}

/** Claims the next queued jobs, up to the limit and the bytes of a page. */
export const claimJobs = (sql: SqlClient.SqlClient, orgId: string, claim: JobClaim) =>
  sql`
    -- Materialized: a plan that runs the subquery again for each row would take more than the limit.
    WITH queued AS MATERIALIZED (${nextJobs(sql, orgId, claim)}), placed AS (
      SELECT id, input, (row_number() OVER (ORDER BY priority DESC, id))::int AS place FROM queued
    ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT id, input, place FROM placed`, "place", ["input"])})
    UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(claim.leaseUntil)},
      updated_at = ${date(claim.now)}, progress = NULL, note = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM picked)) AND ${isOfOrg(sql, orgId)}
    RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at, priority`.pipe(
    decode,
    // RETURNING keeps no order.
    Effect.map((jobs): ReadonlyArray<ClaimedJob> =>
      jobs
        .toSorted((a, b) => b.priority - a.priority || (a.job_id < b.job_id ? -1 : 1))
        .map((job) => {
          const { priority: _, ...claimed } = job
          return claimed
        }),
    ),
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
  WHERE jobs.id = claimed.id AND jobs.attempt = claimed.attempt AND ${isOfOrg(sql, orgId, "jobs.org_id")}
    AND jobs.status = 'running'`

/** Extends the lease of a running job. Fails with a `Conflict` when the job, or the attempt, is not running. */
export const extendLease = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  jobId: string,
  { attempt, leaseUntil, note, now, progress }: Heartbeat,
) {
  // The status is a parameter, which fits no partial index: a plan must not read all running jobs.
  const extended = yield* sql`
    UPDATE jobs SET lease_expires_at = ${date(leaseUntil)}, updated_at = ${date(now)},
      progress = coalesce(${progress ?? null}::double precision, progress), note = coalesce(${note ?? null}, note)
    WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)} AND status = ${"running"} AND attempt = coalesce(${attempt ?? null}::int, attempt)
    RETURNING id`
  if (extended.length > 0) return
  const [job] = yield* sql<Pick<JobState, "attempt" | "status">>`
    SELECT status, attempt FROM jobs WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)}`
  return yield* job === undefined ? jobNotFound() : refusedHeartbeat(job, attempt)
})
