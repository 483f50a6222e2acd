import type { SqlClient } from "effect/sql"
import { JobStatus } from "../../domain/jobs/Job.ts"
import type { JobRepository } from "../../domain/jobs/JobRepository.ts"
import type { Page } from "../../domain/Page.ts"
import { afterCursor, isOfOrg, pageOf } from "../database/fragments.ts"

type JobFilter = Parameters<JobRepository["Service"]["list"]>[1]

/** The columns of a job. */
export const jobColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    id AS job_id, workflow, status, input, deployment_id, callback_url, skip_callbacks, priority, max_attempts,
    retry_delay_seconds, run_at, attempt, progress, note, lease_expires_at, result, error, mapped_stack, created_at, updated_at, finished_at`)

/** The columns whose length counts towards the bytes of a page. */
const sizedColumns = ["workflow", "input", "deployment_id", "callback_url", "note", "result", "error", "mapped_stack"]

/** The statement of a list of jobs, newest first. */
export const listJobs = (sql: SqlClient.SqlClient, orgId: string, { status, workflow }: JobFilter, page: Page) => {
  const ofOrg = sql`org_id = ${orgId} AND ${afterCursor(sql, page, "newest")}`
  const ofWorkflow = workflow === undefined ? sql.literal("true") : sql`workflow = ${workflow}`
  const newest = sql`ORDER BY id DESC LIMIT ${page.limit + 1}`
  // The newest jobs of each status, and the newest of those: each status is one range of an index.
  const heads = (status === undefined ? JobStatus.literals : [status]).map(
    (one) => sql`(SELECT id FROM jobs WHERE ${ofOrg} AND ${ofWorkflow} AND status = ${one} ${newest})`,
  )
  const select = sql`
    SELECT ${jobColumns(sql)} FROM jobs
    WHERE id = ANY(ARRAY(SELECT id FROM (${sql.join(" UNION ALL ", false)(heads)}) AS heads ${newest}))
      AND ${isOfOrg(sql, orgId)}`
  return pageOf(sql, page, select, "job_id", sizedColumns, "newest")
}
