import type { SqlClient, Statement } from "effect/sql"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) =>
  sql.literal("workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks")

/** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
export const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean`

/**
 * Inserts queued jobs.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, the id that the callback secret is encrypted for, and `templateColumns`
 */
export const insertJobs = (sql: SqlClient.SqlClient, rows: Statement.Fragment, now: Date) => sql`
  INSERT INTO jobs (id, org_id, idempotency_key, ${templateColumns(sql)}, callback_secret_owner, status, created_at,
    updated_at)
  SELECT id, org_id, idempotency_key, ${templateColumns(sql)}, CASE WHEN callback_secret IS NOT NULL THEN owner END,
    'queued', ${now}::timestamptz, ${now}::timestamptz
  FROM (${rows}) AS made (id, org_id, idempotency_key, owner, ${templateColumns(sql)})`
