import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { NewJob } from "../../domain/jobs/JobRepository.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import * as Batches from "../database/Batches.ts"
import { inBatch, orAlone, type RunTogether } from "../database/changeBatches.ts"
import { texts, toJsonText } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as Limited from "../orgs/limited.ts"
import { jobPositions } from "./jobPositions.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

/** Jobs of several requests that one statement inserts. */
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

/** A job as a row of `columns`. */
const toRow = ({ input, job, rowsAtMost, unwrittenBytes }: Insert) => ({
  id: job.jobId,
  orgId: job.orgId,
  key: job.idempotencyKey,
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
const columns = `
  id text, "orgId" text, key text, "runAt" timestamptz, now timestamptz, "rowsAtMost" bigint, unwritten bigint, workflow text,
  input text, deployment_id text, callback_url text, callback_secret text, skip_callbacks boolean, priority smallint,
  max_attempts smallint, retry_delay_seconds int`

/**
 * Inserts jobs in one statement; returns the ids of those that it has inserted: not those whose idempotency key is
 * taken, nor those of an org that has reached a limit.
 *
 * @param more how many jobs of the same org there are beside the first; 0 for jobs of several requests
 */
const insertRows = (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
  all: ReadonlyArray<Insert>,
  more = 0,
) => {
  const rows = sql`
    SELECT asked.id, org.id, asked.key, asked."runAt", asked.id, asked.now, ${templateColumns(sql)}
    FROM json_to_recordset(${JSON.stringify(all.map(toRow))}::json) AS asked (${sql.literal(columns)})
    -- Lateral: a plan made while there were few orgs cannot read all orgs later.
    CROSS JOIN LATERAL (SELECT id, limits FROM orgs WHERE id = asked."orgId" AND node IS NULL LIMIT 1) AS org
    WHERE ${limit.guard(sql`asked."rowsAtMost"`, more)} AND asked.unwritten <= ${bytes.left}`
  const isKeyed = all.some(({ job }) => job.idempotencyKey !== null)
  return Effect.map(
    sql<{ id: string }>`WITH ${insertJobs(sql, rows, { isKeyed })} SELECT id FROM made`,
    (inserted) => new Set(inserted.map(({ id }) => id)),
  )
}

/**
 * Inserts jobs of one org, all or none of them; returns their ids, or those of the earlier jobs with the same
 * idempotency keys. Returns `undefined` when the org has reached a limit.
 */
const insertTogether = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  bytes: StoredBytes.StoredBytes,
  all: ReadonlyArray<Insert>,
) {
  const inserted = yield* insertRows(sql, limit, bytes, all, all.length - 1)
  const isTaken = ({ job }: Insert) => job.idempotencyKey !== null && !inserted.has(job.jobId)
  const keys = all.filter(isTaken).map(({ job }) => job.idempotencyKey)
  const earlier =
    keys.length === 0
      ? []
      : yield* sql<{ key: string; id: string }>`
          SELECT key, job_id AS id FROM job_keys WHERE org_id = ${all[0]!.job.orgId} AND key = ANY(${texts(keys)})`
  const ofKey = new Map(earlier.map(({ id, key }) => [key, id]))
  const ids = all.flatMap(({ job }) => (inserted.has(job.jobId) ? job.jobId : (ofKey.get(job.idempotencyKey!) ?? [])))
  return ids.length === all.length ? ids : undefined
})

/**
 * Inserts jobs of one org within its limits, all or none of them; returns the id of each, or the id of the earlier job
 * with the same idempotency key. Single jobs without a key that are created at the same time share a statement, of any
 * orgs (ADR 12).
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = yield* Limited.make("unfinishedJobs")
  const bytes = yield* StoredBytes.make
  const together: RunTogether<Insert, ReadonlyArray<string>> = (all) =>
    insertRows(sql, limit, bytes, all).pipe(
      orUnavailable,
      Effect.map(
        (ids) => new Map(all.filter(({ job }) => ids.has(job.jobId)).map((one) => [one, [one.job.jobId]] as const)),
      ),
    )
  const batch = yield* Batches.make(orAlone(together), maxJobs)

  return (jobs: ReadonlyArray<NewJob>) => {
    const { idempotencyKey, orgId } = jobs[0]!
    const inputs = jobs.map(({ input }) => toJsonText(input))
    const isShared = jobs.length === 1 && idempotencyKey === null && (inputs[0]?.length ?? 0) <= maxSharedLength
    const insert = (rowsAtMost: number | null) => {
      const unwrittenBytes = usage.unwrittenBytes(orgId)
      const all = jobs.map((job, n) => ({ job, input: inputs[n]!, rowsAtMost, unwrittenBytes }))
      return isShared ? inBatch(sql, together, batch, all[0]!) : orUnavailable(insertTogether(sql, limit, bytes, all))
    }
    const sizes = jobs.map((job, n) => rowCost.job + byteLength(inputs[n], job.callbackUrl, job.idempotencyKey))
    const isNew = (ids: ReadonlyArray<string>, n: number) => ids[n] === jobs[n]!.jobId
    const sum = (counts: (n: number) => boolean) => sizes.reduce((all, size, n) => all + (counts(n) ? size : 0), 0)
    const stored = bytes
      .storing(
        orgId,
        sum(() => true),
        (ids) => (ids === undefined ? 0 : sum((n) => isNew(ids, n))),
        limit.admit(Limited.orgOwner(sql, orgId), insert, jobs.length),
      )
      .pipe(
        Effect.flatMap((ids) => (ids === undefined ? bytes.refuse(orgId) : Effect.succeed(ids))),
        Effect.tap((ids) => {
          const due = jobs.filter(({ runAt }, n) => runAt === null && isNew(ids, n))
          if (due.length === 0) return Effect.void
          const queued = due.map((job) => ({ ...job, id: job.jobId }))
          return sql.afterCommit(Effect.sync(() => jobPositions(sql).queued(queued)))
        }),
      )
    // A shared statement goes on without the request: its bytes must count then, too.
    return isShared ? Effect.uninterruptible(stored) : stored
  }
})

const columnNames = `workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks, priority, max_attempts,
  retry_delay_seconds`

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) => sql.literal(columnNames)

/**
 * The CTEs `rows` and `made`, which insert queued jobs.
 *
 * @param rows a SELECT of id, org_id, idempotency_key, the time to run or null, the id that the callback secret is
 * encrypted for, the time of creation, and `templateColumns`
 * @param options.isKeyed whether any job has an idempotency key; one whose key is taken is skipped
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
      -- In the order of the keys, which is the order of the locks of all batches.
      WHERE idempotency_key IS NOT NULL ORDER BY idempotency_key, id ON CONFLICT DO NOTHING RETURNING job_id
    ),`
  return sql`
    rows (id, org_id, idempotency_key, run_at, owner, created_at, ${templateColumns(sql)}) AS MATERIALIZED (${rows}),
    ${isKeyed ? keyed : sql``} made AS (
      INSERT INTO jobs (id, org_id, idempotency_key, run_at, delayed, ${templateColumns(sql)}, callback_secret_owner, status,
        created_at, updated_at)
      SELECT id, org_id, idempotency_key, run_at, run_at IS NOT NULL, ${templateColumns(sql)},
        CASE WHEN callback_secret IS NOT NULL THEN owner END, 'queued', created_at, created_at
      FROM rows ${isKeyed ? sql`WHERE idempotency_key IS NULL OR id IN (SELECT job_id FROM keyed)` : sql``} RETURNING ${sql.literal(returning)}
    )`
}
