import type { SqlClient, Statement } from "effect/sql"

/**
 * Inserts queued jobs: a request's, or those that schedules create.
 *
 * @param rows VALUES or a SELECT of the columns in this order, the status and times excepted
 */
export const insertJobs = (sql: SqlClient.SqlClient, rows: Statement.Fragment, now: Date) => sql`
  INSERT INTO jobs (id, org_id, workflow, input, deployment_id, callback_url, callback_secret, callback_secret_owner,
    skip_callbacks, idempotency_key, status, created_at, updated_at)
  SELECT made.*, 'queued', ${now}::timestamptz, ${now}::timestamptz FROM (${rows}) AS made`
