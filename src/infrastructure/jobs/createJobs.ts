import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { NewJob } from "../../domain/jobs/JobRepository.ts"
import type { JobTemplate } from "../../domain/jobs/JobTemplates.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import * as Batches from "../database/Batches.ts"
import { inBatch, orAlone, type RunTogether } from "../database/changeBatches.ts"
import { date, dateOrNull, toJsonText } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as Limited from "../orgs/limited.ts"
import { jobPositions } from "./jobPositions.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

/** Jobs that one statement inserts. */
const maxJobs = 64
/** A job with a longer input is inserted alone, so that a batch holds a few MiB. */
const maxSharedLength = 32 * 1024

/** A new job with its input as JSON text. */
interface Insert {
  readonly job: NewJob
  readonly input: string | null
  /** The most unfinished jobs that the org has; `null` when not known. */
  readonly rowsAtMost: number | null
  /** The bytes that the org has stored and that the database does not count yet, with this job. */
  readonly unwrittenBytes: number
}

/** Inserts a job in a statement of its own; returns its id, or the id of the earlier job with its idempotency key. */
const insertAlone = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
  { input, job, rowsAtMost }: Insert,
) {
  const { idempotencyKey, jobId, orgId } = job
  const row = sql`
    SELECT ${jobId}, org.id, ${idempotencyKey}, ${dateOrNull(job.runAt)}::timestamptz, ${jobId},
      ${date(job.now)}::timestamptz, ${templateValues(sql, job, input)}
    FROM orgs org
    WHERE org.id = ${orgId} AND org.node IS NULL AND ${limit.guard(sql`${rowsAtMost}`)}
      AND ${bytes.fits(orgId)}`
  const jobs = insertJobs(sql, row, { isKeyed: idempotencyKey !== null })
  const [inserted] = yield* sql<{ id: string }>`WITH ${jobs} SELECT id FROM made`
  if (inserted !== undefined || idempotencyKey === null) return inserted?.id
  const [earlier] = yield* sql<{ id: string }>`
    SELECT job_id AS id FROM job_keys WHERE org_id = ${orgId} AND key = ${idempotencyKey}`
  return earlier?.id
})

/** Inserts jobs without an idempotency key, of any orgs, in one statement. */
const insertTogether = (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
): RunTogether<Insert, string> => {
  const columns = sql.literal(`
    id text, "orgId" text, "runAt" timestamptz, now timestamptz, "rowsAtMost" bigint, unwritten bigint, workflow text, input text,
    deployment_id text, callback_url text, callback_secret text, skip_callbacks boolean, priority smallint,
    max_attempts smallint, retry_delay_seconds int`)
  const toRow = ({ input, job, rowsAtMost, unwrittenBytes }: Insert) => ({
    id: job.jobId,
    orgId: job.orgId,
    runAt: job.runAt && DateTime.formatIso(job.runAt),
    now: DateTime.formatIso(job.now),
    rowsAtMost,
    unwritten: unwrittenBytes,
    workflow: job.workflow,
    input,
    deployment_id: job.deploymentId,
    callback_url: job.callbackUrl,
    callback_secret: job.callbackSecret,
    skip_callbacks: job.skipCallbacks,
    priority: job.priority,
    max_attempts: job.maxAttempts,
    retry_delay_seconds: job.retryDelaySeconds,
  })
  return (all) => {
    const rows = sql`
      SELECT asked.id, org.id, NULL::text, asked."runAt", asked.id, asked.now, ${templateColumns(sql)}
      FROM json_to_recordset(${JSON.stringify(all.map(toRow))}::json) AS asked (${columns})
      -- Lateral: a plan made while there were few orgs cannot read all orgs later.
      CROSS JOIN LATERAL (SELECT id, limits FROM orgs WHERE id = asked."orgId" AND node IS NULL LIMIT 1) AS org
      WHERE ${limit.guard(sql`asked."rowsAtMost"`)} AND asked.unwritten <= ${bytes.left}`
    return sql<{ id: string }>`WITH ${insertJobs(sql, rows)} SELECT id FROM made`.pipe(
      orUnavailable,
      Effect.map((inserted) => {
        const ids = new Set(inserted.map(({ id }) => id))
        return new Map(all.filter(({ job }) => ids.has(job.jobId)).map((one) => [one, one.job.jobId]))
      }),
    )
  }
}

/**
 * Inserts jobs within the limits of their orgs; returns the id, or the id of the earlier job with the same idempotency
 * key. Jobs without a key that are created at the same time share a statement (ADR 12).
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = yield* Limited.make("unfinishedJobs")
  const bytes = yield* StoredBytes.make
  const together = insertTogether(sql, limit, bytes)
  const batch = yield* Batches.make(orAlone(together), maxJobs)

  return (job: NewJob) => {
    const { idempotencyKey, jobId, orgId } = job
    const input = toJsonText(job.input)
    const isShared = idempotencyKey === null && (input === null || input.length <= maxSharedLength)
    const insert = (rowsAtMost: number | null) => {
      const wanted = { job, input, rowsAtMost, unwrittenBytes: usage.unwrittenBytes(orgId) }
      return isShared ? inBatch(sql, together, batch, wanted) : orUnavailable(insertAlone(sql, limit, bytes, wanted))
    }
    const isInserted = (id: string | undefined) => id === jobId
    const size = rowCost.job + byteLength(input, job.callbackUrl, idempotencyKey)
    const stored = bytes.storing(orgId, size, isInserted, limit.admit(Limited.orgOwner(sql, orgId), insert)).pipe(
      Effect.flatMap((id) => (id === undefined ? bytes.refuse(orgId) : Effect.succeed(id))),
      Effect.tap((id) =>
        id === jobId && job.runAt === null
          ? sql.afterCommit(Effect.sync(() => jobPositions(sql).queued([{ ...job, id }])))
          : Effect.void,
      ),
    )
    // A shared statement goes on without the request: its bytes must count then, too.
    return isShared ? Effect.uninterruptible(stored) : stored
  }
})

const columnNames = `workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks, priority, max_attempts,
  retry_delay_seconds`

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) => sql.literal(columnNames)

/** The values of `templateColumns`. `input` is the template's input as JSON text, which the caller encodes once. */
export const templateValues = (sql: SqlClient.SqlClient, template: JobTemplate, input: string | null) => sql`
  ${template.workflow}, ${input}, ${template.deploymentId}, ${template.callbackUrl},
  ${template.callbackSecret}, ${template.skipCallbacks}::boolean, ${template.priority}::smallint,
  ${template.maxAttempts}::smallint, ${template.retryDelaySeconds}::int`

/**
 * The CTEs `rows` and `made`, which insert queued jobs.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, the time to run or null, the id that the callback secret is
 * encrypted for, the time of creation, and `templateColumns`
 * @param options.isKeyed whether all jobs have an idempotency key; one whose key is taken is skipped
 * @param options.returning what `made` has of each job
 */
export const insertJobs = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  { isKeyed = false, returning = "id" }: { readonly isKeyed?: boolean; readonly returning?: string } = {},
) => {
  const keyed = sql`
    keyed AS (
      INSERT INTO job_keys (org_id, key, job_id) SELECT org_id, idempotency_key, id FROM rows
      ON CONFLICT DO NOTHING RETURNING job_id
    ),`
  return sql`
    rows (id, org_id, idempotency_key, run_at, owner, created_at, ${templateColumns(sql)}) AS MATERIALIZED (${rows}),
    ${isKeyed ? keyed : sql``} made AS (
      INSERT INTO jobs (id, org_id, idempotency_key, run_at, delayed, ${templateColumns(sql)}, callback_secret_owner, status,
        created_at, updated_at)
      SELECT id, org_id, idempotency_key, run_at, run_at IS NOT NULL, ${templateColumns(sql)},
        CASE WHEN callback_secret IS NOT NULL THEN owner END, 'queued', created_at, created_at
      FROM rows ${isKeyed ? sql`WHERE id IN (SELECT job_id FROM keyed)` : sql``} RETURNING ${sql.literal(returning)}
    )`
}
