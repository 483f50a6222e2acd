import { Array as Arr, DateTime, Effect, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import type { Conflict, NotFound } from "../../domain/Errors.ts"
import {
  decide,
  type JobDecision,
  type JobEnd,
  type JobOutcome,
  type JobReport,
  type JobState,
  type ReportedChange,
  statusAfter,
  withRetried,
} from "../../domain/jobs/JobEnd.ts"
import { maxLoggedAttempts, maxLoggedError } from "../../domain/jobs/Job.ts"
import { jobNotFound, type ReportResult } from "../../domain/jobs/JobRepository.ts"
import { jobEventBody, jobEventType } from "../../domain/webhooks/Event.ts"
import { type Candidate, receivers } from "../../domain/webhooks/EventPatterns.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import * as Batches from "../database/Batches.ts"
import { date, integers, isOfOrg, texts, times, toJsonText } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import { callbackLane } from "../queue/lanes.ts"
import { type LaneHead, laneHeads, queuePositions } from "../queue/queuePositions.ts"
import { deliveryIdOf, inlineReceivers, insertDeliveries, passesFilter, wantsType } from "../queue/insertEvents.ts"

/** Reports of an org that share a statement. */
const maxReports = 64
/** Reports of a request for many that share a statement, and the deliveries that it inserts for several of them. */
const maxReportsOfBatch = 128
const maxInserted = maxReportsOfBatch * inlineReceivers
/** Reports with a longer text run alone, so that a batch holds a few MiB. */
const maxSharedLength = 32 * 1024

const isShort = (value: unknown) => value === null || JSON.stringify(value).length <= maxSharedLength

/** Whether a report may share a statement with others. Background work runs alone, because it may wait longer. */
const isShared = (report: JobReport) => {
  if (report._tag !== "Ended") return report._tag === "Canceled"
  const { error, mapped_stack, result } = report.outcome
  return [error, mapped_stack, result].every(isShort)
}

/**
 * Writes what is reported about jobs: finishes, cancels or queues them again. The reports about jobs of one org at the
 * same time share their statements.
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const random = yield* SecureRandom.SecureRandom
  const usage = yield* OrgUsage
  const bytes = yield* ByteLimit.make
  const count = (orgId: string, results: ReadonlyMap<Reported, ReportResult<Written>>) => {
    for (const result of results.values()) if (Result.isSuccess(result)) usage.addBytes(orgId, result.success.bytes)
    usage.notePending(orgId)
  }
  const run =
    (orgId: string): Batches.RunTogether<Reported, ReportResult<Written>> =>
    (all) =>
      bytes
        .growing(orgId, (mayGrow) =>
          // Counted here, because a shared statement goes on without the request.
          Effect.tap(reportJobs(mayGrow, orgId, all), (results) => Effect.sync(() => count(orgId, results))),
        )
        .pipe(orUnavailable)
  const batchOf = yield* Batches.makeByOrg(
    (orgId, all: ReadonlyArray<Reported>) => Batches.orAlone(run(orgId))(all),
    maxReports,
  )

  /** Reads jobs of an org, its endpoints, and the bytes that it has left. */
  const readJobs = Effect.fnUntraced(function* (orgId: string, jobIds: ReadonlyArray<string>) {
    const endpoints = (which: Statement.Fragment) => sql`
      CASE WHEN place = 1 THEN
        ARRAY(SELECT id FROM webhook_endpoints w WHERE w.org_id = ${orgId} AND ${which} ORDER BY NOT ordered, id)
      END`
    const rows = yield* sql<Row>`
      SELECT job.*,
        ${endpoints(wantsType(sql, jobEventType("completed")))} AS completed,
        ${endpoints(wantsType(sql, jobEventType("failed")))} AS failed, ${endpoints(sql`NOT active`)} AS inactive,
        ${endpoints(sql`ordered`)} AS ordered,
        CASE WHEN place = 1 THEN
          EXISTS (SELECT FROM webhook_endpoints w WHERE w.org_id = ${orgId} AND w.filter_path IS NOT NULL)
        END AS filtered,
        CASE WHEN place = 1 THEN (SELECT ${bytes.left} FROM orgs org WHERE org.id = ${orgId}) END::float8 AS left
      FROM unnest(${texts(jobIds)}) WITH ORDINALITY AS asked (id, place) LEFT JOIN LATERAL (
        SELECT id, status, workflow, deployment_id, callback_url, callback_secret IS NOT NULL AS "hasCallbackSecret",
          skip_callbacks, attempt, attempts_before AS "attemptsBefore", lease_expires_at, max_attempts,
          retry_delay_seconds, expires_at,
          (SELECT retry FROM workflows w
            WHERE w.org_id = jobs.org_id AND w.workflow = jobs.workflow) AS "retryPolicy",
          NULL AS "finishedAttempt", retried_attempts AS "retriedAttempts", unique_key AS "uniqueKey",
          EXISTS (
            SELECT FROM job_keys k WHERE k.org_id = jobs.org_id AND k.workflow = jobs.workflow
              AND k.key = jobs.unique_key AND k.job_id <> jobs.id AND ${sql.literal(isHeld)}
          ) AS "isReplaced",
          coalesce(octet_length(error), 0) + coalesce(octet_length(mapped_stack), 0) AS bytes,
          coalesce(octet_length(attempt_log::text), 0) AS "logBytes"
        FROM jobs WHERE id = asked.id AND ${isOfOrg(sql, orgId)} LIMIT 1
      ) AS job ON true ORDER BY place`
    const [first] = rows
    const inactive = new Set(first!.inactive)
    const ordered = new Set(first!.ordered)
    const candidates = (ids: ReadonlyArray<string>) => ({
      all: ids.map((id) => ({ id, active: !inactive.has(id) })),
      // Those that send in order come first, and always with their event: a sweep could come after a later event.
      inline: Math.max(inlineReceivers, ids.filter((id) => ordered.has(id)).length),
    })
    return {
      candidates: { completed: candidates(first!.completed!), failed: candidates(first!.failed!) },
      filtered: first!.filtered!,
      left: first!.left ?? 0,
      jobs: new Map(
        rows.flatMap(({ expires_at, id, lease_expires_at, ...row }): Array<[string, ReportedJob]> => {
          const [lease, expiry] = [lease_expires_at, expires_at].map((at) => at && DateTime.fromDateUnsafe(at))
          return id === null ? [] : [[id, { ...row, lease_expires_at: lease!, expires_at: expiry! }]]
        }),
      ),
    }
  })

  /** Reads finished jobs of an org, as far as a report asks for them. */
  const readFinished = (orgId: string, jobIds: ReadonlyArray<string>) => {
    const columns = `
        id, status, attempt, attempts_before AS "attemptsBefore", NULL AS lease_expires_at, NULL AS expires_at,
        NULL AS "retryPolicy", max_attempts, retry_delay_seconds, finished_attempt AS "finishedAttempt",
        retried_attempts AS "retriedAttempts", false AS "isReplaced"`
    return jobIds.length === 0
      ? Effect.succeed(new Map<string, JobState>())
      : Effect.map(
          sql<JobState & { readonly id: string; readonly lease_expires_at: null; readonly expires_at: null }>`
            SELECT job.* FROM unnest(${texts(jobIds)}) AS asked (id)
            CROSS JOIN LATERAL ${finishedJob(sql, orgId, sql.literal("asked.id"), columns)} AS job`,
          (rows) => new Map(rows.map(({ id, ...job }): [string, JobState] => [id, job])),
        )
  }

  /**
   * Reports about jobs of one org: reads the jobs, decides and writes, each in one statement for all of them. Of two
   * reports about one job, the second is decided after the first is written. So is a report about a job that changed in
   * between.
   */
  const reportJobs = Effect.fnUntraced(function* (
    mayGrow: ByteLimit.MayGrow,
    orgId: string,
    reports: ReadonlyArray<Reported>,
  ) {
    const results = new Map<Reported, ReportResult<Written>>()
    const missed = new Set<string>()
    let open = reports
    while (open.length > 0) {
      const ofJob = new Map<string, Reported>()
      for (const one of open) if (!ofJob.has(one.end.jobId)) ofJob.set(one.end.jobId, one)
      const { candidates, filtered, jobs, left } = yield* readJobs(orgId, [...ofJob.keys()])
      // After the others, so that a job that ends in between is found.
      const unknown = [...ofJob.keys()].filter((id) => !jobs.has(id))
      const finished = yield* readFinished(orgId, unknown)
      const changes: Array<Prepared> = []
      const maxChanges = Math.ceil(maxInserted / Math.max(candidates.completed.inline, candidates.failed.inline))
      for (const [jobId, reported] of ofJob) {
        // The others follow in the next statement.
        if (changes.length === maxChanges) break
        const job = jobs.get(jobId)
        const state = job ?? finished.get(jobId)
        // A failed job that was retried between the two reads is in the first table again.
        if (state === undefined && !missed.has(jobId)) {
          missed.add(jobId)
          continue
        }
        const decision: Result.Result<JobDecision, NotFound | Conflict> =
          state === undefined ? Result.fail(jobNotFound()) : decide(state, reported.report, reported.end)
        if (Result.isFailure(decision)) results.set(reported, Result.fail(decision.failure))
        else if (decision.success._tag === "Unchanged") results.set(reported, Result.succeed(nothing))
        else {
          // A report changes no finished job.
          const change = { end: reported.end, job: job!, decision: decision.success }
          const prepared = yield* prepare(random, change, candidates)
          if (mayGrow(textBytes(change), left, prepared.bytes)) changes.push(prepared)
          else
            results.set(
              reported,
              Result.fail(yield* Effect.catchTag(bytes.refuse(orgId), "LimitReached", Effect.succeed)),
            )
        }
      }
      if (changes.length > 0) {
        const written = yield* writeReports(orgId, changes, filtered)
        for (const [jobId, done] of written) results.set(ofJob.get(jobId)!, Result.succeed(done))
      }
      open = open.filter((one) => !results.has(one))
    }
    return results
  })

  /** The table `asked`: a row for each change, in the order of the ids, which is the order of the locks. */
  const askedRows = (changes: ReadonlyArray<Prepared>) => {
    const column = <A>(of: (change: Prepared) => A) => changes.map(of)
    return sql`unnest(
            ${texts(column(({ end }) => end.jobId))}, ${texts(column(({ job }) => job.status))},
            ${integers(column(({ job }) => job.attempt))}, ${times(column(({ job }) => job.lease_expires_at))},
            ${times(column(({ job }) => job.expires_at))},
            ${texts(column(({ columns }) => columns.status))}, ${texts(column(({ columns }) => columns.result))},
            ${texts(column(({ columns }) => columns.error))}, ${texts(column(({ columns }) => columns.mapped_stack))},
            ${times(column(({ columns }) => columns.runAt))},
            ${integers(column(({ columns }) => columns.finishedAttempt))},
            ${texts(column(({ columns }) => `{${columns.retriedAttempts.join()}}`))},
            ${texts(column(({ decision, end }) => (decision._tag === "Retry" ? null : end.endId)))},
            ${texts(column(({ event }) => event?.type ?? null))}, ${texts(column(({ event }) => event?.body ?? null))}
          ) AS asked (id, was_status, was_attempt, was_lease, was_expiry, status, result, error, mapped_stack, run_at,
            finished_attempt, retried_attempts, end_id, type, body)`
  }

  /** The table `wanted`: a row for each delivery. */
  const wantedRows = (changes: ReadonlyArray<Prepared>) => {
    const all = changes.flatMap(({ event }) => event?.deliveries.map((one) => ({ ...one, eventId: event.id })) ?? [])
    const table = sql`unnest(
            ${texts(all.map(({ id }) => id))}, ${texts(all.map(({ eventId }) => eventId))},
            ${texts(all.map(({ endpointId }) => endpointId))}, ${texts(all.map(({ state }) => state))},
            ${texts(all.map(({ lane }) => lane))}
          ) AS wanted (id, event_id, endpoint, state, callback_lane)`
    const endpoints = texts(new Set(all.flatMap(({ endpointId }) => (endpointId === null ? [] : [endpointId]))))
    return { table, endpoints, count: all.length }
  }

  /** The INSERT of the sweeps of events with more receivers. */
  const insertSweeps = (orgId: string, changes: ReadonlyArray<Prepared>, now: DateTime.Utc) => {
    const swept = changes.flatMap(({ event }) => (event === undefined || event.others.length === 0 ? [] : [event]))
    // The jobs of an org with the same outcome have the same endpoints.
    const others = (type: string) => texts(swept.find((event) => event.type === type)?.others ?? [])
    return sql`
      INSERT INTO sweeps (id, org_id, kind, event_id, receivers, created_at)
      SELECT swept.id, ${orgId}, 'deliver', event.id,
        CASE event.type WHEN 'job.failed' THEN ${others("job.failed")} ELSE ${others("job.completed")} END,
        ${date(now)}
      FROM unnest(${texts(swept.map(({ sweepId }) => sweepId))}, ${texts(swept.map(({ id }) => id))})
        AS swept (id, event_id)
      JOIN event ON event.id = swept.event_id`
  }

  /** The CTE `receivers`: those of `possible` whose filter is true of the event. */
  const passing = sql`
    content AS MATERIALIZED (
      SELECT end_id AS id, event_json(body) AS json FROM asked
      WHERE EXISTS (SELECT FROM possible WHERE filter_path IS NOT NULL)
    ), receivers AS MATERIALIZED (
      SELECT r.* FROM possible r LEFT JOIN content c ON c.id = r.event_id
      WHERE ${passesFilter(sql, "r.filter_path", "c.json")}
    )`

  /**
   * Writes the changes of jobs of one org, each with its event and its deliveries, in one statement. Does not write a
   * change whose job has changed since it was read; writes nothing when an endpoint that receives an event was deleted
   * or deactivated since. Returns what was written, by the job's id.
   */
  const writeReports = Effect.fnUntraced(function* (
    orgId: string,
    changes: ReadonlyArray<Prepared>,
    filtered: boolean,
  ) {
    const prepared = changes.toSorted((a, b) => (a.end.jobId < b.end.jobId ? -1 : 1))
    // The newest report: a job must not end before its claim.
    const { now } = changes.at(-1)!.end
    const at = date(now)
    const ids = texts(prepared.map(({ end }) => end.jobId))
    const wanted = wantedRows(prepared)
    const [kept, outcome] = [sql.literal(keptColumns), sql.literal(outcomeColumns)]
    const isUnchanged = sql`
      jobs.id = ANY(${ids}) AND jobs.id = asked.id AND ${isOfOrg(sql, orgId, "jobs.org_id")}
      AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt
      AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease
      AND date_trunc('milliseconds', jobs.expires_at) IS NOT DISTINCT FROM asked.was_expiry
      AND (SELECT count(*) FROM ${filtered ? sql`possible` : sql`receivers`}) = ${wanted.count}::int`
    const retries = changes.filter(({ decision }) => decision._tag === "Retry")
    const hasRetry = retries.length > 0
    const isKeyed = retries.some(({ job }) => job.uniqueKey !== null)
    // The job before its key: the order in which expired leases lock them, too.
    const held = sql`
      returning_jobs AS MATERIALIZED (
        SELECT jobs.id, jobs.org_id, jobs.workflow, jobs.unique_key FROM jobs, asked
        WHERE asked.end_id IS NULL AND ${isUnchanged} ORDER BY jobs.id FOR UPDATE OF jobs
      ), ${keptKeys(sql, "returning_jobs")},`
    const retried = sql`
      ${isKeyed ? held : sql``} retried AS (
        UPDATE jobs SET status = 'queued', error = asked.error, mapped_stack = asked.mapped_stack,
          lease_expires_at = NULL,
          updated_at = ${at}, run_at = asked.run_at, delayed = true, retried_attempts = asked.retried_attempts::int[],
          attempt_log = ${loggedAttempt(sql, "jobs", sql`asked.error`, sql`${at}::timestamptz`)}
        FROM asked WHERE asked.end_id IS NULL AND ${isUnchanged} AND ${isKeyed ? keepsKey(sql, "jobs") : sql`true`}
        RETURNING jobs.id, octet_length(attempt_log::text) AS "logBytes"
      )`
    // Counted only where a filter can make them fewer.
    const made = filtered ? sql`(SELECT count(*) FROM made WHERE event_id = end_id)::int` : sql`NULL::int`
    const written = yield* sql<{
      id: string
      logBytes: number | null
      made: number | null
      heads: ReadonlyArray<LaneHead> | null
    }>`
        WITH endpoints AS (
          -- A shared lock: other events may hold it too, but nobody can deactivate an endpoint before its delivery is
          -- inserted.
          SELECT id, active, lane, filter_path FROM webhook_endpoints
          WHERE org_id = ${orgId} AND id = ANY(${wanted.endpoints}) ORDER BY id FOR SHARE
        ), wanted AS (
          SELECT * FROM ${wanted.table}
        ), ${filtered ? sql`possible` : sql`receivers`} AS MATERIALIZED (
          SELECT r.id, r.event_id, r.endpoint, r.state, coalesce(w.lane, r.callback_lane) AS lane, w.filter_path
          FROM wanted r LEFT JOIN endpoints w ON w.id = r.endpoint AND (w.active OR r.state = 'skipped')
          WHERE w.id IS NOT NULL OR r.endpoint IS NULL
        ), asked AS (
          SELECT * FROM ${askedRows(prepared)}
        ), ${filtered ? sql`${passing},` : sql``} ended AS (
          DELETE FROM jobs USING asked WHERE asked.end_id IS NOT NULL AND ${isUnchanged}
          RETURNING jobs.id, asked.end_id, jobs.run_at, ${kept}, callback_secret, callback_secret_owner,
            asked.status, asked.finished_attempt, asked.retried_attempts::int[] AS retried_attempts, asked.result,
              asked.error, asked.mapped_stack,
            asked.type, asked.body
        ), finished AS (
          INSERT INTO finished_jobs (id, end_id, org_id, run_at, ${kept}, ${outcome}, finished_at)
          SELECT id, end_id, ${orgId}, run_at, ${kept}, ${outcome}, ${at} FROM ended
        ), ${hasRetry ? sql`${retried},` : sql``} event AS (
          INSERT INTO events (id, org_id, job_id, type, body, callback_url, callback_secret, callback_secret_owner,
            created_at)
          SELECT end_id, ${orgId}, id, type, body, callback_url, callback_secret, callback_secret_owner, ${at}
          FROM ended WHERE type IS NOT NULL
          RETURNING id, job_id, type, octet_length(body) AS bytes
        ), ${insertDeliveries(sql, orgId, now, false)},
        sweep AS (${insertSweeps(orgId, prepared, now)})
        SELECT id, "logBytes", ${made} AS made, ${laneHeads(sql, "places")} AS heads FROM (
          SELECT id, end_id, NULL::int AS "logBytes" FROM ended
          ${hasRetry ? sql`UNION ALL SELECT id, NULL, "logBytes" FROM retried` : sql``}
        ) AS changed`
    yield* sql.afterCommit(
      Effect.sync(() => {
        const positions = queuePositions(sql)
        positions.backlogged(written[0]?.heads ?? null)
        positions.queued(now.epochMilliseconds)
      }),
    )
    const ofJob = new Map(prepared.map((change) => [change.end.jobId, change]))
    return new Map(
      written.map(({ id, logBytes, made }): [string, Written] => {
        const { bytes: others, decision, event, job } = ofJob.get(id)!
        const filteredOut = made === null || event === undefined ? 0 : event.deliveries.length - made
        const bytes = others - filteredOut * rowCost.delivery + (logBytes === null ? 0 : logBytes - job.logBytes)
        return [id, { bytes, status: statusAfter(decision), hasSweep: event !== undefined && event.others.length > 0 }]
      }),
    )
  })

  return {
    report: (end: JobEnd, report: JobReport) => {
      const { orgId } = end
      const reported = { end, report }
      const result = isShared(report)
        ? Batches.inBatch(sql, run(orgId), batchOf(orgId), reported)
        : Effect.map(run(orgId)([reported]), (found) => found.get(reported))
      return Effect.flatMap(result, (written) => Effect.fromResult(written!))
    },

    reportAll: (orgId: string, reports: ReadonlyArray<Reported>) =>
      Effect.map(
        Effect.forEach(Arr.chunksOf(reports, maxReportsOfBatch), (some) => Effect.uninterruptible(run(orgId)(some))),
        (found) => {
          const results = new Map(found.flatMap((some) => [...some]))
          return reports.map((reported) => results.get(reported)!)
        },
      ),
  }
})

/** A report about a job. */
interface Reported {
  readonly end: JobEnd
  readonly report: JobReport
}

interface Row extends Omit<ReportedJob, "lease_expires_at" | "expires_at"> {
  /** `null`: there is no such job. */
  readonly id: string | null
  readonly lease_expires_at: Date | null
  readonly expires_at: Date | null
  /**
   * In the first row: the ids of the org's endpoints that want job.completed, that want job.failed, and the inactive
   * ones.
   */
  readonly completed: ReadonlyArray<string> | null
  readonly failed: ReadonlyArray<string> | null
  readonly inactive: ReadonlyArray<string> | null
  /** In the first row: the org's endpoints that send in order. */
  readonly ordered: ReadonlyArray<string> | null
  /** In the first row: whether an endpoint of the org has a filter. */
  readonly filtered: boolean | null
  /** In the first row: the bytes that the org has left. */
  readonly left: number | null
}

/**
 * SQL: the finished job with an id, as a subquery. It is in one of the partitions from the time of the id on, and
 * mostly in the first: they are read in their order until it is found.
 *
 * @param id SQL: the id
 */
export const finishedJob = (sql: Sql, orgId: string, id: Statement.Fragment, columns: string) => sql`
  (SELECT ${sql.literal(columns)} FROM finished_jobs
   WHERE id = ${id} AND end_id >= left(${id}, 10) AND ${isOfOrg(sql, orgId)} ORDER BY end_id LIMIT 1)`

/**
 * SQL: the log of a job with its running attempt, which ends now.
 *
 * @param table the table, or the row, that has the job
 */
export const loggedAttempt = (sql: Sql, table: string, error: Statement.Fragment, endedAt: Statement.Fragment) => {
  const column = (name: string) => sql.literal(`${table}.${name}`)
  const log = column("attempt_log")
  return sql`
    coalesce(
      CASE WHEN jsonb_array_length(${log}) >= ${sql.literal(`${maxLoggedAttempts}`)} THEN ${log} - 0 ELSE ${log} END, '[]'
    ) || jsonb_build_object(
      'attempt', ${column("attempt")}, 'note', ${column("note")},
      'ended_at', to_char(${endedAt} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'error', left(${error}, ${sql.literal(`${maxLoggedError}`)})
    )`
}

/** SQL: whether the job of a unique key `k` is unfinished. */
const isHeld = `(SELECT true FROM jobs held WHERE held.id = k.job_id AND held.org_id || '' = k.org_id LIMIT 1) IS NOT NULL`

/**
 * The CTE `keys`: which jobs of a CTE (id, org_id, workflow, unique_key) have their unique keys, or take them from
 * finished ones. It locks the keys and gives them another version, so that a creation that has read a key before reads
 * it again. Whether the job of a key is finished is known as long as the key has the version of the snapshot.
 */
export const keptKeys = (sql: Sql, jobs: string) =>
  sql.literal(`
    keys AS (
      INSERT INTO job_keys (org_id, workflow, key, job_id)
      SELECT DISTINCT ON (org_id, workflow, unique_key) org_id, workflow, unique_key, id FROM ${jobs}
      WHERE unique_key IS NOT NULL ORDER BY org_id, workflow, unique_key, id DESC
      ON CONFLICT (org_id, workflow, key) DO UPDATE SET job_id = CASE WHEN EXISTS (
        SELECT FROM job_keys k WHERE k.org_id = excluded.org_id AND k.workflow = excluded.workflow AND k.key = excluded.key
          AND k.xmin = job_keys.xmin AND NOT ${isHeld}
      ) THEN excluded.job_id ELSE job_keys.job_id END RETURNING job_id
    )`)

/** SQL: whether a job may be queued again: no newer unfinished job has its unique key. Reads the CTE `keys`. */
export const keepsKey = (sql: Sql, job: string) =>
  sql.literal(`(${job}.unique_key IS NULL OR ${job}.id IN (SELECT job_id FROM keys))`)

const nothing: Written = { bytes: 0, hasSweep: false, status: null }

type Sql = SqlClient.SqlClient
type Random = SecureRandom.SecureRandom["Service"]

/** A job as a report finds it. */
interface ReportedJob extends JobState {
  readonly workflow: string
  readonly deployment_id: string | null
  readonly callback_url: string | null
  readonly hasCallbackSecret: boolean
  readonly skip_callbacks: boolean
  readonly uniqueKey: string | null
  /** The stored bytes of its error and stack, from an attempt that failed before. */
  readonly bytes: number
  /** The stored bytes of the log of its attempts. */
  readonly logBytes: number
}

/** A decision that changes a job. */
interface Change {
  readonly end: JobEnd
  readonly job: ReportedJob
  readonly decision: Exclude<JobDecision, { readonly _tag: "Unchanged" }>
}

/** What became of a change. */
interface Written extends ReportedChange {
  /** How many more bytes are stored. */
  readonly bytes: number
}

/** The endpoints that want the event of a job with each outcome, and how many of them get it with the event. */
type Candidates = Readonly<
  Record<JobOutcome["status"], { readonly all: ReadonlyArray<Candidate>; readonly inline: number }>
>

/** The event of a finished job, with its deliveries. */
const makeEvent = Effect.fnUntraced(function* (random: Random, { decision, end, job }: Change, candidates: Candidates) {
  if (decision._tag !== "Finish") return undefined
  const { outcome } = decision
  const { deployment_id, workflow } = job
  const { all, inline } = candidates[outcome.status]
  const to = receivers(job, all)
  const id = end.endId
  const lane = job.callback_url === null ? null : callbackLane(end.orgId, job.callback_url)
  const deliveries = to.slice(0, inline).map(({ endpointId, state }, n) => {
    return { id: deliveryIdOf(id, n), endpointId, state, lane: endpointId === null ? lane : null }
  })
  return {
    id,
    type: jobEventType(outcome.status),
    body: jobEventBody({ job_id: end.jobId, workflow, deployment_id, ...outcome }, end.nonce),
    deliveries,
    sweepId: yield* random.ulid,
    /** The endpoints whose deliveries a sweep inserts. */
    others: to
      .slice(inline)
      .map(({ endpointId }) => endpointId!)
      .toSorted(),
  }
})

/** The columns that a change sets. */
const columnsOf = ({ decision, job }: Change) => {
  const { retriedAttempts } = job
  const empty = { result: null, error: null, mapped_stack: null, runAt: null, finishedAttempt: null, retriedAttempts }
  switch (decision._tag) {
    case "Cancel":
      return { ...empty, status: "canceled" }
    case "Retry": {
      const { error, mapped_stack } = decision.outcome
      const failed = { error, mapped_stack: toJsonText(mapped_stack), runAt: decision.runAt }
      return { ...empty, ...failed, status: "queued", retriedAttempts: withRetried(job) }
    }
    case "Finish": {
      const { error, mapped_stack, result, status } = decision.outcome
      const outcome = { status, result: toJsonText(result), error, mapped_stack: toJsonText(mapped_stack) }
      return { ...empty, ...outcome, finishedAttempt: decision.by }
    }
  }
}

/** How many more bytes the texts of a job have after a change. */
const textBytes = (change: Change) => {
  const { error, mapped_stack, result } = columnsOf(change)
  return byteLength(result, error, mapped_stack) - change.job.bytes
}

/** The columns that a finished job keeps, and those of its outcome. */
const keptColumns = `workflow, input, deployment_id, callback_url, skip_callbacks, idempotency_key, unique_key,
  concurrency_key, priority, max_attempts, retry_delay_seconds, attempt, progress, note, attempts_before, attempt_log,
  lines, steps, created_at`
const outcomeColumns = "status, finished_attempt, retried_attempts, result, error, mapped_stack"

/** A change with everything that is written. */
const prepare = Effect.fnUntraced(function* (random: Random, change: Change, candidates: Candidates) {
  const columns = columnsOf(change)
  const event = yield* makeEvent(random, change, candidates)
  const eventBytes =
    event === undefined ? 0 : rowCost.event + byteLength(event.body) + event.deliveries.length * rowCost.delivery
  return { ...change, columns, event, bytes: textBytes(change) + eventBytes }
})
type Prepared = Effect.Success<ReturnType<typeof prepare>>
