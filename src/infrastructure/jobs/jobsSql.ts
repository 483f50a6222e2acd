import { DateTime, Effect, Layer, Schema, SchemaGetter } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import {
  attemptLog,
  ClaimedJob,
  Job,
  JobAttempt,
  JobLine,
  JobStatus,
  JobStep,
  maxLinesBytes,
  maxStepsBytes,
} from "../../domain/jobs/Job.ts"
import { type JobState, leaseExpired, refusedHeartbeat } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound, JobRepository, stepsTooLarge } from "../../domain/jobs/JobRepository.ts"
import type { RoundRobinBatch } from "../../domain/roundRobin.ts"
import type { ExhaustedJob } from "../../domain/jobs/dueJobs.ts"
import {
  date,
  dateOrNull,
  decodePage,
  decodeRows,
  exactJson,
  integers,
  isOfOrg,
  listedId,
  JsonText,
  pageOf,
  texts,
  Time,
  toJsonText,
} from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { graceBytes } from "../../domain/orgs/StoredBytes.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { makeWalk, pickDue } from "../queue/pickDue.ts"
import * as InsertJob from "./createJobs.ts"
import * as ReportJobs from "./reportJobs.ts"
import * as RetryJobs from "./retryJobs.ts"
import { makeClaims } from "./claimJobs.ts"
import { makeSettings } from "./workflowsSql.ts"
import { queueOf } from "./countJobs.ts"
import { jobPositions, type QueuedJob } from "./jobPositions.ts"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import { every } from "../background.ts"

const Row = Schema.Struct({
  ...Job.fields,
  input: JsonText,
  result: JsonText,
  mapped_stack: JsonText,
  run_at: Schema.NullOr(Time),
  expires_at: Schema.NullOr(Time),
  lease_expires_at: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
  finished_at: Schema.NullOr(Time),
})

/** The schema of a column with a JSON object in each line. */
const linesOf = <S extends Schema.ConstraintDecoder<unknown>>(item: S) =>
  Schema.NullOr(Schema.String).pipe(
    Schema.decodeTo(exactJson(Schema.Array(item)), {
      decode: SchemaGetter.transform((text: string | null) => `[${(text ?? "").replaceAll("\n", ",")}]`),
      encode: SchemaGetter.transform((text: string): string | null => text),
    }),
  )

const DetailRow = Schema.Struct({
  ...Row.fields,
  attempt_log: Schema.NullOr(
    Schema.Array(Schema.Struct({ ...JobAttempt.fields, ended_at: Schema.DateTimeUtcFromString })),
  ),
  steps: linesOf(Schema.Struct({ ...JobStep.fields, finished_at: Schema.DateTimeUtcFromString })),
})

const decodeLines = decodeRows(
  Schema.Struct({ lines: linesOf(Schema.Struct({ ...JobLine.fields, at: Schema.DateTimeUtcFromString })) }),
)
const decode = decodeRows(DetailRow)
const decodeList = decodePage(Row)

/** Jobs in PostgreSQL. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const bytes = yield* ByteLimit.make
    const insert = yield* InsertJob.make
    const report = yield* ReportJobs.make
    const sweeps = yield* RetryJobs.make
    const claims = yield* makeClaims
    const workflowSettings = yield* makeSettings
    const positions = jobPositions(sql)
    const [leases, delays, expiries] = [yield* makeWalk, yield* makeWalk, yield* makeWalk]

    const remember = <A extends { readonly again: ReadonlyArray<QueuedJob> }>({ again, ...found }: A) => {
      positions.queued(again)
      return found
    }

    /** Reads a job, wherever it is. */
    const findJob = (orgId: string, jobId: string) => sql`
      SELECT ${sql.literal(`${columnsIn("jobs")}, attempt_log, steps`)} FROM jobs WHERE id = ${jobId}
        AND ${isOfOrg(sql, orgId)}
      UNION ALL ${ReportJobs.finishedJob(
        sql,
        orgId,
        sql`${jobId}`,
        `${columnsIn("finished_jobs")}, attempt_log, steps`,
      )} LIMIT 1`

    /** SQL: the picked jobs as `QueuedJob`s in JSON; none while claims read from the beginning. */
    const queuedAgain = (where: Statement.Fragment) => sql`(
      SELECT coalesce(json_agg(
        json_build_object('orgId', org_id, 'workflow', workflow, 'priority', priority, 'id', id)
      ), '[]')
      FROM picked WHERE ${where} AND ${jobPositions(sql).isUsed()}::boolean
    )`

    /** One batch of a sweep: opens delayed jobs whose time to run has come to claims. */
    const queueDelayed = (batch: RoundRobinBatch, since: DateTime.Utc | null) => {
      const { next, picked } = pickDue(sql, delayedJobs, "id, org_id, workflow, priority", batch, since)
      return sql<QueuedRow>`
        ${picked}, opened AS (
          UPDATE jobs SET delayed = false, updated_at = ${date(batch.now)} WHERE id = ANY(ARRAY(SELECT id FROM picked))
        )
        SELECT (SELECT count(*)::int FROM picked) AS moved, ${next} AS next, ${queuedAgain(sql`true`)} AS again,
          (SELECT coalesce(json_agg(DISTINCT org_id), '[]') FROM picked) AS orgs`.pipe(Effect.map(([row]) => row!))
    }

    /** One batch of a sweep: returns the jobs that nobody has claimed in time. */
    const findExpired = (batch: RoundRobinBatch, since: DateTime.Utc | null) => {
      const { next, picked } = pickDue(sql, expiringJobs, "id, org_id", batch, since)
      return sql<{ exhausted: ReadonlyArray<ExhaustedJob>; next: string | null }>`
        ${picked} SELECT ${next} AS next,
          (SELECT coalesce(json_agg(json_build_object('orgId', org_id, 'jobId', id)), '[]')
            FROM picked) AS exhausted`.pipe(Effect.map(([row]) => ({ queued: 0, ...row! })))
    }

    /**
     * One batch of a sweep: queues the jobs that have attempts and their unique keys left, and returns the others. A
     * job whose key is locked stays for a later batch.
     */
    const expireLeases = (batch: RoundRobinBatch, since: DateTime.Utc | null) => {
      const { now } = batch
      const columns = `
        id, org_id, workflow, priority, attempt, unique_key, octet_length(attempt_log::text) AS log_bytes, coalesce((
          SELECT attempts_before + (retry ->> 'attempts')::int FROM workflows w
          WHERE w.org_id = jobs.org_id AND w.workflow = jobs.workflow), max_attempts) AS max_attempts`
      const { next, picked } = pickDue(sql, runningJobs, columns, batch, since)
      const isQueued = sql`attempt < max_attempts AND ${ReportJobs.keepsKey(sql, "picked")}`
      const ofKey = sql`job_keys k WHERE k.org_id = picked.org_id AND k.workflow = picked.workflow
        AND k.key = unique_key`
      const [error, at] = [sql`${leaseExpired.error}::text`, sql`${date(now)}::timestamptz`]
      const expiredAttempt = ReportJobs.loggedAttempt(sql, "jobs", error, at)
      return sql<ExpiredRow>`
        ${picked}, taken AS MATERIALIZED (
          -- Without those whose key another transaction holds: the leases of other orgs do not wait for it.
          SELECT * FROM picked WHERE attempt >= max_attempts OR NOT EXISTS (SELECT FROM ${ofKey})
            OR (SELECT true FROM ${ofKey} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
        ), with_attempts AS (
          SELECT * FROM taken WHERE attempt < max_attempts
        ), ${ReportJobs.keptKeys(sql, "with_attempts")}, queued AS (
          UPDATE jobs SET status = 'queued', lease_expires_at = NULL, updated_at = ${date(now)},
            attempt_log = ${expiredAttempt}
          WHERE id = ANY(ARRAY(SELECT id FROM picked WHERE ${isQueued}))
          RETURNING id, octet_length(attempt_log::text) AS log_bytes
        )
        SELECT (SELECT count(*)::int FROM taken) AS picked, ${next} AS next,
          ${queuedAgain(isQueued)} AS again,
          (SELECT coalesce(json_agg(json_build_object('orgId', org_id, 'jobId', id)), '[]') FROM taken AS picked
           WHERE NOT (${isQueued})) AS exhausted,
          (SELECT coalesce(json_agg(json_build_array(org_id, queued.log_bytes - coalesce(picked.log_bytes, 0))), '[]')
           FROM queued JOIN picked USING (id)) AS stored`.pipe(
        Effect.tap(([row]) => Effect.sync(() => row!.stored.forEach(([orgId, bytes]) => usage.addBytes(orgId, bytes)))),
        Effect.map(([row]) => ({
          queued: row!.picked - row!.exhausted.length,
          exhausted: row!.exhausted,
          next: row!.next,
          again: row!.again,
        })),
      )
    }

    /**
     * Queues claimed jobs again as if they had not been claimed. Skips jobs that were finished or claimed again since,
     * and those whose unique key a newer job has: they end when their lease expires.
     */
    const releaseJobs = (orgId: string, jobs: ReadonlyArray<Claimed>, now: DateTime.Utc) => {
      const ids = texts(jobs.map((job) => job.job_id))
      // An array in place of a join, and the status as a parameter: a plan must not read all running jobs.
      return sql<QueuedJob>`
        WITH claimed_jobs AS MATERIALIZED (
          SELECT id, org_id, workflow, unique_key FROM jobs
          WHERE id = ANY(${ids}) AND ${isOfOrg(sql, orgId)} AND status = ${"running"} AND attempt = (
            SELECT claimed.attempt
            FROM unnest(${ids}, ${integers(jobs.map((job) => job.attempt))}) AS claimed (id, attempt)
            WHERE claimed.id = jobs.id)
          ORDER BY id FOR UPDATE
        ), ${ReportJobs.keptKeys(sql, "claimed_jobs")}
        UPDATE jobs SET status = 'queued', attempt = attempt - 1, lease_expires_at = NULL, updated_at = ${date(now)}
        WHERE id = ANY(ARRAY(SELECT id FROM claimed_jobs)) AND ${ReportJobs.keepsKey(sql, "jobs")}
        RETURNING org_id AS "orgId", workflow, priority, id`
    }

    /** SQL: whether a job is running, and its attempt is the one that reports. */
    const isRunning = (orgId: string, jobId: string, attempt: number | undefined) =>
      // The status is a parameter, which fits no partial index: a plan must not read all running jobs.
      sql`id = ${jobId} AND ${isOfOrg(sql, orgId)} AND status = ${"running"}
        AND attempt = coalesce(${attempt ?? null}::int, attempt)`

    /** Fails with the reason for which a statement found no running job; returns the job when it is running. */
    const findRunning = Effect.fnUntraced(function* (orgId: string, jobId: string, attempt: number | undefined) {
      const [job] = yield* sql<Pick<JobState, "attempt" | "status"> & { readonly steps: string | null }>`
        SELECT status, attempt, steps FROM (${findJob(orgId, jobId)}) AS job`
      if (job === undefined) return yield* jobNotFound()
      if (job.status !== "running" || (attempt ?? job.attempt) !== job.attempt)
        return yield* refusedHeartbeat(job, attempt)
      return job
    })

    /**
     * Appends to a text of a running job, and counts the bytes, if the org has room. Fails when the job, or the
     * attempt, is not running. Returns the job when its text stays as it is.
     *
     * @param changes SQL: the assignments; `was` is the row before
     * @param condition SQL: whether the text is appended
     */
    const appendText = Effect.fnUntraced(function* (
      { attempt, jobId, orgId, size }: Appended,
      column: "lines" | "steps",
      changes: () => Statement.Fragment,
      condition = sql`true`,
    ) {
      const length = (row: string) => sql.literal(`coalesce(octet_length(${row}.${column}), 0)`)
      const appended = yield* bytes.storing(
        orgId,
        size,
        (rows) => rows[0]?.bytes ?? 0,
        Effect.suspend(
          () => sql<{ bytes: number }>`
            UPDATE jobs SET ${changes()} FROM (
              SELECT id AS was_id, lines, steps FROM jobs WHERE ${isRunning(orgId, jobId, attempt)} FOR UPDATE
            ) AS was
            WHERE jobs.id = ${jobId} AND was.was_id = jobs.id AND ${isOfOrg(sql, orgId, "jobs.org_id")} AND ${condition}
              AND (${size <= graceBytes}
                OR EXISTS (SELECT FROM orgs org WHERE org.id = ${orgId} AND ${bytes.fits(orgId)}))
            RETURNING ${length("jobs")} - ${length("was")} AS bytes`,
        ),
      )
      return appended.length > 0 ? undefined : yield* findRunning(orgId, jobId, attempt)
    })

    return JobRepository.of({
      insert,
      ...claims,
      ...workflowSettings,
      release: (orgId, jobs, now) => releaseJobs(orgId, jobs, now).pipe(Effect.map(positions.queued), orUnavailable),
      extendLease: Effect.fnUntraced(function* (orgId, jobId, heartbeat) {
        const { attempt, leaseUntil, lines, note, now, progress } = heartbeat
        const changes = sql`
          lease_expires_at = coalesce(${dateOrNull(leaseUntil)}::timestamptz, lease_expires_at),
          updated_at = ${date(now)}, progress = coalesce(${progress ?? null}::double precision, progress),
          note = coalesce(${note ?? null}, note)`
        if (lines === undefined) {
          const extended = yield* sql`
            UPDATE jobs SET ${changes} WHERE ${isRunning(orgId, jobId, attempt)} RETURNING id`
          if (extended.length === 0) yield* findRunning(orgId, jobId, attempt)
          return
        }
        const text = newestLines(lines)
        const size = Buffer.byteLength(text)
        // The last lines that are there, as far as they fit before the new ones.
        const rest = sql`${maxLinesBytes - size - 1}::int`
        const kept = sql`
          CASE WHEN octet_length(was.lines) <= ${rest} THEN was.lines ELSE (
            SELECT CASE WHEN position('\\x0a'::bytea IN cut) > 0
              THEN convert_from(substring(cut FROM position('\\x0a'::bytea IN cut) + 1), 'UTF8') END
            FROM substring(convert_to(was.lines, 'UTF8') FROM octet_length(was.lines) - ${rest} + 1) AS cut
          ) END`
        const append = () => sql`${changes}, lines = concat_ws(E'\\n', nullif(${kept}, ''), ${text}::text)`
        const refused = yield* appendText({ orgId, jobId, attempt, size }, "lines", append)
        if (refused !== undefined) return yield* bytes.refuse(orgId)
      }, orUnavailable),
      finishStep: Effect.fnUntraced(function* (orgId, jobId, { attempt, name, now, result }) {
        const begin = `{"name":${JSON.stringify(name)},`
        const text = `${begin}"finished_at":"${DateTime.formatIso(now)}","result":${toJsonText(result) ?? "null"}}`
        const size = Buffer.byteLength(text) + 1
        const refused = yield* appendText(
          { orgId, jobId, attempt, size },
          "steps",
          () => sql`updated_at = ${date(now)}, steps = concat_ws(E'\\n', was.steps, ${text}::text)`,
          sql`
            strpos(concat(E'\\n', was.steps), concat(E'\\n', ${begin}::text)) = 0
            AND coalesce(octet_length(was.steps), 0) + ${size}::int <= ${sql.literal(`${maxStepsBytes}`)}`,
        )
        if (refused === undefined || `\n${refused.steps}`.includes(`\n${begin}`)) return
        if (Buffer.byteLength(refused.steps ?? "") + size > maxStepsBytes) return yield* stepsTooLarge()
        return yield* bytes.refuse(orgId)
      }, orUnavailable),
      lines: (orgId, jobId) =>
        sql`
          SELECT lines FROM jobs WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)}
          UNION ALL ${ReportJobs.finishedJob(sql, orgId, sql`${jobId}`, "lines")} LIMIT 1`.pipe(
          decodeLines,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job.lines))),
        ),
      expireLeases: (batch) =>
        leases(
          batch,
          (since) => expireLeases(batch, since),
          ({ exhausted }) => exhausted.length > 0,
        ).pipe(Effect.map(remember), orUnavailableWithin("sweep")),
      findExpired: (batch) =>
        expiries(
          batch,
          (since) => findExpired(batch, since),
          ({ exhausted }) => exhausted.length > 0,
        ).pipe(orUnavailableWithin("sweep")),
      queueDelayed: (batch) =>
        delays(batch, (since) => queueDelayed(batch, since)).pipe(Effect.map(remember), orUnavailableWithin("sweep")),
      ...report,

      find: (orgId, jobId) =>
        findJob(orgId, jobId).pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) =>
            job === undefined
              ? Effect.fail(jobNotFound())
              : Effect.succeed({ ...job, attempt_log: attemptLog(job.attempt_log ?? [], job) }),
          ),
        ),

      queue: (orgId, createdSince) => orUnavailable(queueOf(sql, orgId, createdSince)),
      list: Effect.fnUntraced(function* (orgId, filter, page) {
        const { error, status } = filter
        const id = sql.literal(listedId)
        const asked = RetryJobs.ofFilter(sql, orgId, filter)
        const after = page.cursor === undefined ? sql`true` : sql`${id} < ${page.cursor}`
        // The newest jobs of each status, which are one range of an index of each partition, and the newest of those.
        const head = (one: JobStatus, columns: string, limit: number) => {
          const table = one === "queued" || one === "running" ? "jobs" : "finished_jobs"
          return sql`(
              SELECT ${sql.literal(columns === "" ? columnsIn(table) : columns)} FROM ${sql(table)}
              WHERE ${asked} AND ${after} AND status = ${one} ORDER BY ${id} DESC LIMIT ${limit})`
        }
        const limit = error === undefined ? page.limit + 1 : maxReadPerPage
        const heads = (status === undefined ? JobStatus.literals : [status]).map((one) => head(one, "", limit))
        const select = sql`
          SELECT * FROM (${sql.join(" UNION ALL ", false)(heads)}) AS heads WHERE ${RetryJobs.hasError(sql, filter)}`
        const found = yield* pageOf(sql, page, select, "job_id", sizedColumns, "newest").pipe(decodeList)
        if (error === undefined || found.hasMore) return { ...found, scannedTo: null }
        const [last] = yield* sql<{ id: string }>`
          SELECT id FROM ${head("failed", "id", maxReadPerPage)} AS looked OFFSET ${maxReadPerPage - 1}`
        return { ...found, scannedTo: last?.id ?? null }
      }, orUnavailable),
      ...sweeps,
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** The columns of a job in one of its tables. */
const columnsIn = (table: "jobs" | "finished_jobs") => {
  const [lease, expiry, result, updated] =
    table === "jobs"
      ? ["lease_expires_at", "CASE WHEN attempt = 0 THEN expires_at END", "NULL", "updated_at, NULL::timestamptz"]
      : ["NULL::timestamptz", "NULL::timestamptz", "result", "finished_at AS updated_at, finished_at"]
  return `
    id AS job_id, workflow, status, input, deployment_id, callback_url, skip_callbacks, priority, max_attempts,
    retry_delay_seconds, run_at, unique_key, concurrency_key, attempt, progress, note,
    ${lease} AS lease_expires_at, ${expiry} AS expires_at,
    ${result} AS result, error, mapped_stack,
    created_at, ${updated} AS finished_at`
}

/** The columns whose length counts towards the bytes of a page. */
const sizedColumns = ["workflow", "input", "deployment_id", "callback_url", "note", "result", "error", "mapped_stack"]

/** Failed jobs that a page reads at most to find those with an error. The cursor continues after the last of them. */
const maxReadPerPage = 10_000

interface QueuedRow {
  readonly moved: number
  readonly orgs: ReadonlyArray<string>
  readonly next: string | null
  /** The jobs that claims may take now, if claims begin at positions. */
  readonly again: ReadonlyArray<QueuedJob>
}

// The status is an expression in the indexes by time alone: see `DueRows`.
const delayedJobs = {
  table: "jobs",
  time: "run_at",
  byTime: "status || '' = 'queued' AND delayed",
  byOrg: "status = 'queued' AND delayed",
}

interface ExpiredRow {
  readonly picked: number
  readonly exhausted: ReadonlyArray<ExhaustedJob>
  /** The bytes that the log of each queued job has more. */
  readonly stored: ReadonlyArray<readonly [orgId: string, bytes: number]>
  readonly next: string | null
  readonly again: ReadonlyArray<QueuedJob>
}

const runningJobs = {
  table: "jobs",
  time: "lease_expires_at",
  byTime: "status || '' = 'running'",
  byOrg: "status = 'running'",
}

const expiringJobs = {
  table: "jobs",
  time: "expires_at",
  byTime: "status || '' = 'queued' AND attempt = 0 AND expires_at IS NOT NULL",
  byOrg: "status = 'queued' AND attempt = 0 AND expires_at IS NOT NULL",
}

type Claimed = Pick<ClaimedJob, "job_id" | "attempt">

/** The newest lines that a job keeps, a JSON object in each. */
const newestLines = (lines: ReadonlyArray<JobLine>) => {
  const texts = lines.map(({ at, level, text }) => JSON.stringify({ at: DateTime.formatIso(at), level, text }))
  while (Buffer.byteLength(texts.join("\n")) >= maxLinesBytes) texts.shift()
  return texts.join("\n")
}

interface Appended {
  readonly orgId: string
  readonly jobId: string
  readonly attempt: number | undefined
  /** The bytes that the column has more, at most. */
  readonly size: number
}

/**
 * Every second: queues or fails jobs whose lease has expired, fails those that nobody has claimed in time, opens
 * delayed jobs to claims, and creates the jobs of due schedules.
 */
export const jobWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const jobs = yield* Jobs
    const schedules = yield* JobSchedules
    yield* every("1 second", "Leases are not checked", jobs.expireLeases)
    yield* every("1 second", "Jobs do not expire", jobs.expireQueued)
    yield* every("1 second", "Delayed jobs are not queued", jobs.queueDelayed)
    yield* every("1 second", "Schedules do not run", schedules.runDue)
  }),
)
