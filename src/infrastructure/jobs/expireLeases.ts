import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { ExhaustedJob, LeaseBatch } from "../../domain/jobs/Leases.ts"
import { date } from "../database/fragments.ts"
import { nextOrg, orgsInTurn, share } from "../orgs/orgsInTurn.ts"

interface Row {
  readonly picked: number
  readonly exhausted: ReadonlyArray<ExhaustedJob>
  readonly next: string | null
}

/** The CTE `picked`, which locks the jobs of a batch; and `next`, the org after which the next batch begins. */
const pick = (sql: SqlClient.SqlClient, batch: LeaseBatch) => {
  const { after, limit, now } = batch
  if (after === null) {
    return {
      picked: sql`
        WITH picked AS MATERIALIZED (
          SELECT id, org_id, attempt, max_attempts FROM jobs WHERE status = 'running' AND lease_expires_at <= ${date(now)}
          ORDER BY lease_expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
        )`,
      next: sql`CASE WHEN (SELECT count(*) FROM picked) = ${limit}::int THEN '' END`,
    }
  }
  const running = { table: "jobs", time: "lease_expires_at", where: "status = 'running'" }
  return {
    picked: sql`
      WITH RECURSIVE ${orgsInTurn(sql, running, batch)}, picked AS MATERIALIZED (
        SELECT job.id, job.org_id, job.attempt, job.max_attempts FROM due CROSS JOIN LATERAL (
          SELECT id, org_id, attempt, max_attempts FROM jobs
          WHERE org_id = due.org_id AND status = 'running' AND lease_expires_at <= ${date(now)}
          ORDER BY lease_expires_at LIMIT ${share(sql, batch)} FOR UPDATE SKIP LOCKED
        ) AS job
      )`,
    next: nextOrg(sql, batch),
  }
}

/** One batch of a sweep: queues the jobs that have attempts left, and returns the others. */
export const expireLeases = (sql: SqlClient.SqlClient, batch: LeaseBatch) => {
  const { now } = batch
  const { next, picked } = pick(sql, batch)
  return sql<Row>`
    ${picked}, queued AS (
      UPDATE jobs SET status = 'queued', lease_expires_at = NULL, updated_at = ${date(now)}
      WHERE id = ANY(ARRAY(SELECT id FROM picked WHERE attempt < max_attempts))
    )
    SELECT (SELECT count(*)::int FROM picked) AS picked, ${next} AS next,
      (SELECT coalesce(json_agg(json_build_object('orgId', org_id, 'jobId', id)), '[]') FROM picked
       WHERE attempt >= max_attempts) AS exhausted`.pipe(
    Effect.map(([row]) => ({
      queued: row!.picked - row!.exhausted.length,
      exhausted: row!.exhausted,
      next: row!.next,
    })),
  )
}
