import { type DateTime, Effect, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { JobStatus } from "../../domain/jobs/Job.ts"
import { JobQueue } from "../../domain/jobs/JobCounts.ts"
import { date, decodeRows, isOfOrg, listedId, Time } from "../database/fragments.ts"
import { ofFilter } from "./retryJobs.ts"
import { keyedOf, nextQueued, prioritiesOf, queuedOf, unkeyedOf } from "./queuedJobs.ts"

/** Jobs of a state that are read at most. */
const maxRead = 10_000
/** Workflows that are shown at most; those with queued jobs share what is read of them. */
const maxWorkflows = 100
const maxKeys = 10
/** The first jobs of a priority, among which is the one that waits longest. */
const firstJobs = 50

const decode = decodeRows(
  Schema.Struct({ ...JobQueue.fields, oldest_due_at: Schema.NullOr(Time), created_since: Time }),
)

/** Counts the unfinished jobs of an org by workflow, state and key, and those that were created since a time. */
export const queueOf = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, since: DateTime.Utc) {
  const queued = queuedOf(sql, orgId)
  const inOrder = sql`${queued} AND priority >= -100`
  const head = (which: Statement.Fragment) => sql`(
    SELECT concurrency_key FROM jobs WHERE ${queued} AND ${which}
    ORDER BY priority DESC, id LIMIT (SELECT rows FROM shares))`
  const next = (than: Statement.Fragment) => nextQueued(sql, orgId, than)
  const created = JobStatus.literals.map((status) => {
    const table = status === "queued" || status === "running" ? "jobs" : "finished_jobs"
    return sql`(
      SELECT id FROM ${sql(table)} WHERE ${ofFilter(sql, orgId, { since })} AND status = ${status}
      ORDER BY ${sql.literal(listedId)} DESC LIMIT ${maxRead})`
  })
  const countOf = (state: string) => sql`(count(*) FILTER (WHERE state = ${state}))::int`
  const [queue] = yield* sql`
    WITH RECURSIVE ${prioritiesOf(sql, inOrder)}, names AS (
      SELECT name, 1 AS place FROM ${next(sql`''`)} AS first
      UNION ALL
      SELECT next.name, place + 1 FROM names CROSS JOIN LATERAL ${next(sql`names.name`)} AS next
      WHERE names.name IS NOT NULL AND place < ${maxWorkflows}
    ), shares AS MATERIALIZED (
      SELECT ${maxRead}::int / greatest(count(name), 1) AS rows, count(name) < ${maxWorkflows} AS has_all FROM names
    ), counted AS MATERIALIZED (
      SELECT name AS workflow, concurrency_key, 'queued' AS state FROM names CROSS JOIN LATERAL (
        SELECT * FROM (
          ${head(keyedOf(sql, sql`names.name`))} UNION ALL ${head(unkeyedOf(sql, sql`names.name`))}
        ) AS heads LIMIT (SELECT rows FROM shares)
      ) AS job
      UNION ALL (
        SELECT workflow, concurrency_key, 'delayed' FROM jobs
        WHERE ${isOfOrg(sql, orgId)} AND status = 'queued' AND delayed ORDER BY run_at LIMIT ${maxRead})
      UNION ALL (
        SELECT workflow, concurrency_key, 'running' FROM jobs
        WHERE ${isOfOrg(sql, orgId)} AND status = 'running' ORDER BY lease_expires_at LIMIT ${maxRead})
    ), others AS MATERIALIZED (
      SELECT ${countOf("delayed")} < ${maxRead} AND ${countOf("running")} < ${maxRead} AS are_all FROM counted
    ), found AS MATERIALIZED (
      SELECT workflow, ${countOf("queued")} AS queued, ${countOf("delayed")} AS delayed, ${countOf("running")} AS running,
        ${countOf("queued")} < (SELECT rows FROM shares) AND (SELECT are_all FROM others) AS is_all
      FROM counted GROUP BY workflow
    ), keyed AS (
      SELECT workflow, concurrency_key, ${countOf("queued")} AS queued, ${countOf("running")} AS running
      FROM counted WHERE concurrency_key IS NOT NULL GROUP BY 1, 2 HAVING ${countOf("queued")} > 0
      ORDER BY 3 DESC, 1, 2 LIMIT ${maxKeys}
    )
    SELECT
      (SELECT coalesce(json_agg(w), '[]') FROM (
        SELECT * FROM found ORDER BY queued DESC, running DESC, delayed DESC, workflow LIMIT ${maxWorkflows}
      ) AS w) AS workflows,
      (SELECT are_all FROM others) AND (SELECT has_all FROM shares) AND (SELECT count(*) FROM found) <= ${maxWorkflows}
        AS is_all,
      (SELECT min(updated_at) FROM priorities p CROSS JOIN LATERAL (
        -- Its updated_at: a queued job changes when it becomes due, and then no more until its claim.
        SELECT updated_at FROM jobs WHERE ${inOrder} AND priority = p.priority ORDER BY id LIMIT ${firstJobs}
      ) AS job) AS oldest_due_at,
      (SELECT count(*)::int FROM (
        SELECT FROM (${sql.join(" UNION ALL ", false)(created)}) AS heads LIMIT ${maxRead}
      ) AS counted) AS created,
      ${date(since)}::timestamptz AS created_since,
      (SELECT coalesce(json_agg(keyed), '[]') FROM keyed) AS keys`.pipe(decode)
  return queue!
})
