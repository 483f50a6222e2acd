import type { SqlClient, Statement } from "effect/sql"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"
import { namesOf, type Part } from "../database/parts.ts"

const typedColumns = `workflow text, input text, deployment_id text, callback_url text, callback_secret text,
  skip_callbacks boolean, priority smallint, max_attempts smallint, retry_delay_seconds int`
const columnNames = namesOf(typedColumns).join(", ")

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) => sql.literal(columnNames)

/** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
export const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean, ${template.priority}::smallint,
  ${template.maxAttempts}::smallint, ${template.retryDelaySeconds}::int`

/**
 * The parts `rows` and `made`, which insert queued jobs. Two, because Citus plans an INSERT only without a table in its SELECT.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, the time to run or null, the id that the callback secret is encrypted
 * for, the time of creation, and `templateColumns`
 * @param options.unlessExists whether a job is skipped whose idempotency key is taken
 * @param options.returning what `made` has of each job
 */
export const insertJobs = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  { returning = "id", unlessExists = false }: { readonly returning?: string; readonly unlessExists?: boolean } = {},
): ReadonlyArray<Part> => [
  {
    name: "rows",
    isRead: true,
    isMaterialized: true,
    isNamed: true,
    columns: `id text, org_id text, idempotency_key text, run_at timestamptz, owner text, created_at timestamptz, ${typedColumns}`,
    rows,
  },
  {
    name: "made",
    into: "jobs",
    columns: `id, org_id, idempotency_key, run_at, delayed, ${columnNames}, callback_secret_owner, status, created_at, updated_at`,
    rows: sql`
      SELECT id, org_id, idempotency_key, run_at, run_at IS NOT NULL, ${templateColumns(sql)},
        CASE WHEN callback_secret IS NOT NULL THEN owner END, 'queued', created_at, created_at
      FROM rows`,
    unlessExists,
    returning,
  },
]
