import type { SqlClient, Statement } from "effect/sql"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks, priority, max_attempts,
    retry_delay_seconds`)

/** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
export const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean, ${template.priority}::smallint,
  ${template.maxAttempts}::smallint, ${template.retryDelaySeconds}::int`

/**
 * The CTEs `rows` and `made`, which insert queued jobs. Two, because Citus plans an INSERT only without a table in its SELECT.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, the time to run or null, the id that the callback secret is encrypted
 * for, the time of creation, and `templateColumns`
 * @param returning what `made` has of each job
 */
export const insertJobs = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  returning: Statement.Fragment = sql.literal("RETURNING id"),
) => sql`
  rows (id, org_id, idempotency_key, run_at, owner, created_at, ${templateColumns(sql)}) AS MATERIALIZED (${rows}),
  made AS (
    INSERT INTO jobs (id, org_id, idempotency_key, run_at, delayed, ${templateColumns(sql)}, callback_secret_owner, status,
      created_at, updated_at)
    SELECT id, org_id, idempotency_key, run_at, run_at IS NOT NULL, ${templateColumns(sql)},
      CASE WHEN callback_secret IS NOT NULL THEN owner END, 'queued', created_at, created_at
    FROM rows ${returning}
  )`
