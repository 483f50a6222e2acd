import { DateTime, Effect, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { Conflict } from "../../domain/Errors.ts"
import type { JobStatus } from "../../domain/jobs/Job.ts"
import { endIdOf } from "../../domain/jobs/JobEnd.ts"
import {
  jobNotFailed,
  jobNotFound,
  type JobRepository,
  keyIsTaken,
  sweepNotFound,
} from "../../domain/jobs/JobRepository.ts"
import { JobCause, JobSweep, JobSweepFilter, type JobSweepOrder } from "../../domain/jobs/JobSweep.ts"
import { maxFilterSweeps } from "../../domain/sweeps/maxFilterSweeps.ts"
import { audited } from "../audit/audited.ts"
import { date, decodeRows, idAt, isAmong, isOfOrg, listedId, texts, Time, toJsonText } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import { endFilterSweep, filterSweeps, startFilterSweep } from "../filterSweeps.ts"
import { finishedJob, loggedAttempt } from "./reportJobs.ts"
import { jobPositions, type QueuedJob } from "./jobPositions.ts"

type Sql = SqlClient.SqlClient
type Repository = JobRepository["Service"]

const kinds = { retry: "retryJobs", cancel: "cancelJobs" } as const
const kindsOfSweeps = Object.values(kinds)
const filterJson = Schema.encodeSync(Schema.fromJsonString(JobSweepFilter))
const decodeFilter = Schema.decodeEffect(Schema.fromJsonString(JobSweepFilter))
const decodeSweeps = decodeRows(
  Schema.Struct({ ...JobSweep.fields, filter: Schema.fromJsonString(JobSweepFilter), created_at: Time }),
)
const CauseRow = Schema.Struct({
  workflow: JobCause.fields.workflow,
  error: JobCause.fields.error,
  jobs: JobCause.fields.jobs,
  job_id: Schema.String,
  at: Time,
})
const decodeCauses = decodeRows(CauseRow)

/** Jobs that a count reads at most, and those whose causes are grouped. */
const maxCounted = 10_000
const maxCauses = 20
/** The characters of an error that make a cause. */
const causeLength = 200

const tooManySweeps = () =>
  new Conflict({
    error:
      `${maxFilterSweeps} sweeps over jobs of this org are still running; ` +
      "try again when one has ended, or cancel one.",
  })

/** Retries of failed jobs, sweeps over jobs, and causes. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = yield* Limits.make("unfinishedJobs")
  const bytes = yield* ByteLimit.make

  /** Queues one failed job again, in a transaction. */
  const retryOne = Effect.fnUntraced(function* (
    mayGrow: ByteLimit.MayGrow,
    { entry, input, jobId, now, orgId }: Retry,
  ) {
    const columns = `id, end_id AS "endId", workflow, unique_key AS "uniqueKey", status,
      coalesce(octet_length(input), 0) AS "inputBytes"`
    const [job] = yield* sql<FoundJob>`
      SELECT found.*, (SELECT ${bytes.left} FROM orgs org WHERE org.id = ${orgId})::float8 AS left FROM (
        SELECT id, id AS "endId", workflow, unique_key AS "uniqueKey", status, 0 AS "inputBytes" FROM jobs
        WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)}
        UNION ALL ${finishedJob(sql, orgId, sql`${jobId}`, columns)} LIMIT 1
      ) AS found`
    if (job === undefined) return yield* jobNotFound()
    if (job.status !== "failed") return yield* jobNotFailed(job.status)
    const text = input === undefined ? undefined : toJsonText(input)
    const more = text === undefined ? 0 : Buffer.byteLength(text ?? "") - job.inputBytes
    if (!mayGrow(more, job.left ?? 0)) return yield* bytes.refuse(orgId)
    const queue = Effect.gen(function* () {
      const { free, holders } = yield* takeKeys(sql, orgId, [job])
      const holder = holders.get(jobId) ?? jobId
      if (holder !== jobId) return yield* keyIsTaken(holder)
      const queued = yield* queueFailed(sql, usage, orgId, free, text, now)
      // Another request has retried it since it was read.
      if (queued.length === 0) return yield* jobNotFailed("queued")
      yield* audited(sql, entry, sql`SELECT ${orgId}::text AS "orgId"`)
    })
    yield* limit.within(Limits.orgOwner(sql, orgId), { bytes: 0 }, queue)
  })

  return {
    retry: (orgId, jobId, input, now, entry) =>
      bytes
        .growing(orgId, (mayGrow) => retryOne(mayGrow, { orgId, jobId, input, now, entry }))
        .pipe(sql.withTransaction, orUnavailable),

    countSwept: (orgId, order) =>
      sql<{ count: number; isAll: boolean }>`
        SELECT (count(*) FILTER (WHERE wanted))::int AS count, count(*) < ${maxCounted} AS "isAll"
        FROM (${sweptJobs(sql, orgId, order, "", maxCounted)}) AS looked`.pipe(
        Effect.map(([row]) => row!),
        orUnavailable,
      ),

    startSweep: (orgId, { count, filter, kind }, entry) =>
      startFilterSweep(
        sql,
        orgId,
        { count, filter: filterJson(filter), kind: kinds[kind], kinds: kindsOfSweeps },
        entry,
      ).pipe(
        Effect.flatMap(({ length }) => (length > 0 ? Effect.void : tooManySweeps())),
        orUnavailable,
      ),

    sweeps: (orgId) =>
      filterSweeps(sql, orgId, kindsOfSweeps).pipe(
        Effect.map((rows) =>
          rows.map(({ id, kind, ...row }) => ({
            ...row,
            sweep_id: id,
            kind: kind === kinds.retry ? ("retry" as const) : ("cancel" as const),
          })),
        ),
        decodeSweeps,
        orUnavailable,
      ),

    endSweep: (orgId, entry) =>
      endFilterSweep(sql, orgId, kindsOfSweeps, entry).pipe(
        Effect.flatMap(({ length }) => (length > 0 ? Effect.void : sweepNotFound())),
        orUnavailable,
      ),

    causes: (orgId, filter) =>
      sql`
        SELECT workflow, left(error, ${causeLength}) AS error, count(*)::int AS jobs, max(id) AS job_id,
          (array_agg(finished_at ORDER BY id DESC))[1] AS at
        FROM (
          SELECT id, workflow, error, finished_at FROM finished_jobs
          WHERE ${ofFilter(sql, orgId, filter)} AND status = 'failed'
          ORDER BY ${sql.literal(listedId)} DESC LIMIT ${maxCounted}
        ) AS failed GROUP BY 1, 2 ORDER BY 3 DESC LIMIT ${maxCauses}`.pipe(
        decodeCauses,
        Effect.map((rows) => rows.map(({ at, job_id, ...cause }) => ({ ...cause, latest: { job_id, at } }))),
        orUnavailable,
      ),
  } satisfies Partial<Repository>
})

/**
 * SQL: the jobs of an org that a filter selects but for their error, as a range of an index: an id has its time.
 *
 * Planner (a workflow with its org): by the columns, a list of a workflow fits the index of states, too, and would read
 * all jobs of the org in a state.
 */
export const ofFilter = (sql: Sql, orgId: string, filter: JobSweepFilter) => {
  const { since, until, workflow } = filter
  const id = sql.literal(listedId)
  const asked =
    workflow === undefined
      ? sql`org_id = ${orgId}`
      : sql`org_id || workflow = ${orgId + workflow} AND ${isOfOrg(sql, orgId)}`
  return sql`${asked} AND ${since === undefined ? sql`true` : sql`${id} >= ${idAt(DateTime.toEpochMillis(since))}`}
    AND ${until === undefined ? sql`true` : sql`${id} < ${idAt(DateTime.toEpochMillis(until))}`}`
}

/** SQL: whether a job has the error of a filter. */
export const hasError = (sql: Sql, { error }: JobSweepFilter) =>
  error === undefined ? sql`true` : sql`starts_with(error, ${error})`

/**
 * A SELECT of the next jobs of a sweep after `doneTo`, in the order of their ids: by an index, and `wanted` says
 * whether the sweep changes them. A retry begins at the newest, which of several with a unique key is the one to queue.
 */
const sweptJobs = (sql: Sql, orgId: string, { filter, kind }: JobSweepOrder, doneTo: string, limit: number) => {
  const id = sql.literal(listedId)
  const isNewestFirst = kind === "retry"
  const order = sql.literal(isNewestFirst ? "DESC" : "")
  const isLeft =
    isNewestFirst && doneTo === "" ? sql`true` : sql`${id} ${sql.literal(isNewestFirst ? "<" : ">")} ${doneTo}`
  const all: ReadonlyArray<JobStatus> = kind === "retry" ? ["failed"] : ["queued", "running"]
  const heads = all
    .filter((status) => filter.status === undefined || status === filter.status)
    .map((status) => {
      const [table, end] = kind === "retry" ? (["finished_jobs", "end_id"] as const) : (["jobs", "id"] as const)
      return sql`(
        SELECT id, ${sql(end)} AS "endId", workflow, unique_key AS "uniqueKey",
          coalesce(${hasError(sql, filter)}, false) AS wanted FROM ${sql(table)}
        WHERE ${ofFilter(sql, orgId, filter)} AND ${isLeft} AND status = ${status} ORDER BY ${id} ${order} LIMIT ${limit})`
    })
  return sql`SELECT * FROM (${sql.join(" UNION ALL ", false)(heads)}) AS heads ORDER BY id ${order} LIMIT ${limit}`
}

interface SweptRow {
  readonly id: string
  readonly endId: string
  readonly workflow: string
  readonly uniqueKey: string | null
  readonly wanted: boolean
}

/** A batch of a sweep over jobs. */
interface SweptBatch {
  readonly orgId: string
  /** In JSON. */
  readonly filter: string
  readonly doneTo: string
  readonly limit: number
  readonly now: DateTime.Utc
}

const readBatch = Effect.fnUntraced(function* (sql: Sql, kind: JobSweepOrder["kind"], batch: SweptBatch) {
  const filter = yield* Effect.orDie(decodeFilter(batch.filter))
  const looked = yield* sql<SweptRow>`${sweptJobs(sql, batch.orgId, { kind, filter }, batch.doneTo, batch.limit)}`
  const doneTo = looked.length < batch.limit ? null : looked.at(-1)!.id
  return { looked, wanted: looked.filter(({ wanted }) => wanted), doneTo }
})

/** Queues the next failed jobs of a sweep again. It waits while the org has no room for more unfinished jobs. */
export const retryFailed = Effect.fnUntraced(function* (
  sql: Sql,
  usage: OrgUsage["Service"],
  limit: Limits.Limit,
  batch: SweptBatch,
) {
  const { doneTo, looked, wanted } = yield* readBatch(sql, "retry", batch)
  if (wanted.length === 0) return { rows: looked.length, doneTo }
  const queue = Effect.fnUntraced(function* (rooms: Limits.Rooms) {
    const jobs = wanted.slice(0, rooms.get(batch.orgId)?.rows ?? 0)
    const { free } = yield* takeKeys(sql, batch.orgId, jobs)
    const changed = (yield* queueFailed(sql, usage, batch.orgId, free, undefined, batch.now)).map(({ id }) => id)
    if (jobs.length === wanted.length) return { rows: looked.length, changed, doneTo }
    return { rows: jobs.length, changed, doneTo: jobs.at(-1)?.id ?? batch.doneTo, isWaiting: true }
  })
  return yield* limit.withRooms(new Map([[batch.orgId, wanted.length]]), queue, ({ changed }) => ({
    rows: changed.length,
  }))
})

/** Cancels the next jobs of a sweep. */
export const cancelJobs = Effect.fnUntraced(function* (
  sql: Sql,
  random: SecureRandom.SecureRandom["Service"],
  reportAll: Repository["reportAll"],
  batch: SweptBatch,
) {
  const { orgId, now } = batch
  const { doneTo, looked, wanted } = yield* readBatch(sql, "cancel", batch)
  const reports = yield* Effect.forEach(wanted, ({ id }) =>
    Effect.map(random.ulid, (made) => ({
      end: { orgId, jobId: id, endId: endIdOf(id, made), nonce: "", now },
      report: { _tag: "Canceled" as const },
    })),
  )
  const outcomes = yield* reportAll(orgId, reports)
  const changed = outcomes.flatMap((outcome, n) =>
    outcome._tag === "Success" && outcome.success.status !== null ? [wanted[n]!.id] : [],
  )
  return { rows: looked.length, changed, doneTo }
})

/**
 * In a transaction: makes failed jobs the newest ones of their unique keys again. Returns those that no unfinished job
 * prevents, and the jobs that prevent others, by their ids. Of jobs with the same key, it takes the first.
 *
 * The first statement locks the keys and gives them another version, so that a creation that has read a key before
 * reads it again. The second one sees what was created until then.
 */
const takeKeys = Effect.fnUntraced(function* <Row extends Omit<SweptRow, "wanted" | "endId">>(
  sql: Sql,
  orgId: string,
  jobs: ReadonlyArray<Row>,
) {
  const first = new Map<string, Row>()
  for (const job of jobs) {
    const key = job.workflow + "\n" + job.uniqueKey
    if (job.uniqueKey !== null && !first.has(key)) first.set(key, job)
  }
  const keyed = [...first.values()]
  if (keyed.length === 0) return { free: jobs, holders: new Map<string, string>() }
  const asked = sql`
    unnest(${texts(keyed.map(({ workflow }) => workflow))}, ${texts(keyed.map(({ uniqueKey }) => uniqueKey!))},
      ${texts(keyed.map(({ id }) => id))}) AS asked (workflow, key, id)`
  yield* sql`
    INSERT INTO job_keys (org_id, workflow, key, job_id)
    SELECT ${orgId}, workflow, key, id FROM ${asked} ORDER BY workflow, key
    ON CONFLICT (org_id, workflow, key) DO UPDATE SET job_id = job_keys.job_id`
  const held = yield* sql<{ id: string; holder: string }>`
    SELECT asked.id, k.job_id AS holder FROM ${asked} CROSS JOIN LATERAL (
      SELECT job_id FROM job_keys k WHERE k.org_id = ${orgId} AND k.workflow = asked.workflow AND k.key = asked.key LIMIT 1
    ) AS k
    WHERE EXISTS (SELECT FROM jobs WHERE jobs.id = k.job_id AND ${isOfOrg(sql, orgId)})`
  const holders = new Map(held.map(({ holder, id }) => [id, holder]))
  const taken = new Set(keyed.map(({ id }) => id).filter((id) => !holders.has(id)))
  yield* sql`
    UPDATE job_keys k SET job_id = asked.id FROM ${asked}
    WHERE k.org_id = ${orgId} AND k.workflow = asked.workflow AND k.key = asked.key AND k.job_id <> asked.id
      AND asked.id = ANY(${texts([...taken])})`
  return { free: jobs.filter(({ id, uniqueKey }) => uniqueKey === null || taken.has(id)), holders }
})

interface QueuedRow extends QueuedJob {
  /** How many more bytes are stored. */
  readonly bytes: number
}

/** The columns that a job keeps when it is queued again. */
const keptColumns = `
  id, org_id, workflow, deployment_id, callback_url, skip_callbacks, idempotency_key, unique_key, concurrency_key,
  priority, retry_delay_seconds, attempt, retried_attempts, lines, steps, error, mapped_stack, created_at`

/**
 * Moves failed jobs back to the queue, each with as many attempts as it had. The secret of a callback is that of the
 * job's last event.
 *
 * @param input JSON text that replaces the input; `undefined` leaves it as it is
 */
const queueFailed = (
  sql: Sql,
  usage: OrgUsage["Service"],
  orgId: string,
  jobs: ReadonlyArray<Pick<SweptRow, "id" | "endId">>,
  input: string | null | undefined,
  now: DateTime.Utc,
) => {
  if (jobs.length === 0) return Effect.succeed([])
  const ends = jobs.map(({ endId }) => endId)
  const kept = sql.literal(keptColumns)
  const log = sql`
    CASE WHEN attempt > coalesce((attempt_log -> -1 ->> 'attempt')::int, 0)
      THEN ${loggedAttempt(sql, "gone", sql`error`, sql`finished_at`)} ELSE attempt_log END`
  return sql<QueuedRow>`
    WITH gone AS (
      DELETE FROM finished_jobs WHERE id = ANY(${texts(jobs.map(({ id }) => id))}) AND end_id = ANY(${texts(ends)})
        AND ${isAmong(sql, "end_id", ends)} AND ${isOfOrg(sql, orgId)} AND status = 'failed'
      RETURNING *, ${sql.literal(ByteLimit.bytesOf("job", "result"))} AS bytes
    ), queued AS (
      INSERT INTO jobs (${kept}, input, callback_secret, callback_secret_owner, max_attempts, attempts_before, attempt_log,
        status, updated_at)
      SELECT ${kept}, ${input === undefined ? sql`input` : sql`${input}`}, event.secret, event.owner,
        least(32767, attempt + max_attempts - attempts_before), least(32767, attempt), ${log}, 'queued', ${date(now)}
      FROM gone LEFT JOIN LATERAL (
        SELECT callback_secret AS secret, callback_secret_owner AS owner FROM events WHERE id = gone.end_id LIMIT 1
      ) AS event ON true
      RETURNING id, workflow, priority, ${sql.literal(ByteLimit.bytesOf("job"))} AS bytes
    )
    SELECT queued.id, queued.workflow, queued.priority, ${orgId}::text AS "orgId", queued.bytes - gone.bytes AS bytes
    FROM queued JOIN gone USING (id)`.pipe(
    Effect.tap((queued) =>
      sql.afterCommit(
        Effect.sync(() => {
          usage.addBytes(
            orgId,
            queued.reduce((sum, { bytes }) => sum + bytes, 0),
          )
          jobPositions(sql).queued(queued)
        }),
      ),
    ),
  )
}

interface Retry {
  readonly orgId: string
  readonly jobId: string
  readonly input: unknown
  readonly now: DateTime.Utc
  readonly entry: AuditEntry
}

interface FoundJob extends Omit<SweptRow, "wanted"> {
  readonly status: JobStatus
  readonly inputBytes: number
  readonly left: number
}
