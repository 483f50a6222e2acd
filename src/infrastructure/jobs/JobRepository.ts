import { Clock, type DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Page } from "../../domain/Page.ts"
import { ClaimedJob, Job, JobStatus } from "../../domain/jobs/Job.ts"
import { type JobState, refusedHeartbeat } from "../../domain/jobs/JobEnd.ts"
import { type Heartbeat, jobNotFound, JobRepository } from "../../domain/jobs/JobRepository.ts"
import type { DelayedBatch, ExhaustedJob, LeaseBatch } from "../../domain/jobs/Leases.ts"
import {
  date,
  decodePage,
  decodeRows,
  integers,
  isOfOrg,
  JsonText,
  pageOf,
  texts,
  Time,
  withinBytes,
} from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { makeWalk, pickDue } from "../orgs/pickDue.ts"
import * as InsertJob from "./createJobs.ts"
import * as ReportJob from "./finishJobs.ts"
import { type JobLook, jobPositions, type JobReads, type QueuedJob } from "./jobPositions.ts"

const Row = Schema.Struct({
  ...Job.fields,
  input: JsonText,
  result: JsonText,
  mapped_stack: JsonText,
  run_at: Schema.NullOr(Time),
  lease_expires_at: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
  finished_at: Schema.NullOr(Time),
})

const decode = decodeRows(Row)
const decodeList = decodePage(Row)

/** Jobs in PostgreSQL. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const insert = yield* InsertJob.make
    const report = yield* ReportJob.make
    const scope = yield* Effect.scope
    const nowMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)
    const positions = jobPositions(sql)
    const [leases, delays] = [yield* makeWalk, yield* makeWalk]

    const remember = <A extends { readonly again: ReadonlyArray<QueuedJob> }>({ again, ...found }: A) => {
      positions.queued(again)
      return found
    }

    const look = Effect.fnUntraced(function* (orgId: string, workflow: string | null) {
      const found = yield* lookAtQueue(sql, orgId, workflow).pipe(
        orUnavailableWithin("sweep"),
        Effect.catch(({ error }) => Effect.as(Effect.logDebug(`A queue of jobs is not read: ${error}`), undefined)),
      )
      positions.looked(orgId, workflow, found, yield* nowMillis)
    })
    const claimNext = Effect.fnUntraced(function* (orgId: string, claim: JobClaim) {
      const workflows = claim.workflows ?? [null]
      const begun = yield* nowMillis
      const jobs = yield* claimJobs(sql, orgId, claim, positions.reads(orgId, workflows))
      const found = jobs.map(({ job_id, priority, workflow }) => ({ id: job_id, priority, workflow }))
      const ended = yield* nowMillis
      for (const workflow of positions.claimed(orgId, workflows, found, ended - begun, ended)) {
        yield* Effect.forkIn(look(orgId, workflow), scope)
      }
      return jobs.map((job): ClaimedJob => {
        const { priority: _, ...claimed } = job
        return claimed
      })
    })

    return JobRepository.of({
      insert,
      claim: (orgId, claim) => orUnavailable(claimNext(orgId, claim)),
      release: (orgId, jobs, now) =>
        releaseJobs(sql, orgId, jobs, now).pipe(Effect.map(positions.queued), orUnavailable),
      extendLease: (orgId, jobId, heartbeat) => orUnavailable(extendLease(sql, orgId, jobId, heartbeat)),
      expireLeases: (batch) =>
        leases(
          batch,
          (since) => expireLeases(sql, batch, since),
          ({ exhausted }) => exhausted.length > 0,
        ).pipe(Effect.map(remember), orUnavailableWithin("sweep")),
      queueDelayed: (batch) =>
        delays(batch, (since) => queueDelayed(sql, batch, since)).pipe(
          Effect.map(remember),
          orUnavailableWithin("sweep"),
        ),
      ...report,

      find: (orgId, jobId) =>
        findJob(sql, orgId, jobId).pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job))),
        ),

      list: (orgId, filter, page) => listJobs(sql, orgId, filter, page).pipe(decodeList, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

type JobFilter = Parameters<JobRepository["Service"]["list"]>[1]

/** The columns of a job in one of its tables. */
const columnsIn = (table: "jobs" | "finished_jobs") => {
  const [lease, result, updated] =
    table === "jobs"
      ? ["lease_expires_at", "NULL", "updated_at, NULL::timestamptz"]
      : ["NULL::timestamptz", "result", "finished_at AS updated_at, finished_at"]
  return `
    id AS job_id, workflow, status, input, deployment_id, callback_url, skip_callbacks, priority, max_attempts,
    retry_delay_seconds, run_at, attempt, progress, note, ${lease} AS lease_expires_at, ${result} AS result, error, mapped_stack,
    created_at, ${updated} AS finished_at`
}

/** Reads a job, wherever it is. */
const findJob = (sql: SqlClient.SqlClient, orgId: string, jobId: string) => sql`
  SELECT ${sql.literal(columnsIn("jobs"))} FROM jobs WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)}
  UNION ALL ${ReportJob.finishedJob(sql, orgId, sql`${jobId}`, columnsIn("finished_jobs"))} LIMIT 1`

/** The columns whose length counts towards the bytes of a page. */
const sizedColumns = ["workflow", "input", "deployment_id", "callback_url", "note", "result", "error", "mapped_stack"]

/** The statement of a list of jobs, newest first. */
const listJobs = (sql: SqlClient.SqlClient, orgId: string, { status, workflow }: JobFilter, page: Page) => {
  // Of a workflow, by expressions that only its index has.
  const [asked, id] =
    workflow === undefined
      ? [sql`org_id = ${orgId}`, sql`id`]
      : [sql`org_id || workflow = ${orgId + workflow} AND ${isOfOrg(sql, orgId)}`, sql`id || ''`]
  const after = page.cursor === undefined ? sql`true` : sql`${id} < ${page.cursor}`
  // The newest jobs of each status, which are one range of an index of each partition, and the newest of those.
  const heads = (status === undefined ? JobStatus.literals : [status]).map((one) => {
    const table = one === "queued" || one === "running" ? "jobs" : "finished_jobs"
    return sql`(
      SELECT ${sql.literal(columnsIn(table))} FROM ${sql(table)}
      WHERE ${asked} AND ${after} AND status = ${one} ORDER BY ${id} DESC LIMIT ${page.limit + 1})`
  })
  const select = sql`SELECT * FROM (${sql.join(" UNION ALL ", false)(heads)}) AS heads`
  return pageOf(sql, page, select, "job_id", sizedColumns, "newest")
}

interface QueuedRow {
  readonly moved: number
  readonly orgs: ReadonlyArray<string>
  readonly next: string | null
  /** The jobs that claims may take now, if claims begin at positions. */
  readonly again: ReadonlyArray<QueuedJob>
}

/** SQL: the picked jobs as `QueuedJob`s in JSON; none while claims read from the beginning. */
const queuedAgain = (sql: SqlClient.SqlClient, where: string) => sql`(
  SELECT coalesce(json_agg(json_build_object('orgId', org_id, 'workflow', workflow, 'priority', priority, 'id', id)), '[]')
  FROM picked WHERE ${sql.literal(where)} AND ${jobPositions(sql).isUsed()}::boolean
)`

const delayedJobs = {
  table: "jobs",
  time: "run_at",
  byTime: "status || '' = 'queued' AND delayed",
  byOrg: "status = 'queued' AND delayed",
}

/** One batch of a sweep: opens delayed jobs whose time to run has come to claims. */
const queueDelayed = (sql: SqlClient.SqlClient, batch: DelayedBatch, since: DateTime.Utc | null) => {
  const { next, picked } = pickDue(sql, delayedJobs, "id, org_id, workflow, priority", batch, since)
  return sql<QueuedRow>`
    ${picked}, opened AS (
      UPDATE jobs SET delayed = false, updated_at = ${date(batch.now)} WHERE id = ANY(ARRAY(SELECT id FROM picked))
    )
    SELECT (SELECT count(*)::int FROM picked) AS moved, ${next} AS next, ${queuedAgain(sql, "true")} AS again,
      (SELECT coalesce(json_agg(DISTINCT org_id), '[]') FROM picked) AS orgs`.pipe(Effect.map(([row]) => row!))
}

interface ExpiredRow {
  readonly picked: number
  readonly exhausted: ReadonlyArray<ExhaustedJob>
  readonly next: string | null
  readonly again: ReadonlyArray<QueuedJob>
}

const runningJobs = {
  table: "jobs",
  time: "lease_expires_at",
  byTime: "status || '' = 'running'",
  byOrg: "status = 'running'",
}

/** One batch of a sweep: queues the jobs that have attempts left, and returns the others. */
const expireLeases = (sql: SqlClient.SqlClient, batch: LeaseBatch, since: DateTime.Utc | null) => {
  const { now } = batch
  const columns = "id, org_id, workflow, priority, attempt, max_attempts"
  const { next, picked } = pickDue(sql, runningJobs, columns, batch, since)
  return sql<ExpiredRow>`
    ${picked}, queued AS (
      UPDATE jobs SET status = 'queued', lease_expires_at = NULL, updated_at = ${date(now)}
      WHERE id = ANY(ARRAY(SELECT id FROM picked WHERE attempt < max_attempts))
    )
    SELECT (SELECT count(*)::int FROM picked) AS picked, ${next} AS next,
      ${queuedAgain(sql, "attempt < max_attempts")} AS again,
      (SELECT coalesce(json_agg(json_build_object('orgId', org_id, 'jobId', id)), '[]') FROM picked
       WHERE attempt >= max_attempts) AS exhausted`.pipe(
    Effect.map(([row]) => ({
      queued: row!.picked - row!.exhausted.length,
      exhausted: row!.exhausted,
      next: row!.next,
      again: row!.again,
    })),
  )
}

type JobClaim = Parameters<JobRepository["Service"]["claim"]>[1]
type Claimed = Pick<ClaimedJob, "job_id" | "attempt">

const decodeClaims = decodeRows(
  Schema.Struct({
    ...ClaimedJob.fields,
    input: JsonText,
    lease_expires_at: Time,
    priority: Schema.Int,
  }),
)

/** Jobs of several workflows that a claim considers beyond its limit, because other claims may hold the first. */
const spareCandidates = 32

/** SQL: the next jobs of the queue, in its order. Locks them and skips those that others have locked. */
const nextJobs = (
  sql: SqlClient.SqlClient,
  orgId: string,
  { workflows, limit }: JobClaim,
  reads: JobReads | undefined,
) => {
  const columns = sql.literal("id, input, priority")
  // An org that was deleted meanwhile has no jobs, though a sweep may not have removed them.
  const orgExists = sql`EXISTS (SELECT FROM orgs WHERE id = ${orgId})`
  // The indexes of the queue have the org in this form, and no others do: a plan that expects few queued jobs would
  // otherwise read all of them by their status, and sort them.
  const queued = sql`${isOfOrg(sql, orgId)} AND status = 'queued' AND NOT delayed AND ${orgExists}`
  const candidates = limit + spareCandidates
  if (reads !== undefined) {
    // The heads of each workflow and priority from their positions on, the highest priority first, and the jobs before
    // them.
    const ofQueue = workflows === undefined ? sql`priority >= -100` : sql`workflow = asked.workflow AND attempt >= 0`
    return sql`
      SELECT job.* FROM (
        SELECT id FROM (
          (SELECT head.id, head.priority FROM unnest(
            ${texts(reads.heads.map((head) => head.workflow))}, ${integers(reads.heads.map((head) => head.priority))},
            ${texts(reads.heads.map((head) => head.since))}
          ) AS asked (workflow, priority, since) CROSS JOIN LATERAL (
            SELECT id, priority FROM jobs
            WHERE ${queued} AND ${ofQueue} AND priority = asked.priority AND id >= asked.since
            ORDER BY id LIMIT ${candidates}
          ) AS head LIMIT ${candidates * (workflows?.length ?? 1)})
          UNION
          -- Apart: a plan for few queued jobs would read all of them by their status.
          SELECT id, priority FROM unnest(${texts(reads.left)}) AS asked (left_id) CROSS JOIN LATERAL (
            SELECT * FROM jobs WHERE id = asked.left_id LIMIT 1
          ) AS job WHERE ${queued}
        ) AS heads ORDER BY priority DESC, id LIMIT ${candidates}
      ) AS candidate CROSS JOIN LATERAL (
        SELECT ${columns} FROM jobs WHERE id = candidate.id AND ${queued} FOR UPDATE SKIP LOCKED
      ) AS job LIMIT ${limit}`
  }
  const [workflow, ...others] = workflows ?? []
  if (workflow === undefined || others.length === 0) {
    // The last condition is true of every job: it allows only the index in the order of the claim.
    const ofQueue = workflow === undefined ? sql`priority >= -100` : sql`workflow = ${workflow} AND attempt >= 0`
    return sql`
      SELECT ${columns} FROM jobs WHERE ${queued} AND ${ofQueue}
      ORDER BY priority DESC, id LIMIT ${limit} FOR UPDATE SKIP LOCKED`
  }
  // The heads of each workflow, each one range of the index. Only jobs that are claimed are locked, in the order of the
  // queue.
  return sql`
    SELECT job.* FROM (
      SELECT head.id FROM unnest(${texts(workflows!)}) AS asked (workflow) CROSS JOIN LATERAL (
        SELECT id, priority FROM jobs WHERE ${queued} AND workflow = asked.workflow AND attempt >= 0
        ORDER BY priority DESC, id LIMIT ${candidates}
      ) AS head ORDER BY head.priority DESC, head.id LIMIT ${candidates}
    ) AS candidate CROSS JOIN LATERAL (
      SELECT ${columns} FROM jobs WHERE id = candidate.id AND ${queued} FOR UPDATE SKIP LOCKED
    ) AS job LIMIT ${limit}`
}

/** Claims the next queued jobs, up to the limit and the bytes of a page. */
const claimJobs = (sql: SqlClient.SqlClient, orgId: string, claim: JobClaim, reads: JobReads | undefined) =>
  sql`
    -- Materialized: a plan that runs the subquery again for each row would take more than the limit.
    WITH queued AS MATERIALIZED (${nextJobs(sql, orgId, claim, reads)}), placed AS (
      SELECT id, input, (row_number() OVER (ORDER BY priority DESC, id))::int AS place FROM queued
    ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT id, input, place FROM placed`, "place", ["input"])})
    UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(claim.leaseUntil)},
      updated_at = ${date(claim.now)}, progress = NULL, note = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM picked)) AND ${isOfOrg(sql, orgId)}
    RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at, priority`.pipe(
    decodeClaims,
    // RETURNING keeps no order.
    Effect.map((jobs) => jobs.toSorted((a, b) => b.priority - a.priority || (a.job_id < b.job_id ? -1 : 1))),
  )

/** Jobs of each priority whose ids a look returns. */
const maxLookedJobs = 100

/**
 * Looks for the first jobs of a queue, with each priority. Reads the queue from its beginning, as claims without a
 * position do.
 */
const lookAtQueue = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, workflow: string | null) {
  const at = yield* Clock.currentTimeMillis
  const ofQueue = workflow === null ? sql`priority >= -100` : sql`workflow = ${workflow} AND attempt >= 0`
  const queued = sql`${isOfOrg(sql, orgId)} AND status = 'queued' AND NOT delayed AND ${ofQueue}`
  const [row] = yield* sql<{ heads: JobLook["heads"] | null; took: number }>`
    WITH RECURSIVE priorities AS (
      SELECT 101 AS priority
      UNION ALL
      SELECT next.priority FROM priorities AS before CROSS JOIN LATERAL (
        SELECT priority::int FROM jobs WHERE ${queued} AND priority < before.priority
        ORDER BY jobs.priority DESC, id LIMIT 1
      ) AS next
    ), found AS MATERIALIZED (
      SELECT json_agg(json_build_array(p.priority, ARRAY(
        SELECT id FROM jobs WHERE ${queued} AND priority = p.priority ORDER BY id LIMIT ${maxLookedJobs}
      ))) AS heads FROM priorities p WHERE p.priority <= 100
    )
    SELECT found.*, (1000 * extract(epoch FROM clock_timestamp() - now()))::float8 AS took FROM found`
  return { at, heads: row!.heads ?? [], tookMillis: row!.took }
})

/** Queues claimed jobs again as if they had not been claimed. Skips jobs that were finished or claimed again since. */
const releaseJobs = (sql: SqlClient.SqlClient, orgId: string, jobs: ReadonlyArray<Claimed>, now: DateTime.Utc) => {
  const ids = texts(jobs.map((job) => job.job_id))
  // An array in place of a join, and the status as a parameter: a plan must not read all running jobs.
  return sql<QueuedJob>`
    UPDATE jobs SET status = 'queued', attempt = attempt - 1, lease_expires_at = NULL, updated_at = ${date(now)}
    WHERE id = ANY(${ids}) AND ${isOfOrg(sql, orgId)} AND status = ${"running"} AND attempt = (
      SELECT claimed.attempt FROM unnest(${ids}, ${integers(jobs.map((job) => job.attempt))}) AS claimed (id, attempt)
      WHERE claimed.id = jobs.id)
    RETURNING org_id AS "orgId", workflow, priority, id`
}

/** Extends the lease of a running job. Fails with a `Conflict` when the job, or the attempt, is not running. */
const extendLease = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  jobId: string,
  { attempt, leaseUntil, note, now, progress }: Heartbeat,
) {
  // The status is a parameter, which fits no partial index: a plan must not read all running jobs.
  const extended = yield* sql`
    UPDATE jobs SET lease_expires_at = ${date(leaseUntil)}, updated_at = ${date(now)},
      progress = coalesce(${progress ?? null}::double precision, progress), note = coalesce(${note ?? null}, note)
    WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)} AND status = ${"running"} AND attempt = coalesce(${attempt ?? null}::int, attempt)
    RETURNING id`
  if (extended.length > 0) return
  const [job] = yield* sql<Pick<JobState, "attempt" | "status">>`
    SELECT status, attempt FROM (${findJob(sql, orgId, jobId)}) AS job`
  return yield* job === undefined ? jobNotFound() : refusedHeartbeat(job, attempt)
})
