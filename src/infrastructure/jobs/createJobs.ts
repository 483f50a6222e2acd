import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import type { CreatedJob, NewJob, UniqueJob } from "../../domain/jobs/JobRepository.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import * as Batches from "../database/Batches.ts"
import { date, dateOrNull, idAt, isOfOrg, texts, toJsonText } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { jobPositions } from "./jobPositions.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"

/** Jobs of several requests that one statement inserts. */
const maxJobs = 64
/** A job with a longer input is inserted alone, so that a batch holds a few MiB. */
const maxSharedLength = 32 * 1024

/** A new job with its input as JSON text. */
interface Insert {
  readonly job: NewJob
  readonly input: string | null
  /** What the org has beside what the database counts, with this job. */
  readonly beside: Limits.Beside
}

/** A job as a row of `columns`. */
const toRow = ({ beside, input, job }: Insert) => ({
  id: job.jobId,
  orgId: job.orgId,
  key: job.idempotencyKey,
  unique: job.unique?.key ?? null,
  runAt: job.runAt && DateTime.formatIso(job.runAt),
  now: DateTime.formatIso(job.now),
  rows: beside.rows,
  bytes: beside.bytes,
  workflow: job.workflow,
  input,
  deployment_id: job.deploymentId,
  callback_url: job.callbackUrl,
  callback_secret: job.callbackSecret,
  skip_callbacks: job.skipCallbacks,
  concurrency_key: job.concurrencyKey,
  priority: job.priority,
  max_attempts: job.maxAttempts,
  retry_delay_seconds: job.retryDelaySeconds,
  expires_in_seconds: job.expiresInSeconds,
})
const columns = `
  id text, "orgId" text, key text, "unique" text, "runAt" timestamptz, now timestamptz, rows bigint,
  bytes bigint, workflow text, input text, deployment_id text, callback_url text, callback_secret text,
  skip_callbacks boolean, concurrency_key text, priority smallint, max_attempts smallint, retry_delay_seconds int, expires_in_seconds int`

/** How often a job with a unique key is tried: others replace the key's job, or claim it, in between. */
const maxUniqueTries = 20

interface FoundJob {
  readonly id: string
  /** Another one after each change of the key, also by a retry of its job. */
  readonly version: string
  /** `null`: it is finished. */
  readonly status: JobStatus | null
  /** The bytes of its input and of its steps. */
  readonly size: number
  readonly left: number
}

/**
 * Inserts jobs of one org within its limits, all or none of them; returns each, or the earlier job with the same
 * idempotency or unique key. Single jobs without a key that are created at the same time share a statement, of any
 * orgs (ADR 12).
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = yield* Limits.make("unfinishedJobs")
  const bytes = yield* ByteLimit.make
  const together: Batches.RunTogether<Insert, ReadonlyArray<string>> = (all) =>
    insertRows(all).pipe(
      orUnavailable,
      Effect.map(
        (ids) => new Map(all.filter(({ job }) => ids.has(job.jobId)).map((one) => [one, [one.job.jobId]] as const)),
      ),
    )
  const batch = yield* Batches.make(Batches.orAlone(together), maxJobs)

  /**
   * Inserts jobs in one statement; returns the ids of those that it has inserted: not those whose key is taken, nor
   * those of an org that has reached a limit.
   *
   * @param options.more how many jobs of the same org there are beside the first; 0 for jobs of several requests
   * @param options.replaces the version of a unique key whose job prevents none of them
   */
  const insertRows = (
    all: ReadonlyArray<Insert>,
    { more = 0, replaces }: { readonly more?: number; readonly replaces?: string } = {},
  ) => {
    const [{ beside, job }] = all as readonly [Insert, ...ReadonlyArray<Insert>]
    // The limit is checked once for jobs of one org.
    const open =
      more > 0
        ? sql`(
              SELECT id FROM orgs org WHERE id = ${job.orgId} AND node IS NULL
                AND ${limit.fits(beside)} LIMIT 1
            ) AS org`
        : sql`LATERAL (
              -- Lateral: a plan made while there were few orgs cannot read all orgs later.
              SELECT id FROM orgs org WHERE id = asked."orgId" AND node IS NULL
                AND ${limit.fits({ rows: sql`asked.rows`, bytes: sql`asked.bytes` })} LIMIT 1
            ) AS org`
    const rows = sql`
      SELECT asked.id, org.id, asked.key, asked."unique", asked."runAt", asked.id, asked.now, ${templateColumns(sql)}
      FROM json_to_recordset(${JSON.stringify(all.map(toRow))}::json) AS asked (${sql.literal(columns)})
      CROSS JOIN ${open}`
    const isKeyed = all.some(({ job }) => job.idempotencyKey !== null || job.unique !== null)
    return Effect.map(
      sql<{ id: string }>`WITH ${insertJobs(sql, rows, { isKeyed, replaces })} SELECT id FROM made`,
      (inserted) => new Set(inserted.map(({ id }) => id)),
    )
  }

  /**
   * Inserts jobs of one org, all or none of them; returns their ids, or those of the earlier jobs with the same
   * idempotency keys. Returns `undefined` when the org has reached a limit.
   */
  const insertTogether = Effect.fnUntraced(function* (all: ReadonlyArray<Insert>) {
    const inserted = yield* insertRows(all, { more: all.length - 1 })
    const isTaken = ({ job }: Insert) => job.idempotencyKey !== null && !inserted.has(job.jobId)
    const keys = all.filter(isTaken).map(({ job }) => job.idempotencyKey)
    const earlier =
      keys.length === 0
        ? []
        : yield* sql<{ key: string; id: string }>`
            SELECT key, job_id AS id FROM job_keys
            WHERE org_id = ${all[0]!.job.orgId} AND workflow = '' AND key = ANY(${texts(keys)})`
    const ofKey = new Map(earlier.map(({ id, key }) => [key, id]))
    const ids = all.flatMap(({ job }) => (inserted.has(job.jobId) ? job.jobId : (ofKey.get(job.idempotencyKey!) ?? [])))
    return ids.length === all.length ? ids : undefined
  })

  /**
   * Inserts a job with a unique key; returns its id, or that of the job that prevents it. Returns `undefined` when the
   * org has reached a limit.
   */
  const insertUnique = Effect.fnUntraced(function* (wanted: Insert, unique: UniqueJob) {
    // The version of the stored job with this key that this one may replace. While the job is as it was read, it does
    // not prevent the insert.
    let seen = ""
    for (let tries = 0; tries < maxUniqueTries; tries++) {
      const [inserted] = yield* insertRows([wanted], { replaces: seen })
      if (inserted !== undefined) return inserted
      const found = yield* bytes.growing(wanted.job.orgId, (mayGrow) => findUnique(mayGrow, wanted, unique))
      // Nothing prevents it: a limit does.
      if (found === undefined || found.version === seen) return undefined
      if (found.isTaken) return found.id
      seen = found.version
    }
    return yield* new Unavailable({ error: "Too many jobs with the same unique key are created at once; try again." })
  })

  /** Reads the newest job of a unique key, in a new statement: the one that waited for it may not see it. */
  const findUnique = Effect.fnUntraced(function* (
    mayGrow: ByteLimit.MayGrow,
    { input, job: { now, orgId, runAt, workflow } }: Insert,
    unique: UniqueJob,
  ) {
    const [found] = yield* sql<FoundJob>`
      SELECT k.job_id AS id, k.xmin::text AS version, job.status,
        coalesce(octet_length(job.input), 0) + coalesce(octet_length(job.steps), 0) AS size,
        (SELECT ${bytes.left} FROM orgs org WHERE org.id = ${orgId})::float8 AS left
      FROM job_keys k LEFT JOIN LATERAL (
        SELECT * FROM jobs WHERE id = k.job_id AND ${isOfOrg(sql, orgId)} LIMIT 1
      ) AS job ON true
      WHERE k.org_id = ${orgId} AND k.workflow = ${workflow} AND k.key = ${unique.key}`
    if (found === undefined) return undefined
    const { id, size, status, version } = found
    const isTaken =
      (status !== null && unique.states.includes(status)) ||
      (unique.since !== null && id >= idAt(DateTime.toEpochMillis(unique.since)))
    if (!isTaken || !unique.debounces) return { id, version, isTaken }
    if (!mayGrow(byteLength(input) - size, found.left)) return yield* bytes.refuse(orgId)
    const replaced = yield* sql<{ size: number }>`
      WITH before AS (
        SELECT id, coalesce(octet_length(input), 0) + coalesce(octet_length(steps), 0) AS size FROM jobs
        WHERE id = ${id} AND ${isOfOrg(sql, orgId)} AND status = ${"queued"} FOR UPDATE
      )
      -- Steps and attempts belong to the input before.
      UPDATE jobs SET input = ${input}, steps = NULL, attempts_before = least(32767, attempt),
        max_attempts = least(32767, attempt + max_attempts - attempts_before),
        run_at = ${dateOrNull(runAt)}, delayed = true, updated_at = ${date(now)},
        expires_at = expires_at - coalesce(run_at, created_at)
          + coalesce(${dateOrNull(runAt)}::timestamptz, created_at)
      FROM before WHERE jobs.id = before.id RETURNING before.size`
    for (const { size } of replaced) usage.addBytes(orgId, byteLength(input) - size)
    return { id, version, isTaken: replaced.length > 0 }
  })

  return (jobs: ReadonlyArray<NewJob>) => {
    const { orgId, unique } = jobs[0]!
    const inputs = jobs.map(({ input }) => toJsonText(input))
    const isKeyless = jobs.every(({ idempotencyKey, unique }) => idempotencyKey === null && unique === null)
    const isShared = isKeyless && jobs.length === 1 && (inputs[0]?.length ?? 0) <= maxSharedLength
    const insert = (beside: Limits.Beside) => {
      const all = jobs.map((job, n) => ({ job, input: inputs[n]!, beside }))
      if (isShared) return Batches.inBatch(sql, together, batch, all[0]!)
      if (unique === null) return orUnavailable(insertTogether(all))
      const alone = insertUnique(all[0]!, unique)
      return orUnavailable(Effect.map(alone, (id) => (id === undefined ? undefined : [id])))
    }
    const sizes = jobs.map(
      (job, n) =>
        rowCost.job + byteLength(inputs[n], job.callbackUrl, job.idempotencyKey, job.unique?.key, job.concurrencyKey),
    )
    const isNew = (ids: ReadonlyArray<string>, n: number) => ids[n] === jobs[n]!.jobId
    const sum = (counts: (n: number) => boolean) => sizes.reduce((all, size, n) => all + (counts(n) ? size : 0), 0)
    const stored = limit
      .admit(Limits.orgOwner(sql, orgId), { rows: jobs.length, bytes: sum(() => true) }, insert, (ids) => ({
        rows: ids.filter((_, n) => isNew(ids, n)).length,
        bytes: sum((n) => isNew(ids, n)),
      }))
      .pipe(
        Effect.flatMap((ids) => (ids === undefined ? bytes.refuse(orgId) : Effect.succeed(ids))),
        Effect.tap((ids) => {
          const due = jobs.filter(({ runAt }, n) => runAt === null && isNew(ids, n))
          if (due.length === 0) return Effect.void
          const queued = due.map((job) => ({ ...job, id: job.jobId }))
          return sql.afterCommit(Effect.sync(() => jobPositions(sql).queued(queued)))
        }),
        Effect.map((ids) => ids.map((jobId, n): CreatedJob => ({ jobId, created: isNew(ids, n) }))),
      )
    // A shared statement goes on without the request: its bytes must count then, too.
    return isShared ? Effect.uninterruptible(stored) : stored
  }
})

const columnNames = `workflow, input, deployment_id, callback_url, callback_secret, skip_callbacks, concurrency_key,
  priority, max_attempts, retry_delay_seconds, expires_in_seconds`

/** The columns that a job has in common with the schedule that creates it. */
export const templateColumns = (sql: SqlClient.SqlClient) => sql.literal(columnNames)

/**
 * The CTEs `rows` and `made`, which insert queued jobs.
 *
 * @param rows a SELECT of id, org_id, the idempotency key and the unique key or nulls, the time to run or null, the id
 * that the callback secret is encrypted for, the time of creation, and `templateColumns`
 * @param options.isKeyed whether any job has a key; one whose key is taken is skipped
 * @param options.replaces the version of a unique key that does not count as taken
 * @param options.returning what `made` has of each job
 */
export const insertJobs = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  options: { readonly isKeyed?: boolean; readonly replaces?: string | undefined; readonly returning?: string } = {},
) => {
  const { isKeyed = false, replaces, returning = "id" } = options
  const ifTaken =
    replaces === undefined
      ? sql`DO NOTHING`
      : sql`(org_id, workflow, key) DO UPDATE SET job_id = excluded.job_id WHERE job_keys.xmin::text = ${replaces}`
  const keyed = sql`
    keyed AS (
      INSERT INTO job_keys (org_id, workflow, key, job_id)
      SELECT org_id, CASE WHEN unique_key IS NULL THEN '' ELSE workflow END, coalesce(unique_key, idempotency_key), id
      FROM rows WHERE coalesce(unique_key, idempotency_key) IS NOT NULL
      -- In the order of the keys, which is the order of the locks of all batches.
      ORDER BY idempotency_key, id ON CONFLICT ${ifTaken} RETURNING job_id
    ),`
  const isFree = sql`WHERE coalesce(unique_key, idempotency_key) IS NULL OR id IN (SELECT job_id FROM keyed)`
  return sql`
    rows (id, org_id, idempotency_key, unique_key, run_at, owner, created_at, ${templateColumns(sql)})
    AS MATERIALIZED (${rows}), ${isKeyed ? keyed : sql``} made AS (
      INSERT INTO jobs (id, org_id, idempotency_key, unique_key, run_at, delayed, ${templateColumns(sql)},
        callback_secret_owner, status, created_at, updated_at, expires_at)
      SELECT id, org_id, idempotency_key, unique_key, run_at, run_at IS NOT NULL, ${templateColumns(sql)},
        CASE WHEN callback_secret IS NOT NULL THEN owner END, 'queued', created_at, created_at,
        coalesce(run_at, created_at) + make_interval(secs => coalesce(expires_in_seconds, (
          SELECT w.expires_in_seconds FROM workflows w WHERE w.org_id = rows.org_id AND w.workflow = rows.workflow)))
      FROM rows ${isKeyed ? isFree : sql``} RETURNING ${sql.literal(returning)}
    )`
}
