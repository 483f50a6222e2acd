import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import { ClaimedJob, Job, JobStatus } from "../../domain/jobs/Job.ts"
import { isUnfinishedAndExpired, isUnfinished, leaseExpired, notRunning } from "../../domain/jobs/JobEnd.ts"
import type { JobEnd, JobOutcome } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound, JobRepository } from "../../domain/jobs/JobRepository.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { integers, texts } from "../database/arrays.ts"
import { expireLeases } from "./expireLeases.ts"
import { finishJob } from "./finishJob.ts"
import {
  afterCursor,
  date,
  decodePage,
  decodeRows,
  JsonText,
  pageOf,
  toJsonText,
  Time,
  withinBytes,
} from "../database/fragments.ts"
import { insertJobs, templateValues } from "./insertJobs.ts"
import * as Limited from "../orgs/limited.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

const Row = Schema.Struct({
  ...Job.fields,
  input: JsonText,
  result: JsonText,
  mapped_stack: JsonText,
  lease_expires_at: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
  finished_at: Schema.NullOr(Time),
})
const decode = decodeRows(Row)
const decodeList = decodePage(Row)
/** What counts to a page's bytes. */
const sized = ["workflow", "input", "deployment_id", "callback_url", "result", "error", "mapped_stack"]
const ClaimedRow = Schema.Struct({
  ...ClaimedJob.fields,
  input: JsonText,
  lease_expires_at: Time,
})
const decodeClaimed = decodeRows(ClaimedRow)

/** Jobs in PostgreSQL. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const limit = yield* Limited.make("unfinishedJobs")
    const bytes = yield* StoredBytes.make
    const columns = sql.literal(`
      id AS job_id, workflow, status, input, deployment_id, callback_url, skip_callbacks, attempt, lease_expires_at,
      result, error, mapped_stack, created_at, updated_at, finished_at`)

    const finish = (end: JobEnd, outcome: JobOutcome, isOpen: Parameters<typeof finishJob>[4]) =>
      finishJob(sql, random, end, outcome, isOpen).pipe(
        orUnavailable,
        Effect.map(({ bytes, hasMore }) => {
          usage.addBytes(end.orgId, bytes)
          usage.notePending(end.orgId)
          return hasMore
        }),
      )

    return JobRepository.of({
      insert: (job) => {
        const { jobId, orgId, idempotencyKey } = job
        const input = toJsonText(job.input)
        const size = StoredBytes.byteLength(input)
        const insert = (room: boolean) =>
          Effect.gen(function* () {
            const row = sql`
              SELECT ${jobId}, org.id, ${idempotencyKey}, ${jobId}, ${templateValues(sql, job, input)}
              FROM orgs org
              WHERE org.id = ${orgId} AND ${limit.guard(sql`${room}::boolean`)} AND ${bytes.fits(orgId, size)}`
            // Without the index's columns, so that a later version may make the index a partial one.
            const unlessMade = sql.literal(idempotencyKey === null ? "" : "ON CONFLICT DO NOTHING")
            const [inserted] = yield* sql<{ id: string }>`
              ${insertJobs(sql, row, date(job.now))} ${unlessMade} RETURNING id`
            if (inserted !== undefined || idempotencyKey === null) return inserted?.id
            const [before] = yield* sql<{ id: string }>`
              SELECT id FROM jobs WHERE org_id = ${orgId} AND idempotency_key = ${idempotencyKey}`
            return before?.id
          }).pipe(orUnavailable)
        return bytes
          .storing(
            orgId,
            size,
            (made) => made === jobId,
            limit.admit({ key: orgId, from: () => sql`orgs org WHERE id = ${orgId}` }, insert),
          )
          .pipe(Effect.flatMap((made) => (made === undefined ? bytes.refuse(orgId) : Effect.succeed(made))))
      },

      claim: (orgId, { workflow, limit, now, leaseUntil }) =>
        sql`
          -- Apart, for a plan that chose again for every row that it looks at would take more than the limit.
          WITH queued AS MATERIALIZED (
            SELECT id, input FROM jobs
            WHERE org_id = ${orgId} AND status = 'queued'
              ${workflow === undefined ? sql.literal("") : sql`AND workflow = ${workflow}`}
            ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED
          ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT id, input FROM queued`, "id", ["input"])})
          UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(leaseUntil)},
            updated_at = ${date(now)}
          WHERE id IN (SELECT id FROM picked)
          RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at`.pipe(
          decodeClaimed,
          // RETURNING keeps no order.
          Effect.map((jobs) => jobs.toSorted((a, b) => (a.job_id < b.job_id ? -1 : 1))),
          orUnavailable,
        ),

      release: (orgId, jobs, now) =>
        sql`
          UPDATE jobs SET status = 'queued', attempt = jobs.attempt - 1, lease_expires_at = NULL, updated_at = ${date(now)}
          FROM unnest(${texts(jobs.map((job) => job.job_id))}, ${integers(jobs.map((job) => job.attempt))})
            AS claimed (id, attempt)
          WHERE jobs.id = claimed.id AND jobs.attempt = claimed.attempt AND jobs.org_id = ${orgId}
            AND jobs.status = 'running'`.pipe(Effect.asVoid, orUnavailable),

      extendLease: (orgId, jobId, leaseUntil, now) =>
        Effect.gen(function* () {
          // The status as a parameter, which no partial index fits: a plan may not go through all running jobs.
          const extended = yield* sql`
            UPDATE jobs SET lease_expires_at = ${date(leaseUntil)}, updated_at = ${date(now)}
            WHERE id = ${jobId} AND org_id = ${orgId} AND status = ${"running"} RETURNING id`
          if (extended.length > 0) return
          const exists = yield* sql`SELECT id FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`
          return yield* exists.length > 0 ? Effect.fail(notRunning()) : Effect.fail(jobNotFound())
        }).pipe(orUnavailable),

      finish: (end, outcome) => finish(end, outcome, (row) => isUnfinished(row, outcome)),
      failExpired: (end) => finish(end, leaseExpired, (row) => isUnfinishedAndExpired(row, end.now)),

      find: (orgId, jobId) =>
        sql`SELECT ${columns} FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job))),
        ),

      list: (orgId, filter, page) => {
        const { status, workflow } = filter
        const read = (select: Statement.Fragment) =>
          pageOf(sql, page, select, "job_id", sized, "newest").pipe(decodeList, orUnavailable)
        const ofOrg = sql`org_id = ${orgId} AND ${afterCursor(sql, page, "newest")}`
        const newest = sql`ORDER BY id DESC LIMIT ${page.limit + 1}`
        if (workflow === undefined) {
          const ofStatus = status === undefined ? sql.literal("true") : sql`status = ${status}`
          return read(sql`SELECT ${columns} FROM jobs WHERE ${ofOrg} AND ${ofStatus}`)
        }
        // The newest of each status, and of these the newest: each is read at the head of one range of the index.
        const heads = (status === undefined ? JobStatus.literals : [status]).map(
          (one) => sql`(SELECT id FROM jobs WHERE ${ofOrg} AND workflow = ${workflow} AND status = ${one} ${newest})`,
        )
        return read(sql`
          SELECT ${columns} FROM jobs
          WHERE id = ANY(ARRAY(SELECT id FROM (${sql.join(" UNION ALL ", false)(heads)}) AS heads ${newest}))
            AND org_id = ${orgId}`)
      },

      expireLeases: (batch) => expireLeases(sql, batch).pipe(orUnavailableWithin("sweep")),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
