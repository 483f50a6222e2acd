import { type DateTime, Effect, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { ClaimedJob } from "../../domain/jobs/Job.ts"
import type { JobClaim } from "../../domain/jobs/JobRepository.ts"
import { date, decodeRows, isOfOrg, JsonText, texts, Time } from "../database/fragments.ts"

// Which jobs claims may take, and in which order: the highest priority first, then the oldest.

/** SQL: queued jobs of an org that claims may take. An org that was deleted meanwhile has none. */
export const queuedOf = (sql: SqlClient.SqlClient, orgId: string) => sql`
  ${isOfOrg(sql, orgId)} AND status = 'queued' AND NOT delayed AND EXISTS (SELECT FROM orgs WHERE id = ${orgId})`

/** SQL: whether a queued job has not expired. The sweep of expired jobs is to find the others. */
export const isInTime = (sql: SqlClient.SqlClient, now: DateTime.Utc) =>
  sql`(attempt > 0 OR expires_at IS NULL OR expires_at > ${date(now)})`

/** SQL beside `queuedOf`: those of a workflow without a concurrency key, and those with one. Each fits its index. */
export const unkeyedOf = (sql: SqlClient.SqlClient, workflow: Statement.Fragment) =>
  sql`workflow = ${workflow} AND attempt >= 0 AND concurrency_key IS NULL`
export const keyedOf = (sql: SqlClient.SqlClient, workflow: Statement.Fragment) =>
  sql`workflow = ${workflow} AND attempt >= 0 AND concurrency_key IS NOT NULL`

/** SQL, after WITH RECURSIVE: the priorities of queued jobs, which an index has in this order. 101 is before them. */
export const prioritiesOf = (sql: SqlClient.SqlClient, queued: Statement.Fragment) => sql`
  priorities AS (
    SELECT 101 AS priority
    UNION ALL
    SELECT next.priority FROM priorities AS before CROSS JOIN LATERAL (
      SELECT priority::int FROM jobs WHERE ${queued} AND priority < before.priority
      ORDER BY jobs.priority DESC, id LIMIT 1
    ) AS next
  )`

/** SQL: the next name of a workflow with queued jobs, in the order of the names; `NULL` after the last one. */
export const nextQueued = (sql: SqlClient.SqlClient, orgId: string, than: Statement.Fragment) => {
  const first = (which: Statement.Fragment) =>
    sql`(SELECT workflow FROM jobs
         WHERE ${queuedOf(sql, orgId)} AND workflow > ${than} AND attempt >= 0 AND ${which}
         ORDER BY workflow, priority DESC, id LIMIT 1)`
  return sql`(SELECT min(workflow) AS name FROM (
    ${first(sql`concurrency_key IS NULL`)} UNION ALL ${first(sql`concurrency_key IS NOT NULL`)}) AS firsts)`
}

/** SQL: whether claims of workflows must look at limits or keys. A claim of any workflow reads all keys in order. */
export const areLimited = (sql: SqlClient.SqlClient, orgId: string, workflows: JobClaim["workflows"]) =>
  workflows === undefined
    ? sql`EXISTS (SELECT FROM workflows AS w WHERE w.org_id = ${orgId})`
    : sql`(
        EXISTS (SELECT FROM workflows AS w WHERE w.org_id = ${orgId} AND w.workflow = ANY(${texts(workflows)}))
        OR EXISTS (
          SELECT FROM unnest(${texts(workflows)}) AS asked (name) CROSS JOIN LATERAL (
            SELECT FROM jobs WHERE ${isOfOrg(sql, orgId)} AND status = 'queued' AND NOT delayed
              AND ${keyedOf(sql, sql`asked.name`)} LIMIT 1
          ) AS keyed
        )
      )`

const decode = decodeRows(
  Schema.Struct({ ...ClaimedJob.fields, input: JsonText, lease_expires_at: Time, priority: Schema.Int }),
)
/** Claimed jobs in the order of the queue: RETURNING keeps none. */
export const inOrder = <A extends { readonly priority: number; readonly job_id: string | null }>(
  jobs: ReadonlyArray<A>,
) => jobs.toSorted((a, b) => b.priority - a.priority || (a.job_id! < b.job_id! ? -1 : 1))
/** Decodes claimed jobs, in the order of the queue. */
export const decodeClaims = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.map(decode(rows), inOrder)
export const withoutPriority = (claimed: ClaimedJob & { readonly priority: number }): ClaimedJob => {
  const { priority: _, ...job } = claimed
  return job
}

/** Jobs of several workflows that a claim considers beyond its limit, because other claims may hold the first. */
export const spareCandidates = 32
