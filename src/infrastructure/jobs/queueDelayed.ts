import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { DelayedBatch } from "../../domain/jobs/DelayedJobs.ts"
import { date } from "../database/fragments.ts"
import { nextOrg, orgsInTurn, share } from "../orgs/orgsInTurn.ts"

interface Row {
  readonly moved: number
  readonly orgs: ReadonlyArray<string>
  readonly next: string | null
}

/** The CTE `picked`, which locks the jobs of a batch; and `next`, the org after which the next batch begins. */
const pick = (sql: SqlClient.SqlClient, batch: DelayedBatch) => {
  const { after, limit, now } = batch
  if (after === null) {
    return {
      picked: sql`
        WITH picked AS MATERIALIZED (
          SELECT id, org_id FROM jobs WHERE status = 'queued' AND delayed AND run_at <= ${date(now)}
          ORDER BY run_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
        )`,
      next: sql`CASE WHEN (SELECT count(*) FROM picked) = ${limit}::int THEN '' END`,
    }
  }
  const delayed = { table: "jobs", time: "run_at", where: "status = 'queued' AND delayed" }
  return {
    picked: sql`
      WITH RECURSIVE ${orgsInTurn(sql, delayed, batch)}, picked AS MATERIALIZED (
        SELECT job.id, job.org_id FROM due CROSS JOIN LATERAL (
          SELECT id, org_id FROM jobs
          WHERE org_id = due.org_id AND status = 'queued' AND delayed AND run_at <= ${date(now)}
          ORDER BY run_at LIMIT ${share(sql, batch)} FOR UPDATE SKIP LOCKED
        ) AS job
      )`,
    next: nextOrg(sql, batch),
  }
}

/** One batch of a sweep: opens delayed jobs whose time to run has come to claims. */
export const queueDelayed = (sql: SqlClient.SqlClient, batch: DelayedBatch) => {
  const { next, picked } = pick(sql, batch)
  return sql<Row>`
    ${picked}, opened AS (
      UPDATE jobs SET delayed = false, updated_at = ${date(batch.now)} WHERE id = ANY(ARRAY(SELECT id FROM picked))
    )
    SELECT (SELECT count(*)::int FROM picked) AS moved, ${next} AS next,
      (SELECT coalesce(json_agg(DISTINCT org_id), '[]') FROM picked) AS orgs`.pipe(Effect.map(([row]) => row!))
}
