import type { SqlClient, Statement } from "effect/sql"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"

/** The columns of a template: a job has them, and the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) =>
  sql.literal("workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks")

/** The values of a template, in the order of its columns; its input as text, which is made once. */
export const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean`

/**
 * Inserts queued jobs: a request's, or those that schedules create.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, what the secret is encrypted for, and the template's columns
 */
export const insertJobs = (sql: SqlClient.SqlClient, rows: Statement.Fragment, now: Date) => sql`
  INSERT INTO jobs (id, org_id, idempotency_key, ${templateColumns(sql)}, callback_secret_owner, status, created_at,
    updated_at)
  SELECT id, org_id, idempotency_key, ${templateColumns(sql)}, CASE WHEN callback_secret IS NOT NULL THEN owner END,
    'queued', ${now}::timestamptz, ${now}::timestamptz
  FROM (${rows}) AS made (id, org_id, idempotency_key, owner, ${templateColumns(sql)})`
