import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { DelayedBatch } from "../../domain/jobs/DelayedJobs.ts"
import { date } from "../database/fragments.ts"
import { pickDue } from "../orgs/orgsInTurn.ts"

interface Row {
  readonly moved: number
  readonly orgs: ReadonlyArray<string>
  readonly next: string | null
}

const delayedJobs = { table: "jobs", time: "run_at", where: "status = 'queued' AND delayed" }

/** One batch of a sweep: opens delayed jobs whose time to run has come to claims. */
export const queueDelayed = (sql: SqlClient.SqlClient, batch: DelayedBatch) => {
  const { next, picked } = pickDue(sql, delayedJobs, "id, org_id", batch)
  return sql<Row>`
    ${picked}, opened AS (
      UPDATE jobs SET delayed = false, updated_at = ${date(batch.now)} WHERE id = ANY(ARRAY(SELECT id FROM picked))
    )
    SELECT (SELECT count(*)::int FROM picked) AS moved, ${next} AS next,
      (SELECT coalesce(json_agg(DISTINCT org_id), '[]') FROM picked) AS orgs`.pipe(Effect.map(([row]) => row!))
}
