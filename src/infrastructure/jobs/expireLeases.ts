import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { ExhaustedJob, LeaseBatch } from "../../domain/jobs/Leases.ts"
import { date } from "../database/fragments.ts"
import { pickDue } from "../orgs/orgsInTurn.ts"

interface Row {
  readonly picked: number
  readonly exhausted: ReadonlyArray<ExhaustedJob>
  readonly next: string | null
}

const runningJobs = { table: "jobs", time: "lease_expires_at", where: "status = 'running'" }

/** One batch of a sweep: queues the jobs that have attempts left, and returns the others. */
export const expireLeases = (sql: SqlClient.SqlClient, batch: LeaseBatch) => {
  const { now } = batch
  const { next, picked } = pickDue(sql, runningJobs, "id, org_id, attempt, max_attempts", batch)
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
