import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { ClaimedJob, Job } from "../../domain/Job.ts"
import { jobNotFound, JobRepository, notRunning } from "../../domain/Jobs.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { finishJob } from "./finishJob.ts"
import { afterCursor, date, decodeRows, JsonText, toJsonText, Time } from "./fragments.ts"

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
    const columns = sql.literal(`
      id AS job_id, workflow, status, input, deployment_id, callback_url, skip_callbacks, attempt, lease_expires_at,
      result, error, mapped_stack, created_at, updated_at, finished_at`)

    return JobRepository.of({
      insert: (job) =>
        Effect.gen(function* () {
          const owner = job.callbackSecret === null ? null : job.jobId
          const [inserted] = yield* sql<{ id: string }>`
            INSERT INTO jobs (id, org_id, workflow, input, deployment_id, callback_url, callback_secret,
              callback_secret_owner, skip_callbacks, idempotency_key, status, created_at, updated_at)
            VALUES (${job.jobId}, ${job.orgId}, ${job.workflow}, ${toJsonText(job.input)}, ${job.deploymentId},
              ${job.callbackUrl}, ${job.callbackSecret}, ${owner}, ${job.skipCallbacks}, ${job.idempotencyKey},
              'queued', ${date(job.now)}, ${date(job.now)})
            ON CONFLICT (org_id, idempotency_key) DO NOTHING
            RETURNING id`
          if (inserted !== undefined) return inserted.id
          const [before] = yield* sql<{ id: string }>`
            SELECT id FROM jobs WHERE org_id = ${job.orgId} AND idempotency_key = ${job.idempotencyKey}`
          return before!.id
        }).pipe(orUnavailable),

      claim: (orgId, { workflow, limit, now, leaseUntil }) =>
        sql`
          -- Apart, for a plan that chose again for every row that it looks at would take more than the limit.
          WITH picked AS MATERIALIZED (
            SELECT id FROM jobs
            WHERE org_id = ${orgId} AND status = 'queued'
              ${workflow === undefined ? sql.literal("") : sql`AND workflow = ${workflow}`}
            ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED
          )
          UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(leaseUntil)},
            updated_at = ${date(now)}
          WHERE id IN (SELECT id FROM picked)
          RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at`.pipe(
          decodeClaimed,
          // RETURNING keeps no order.
          Effect.map((jobs) => jobs.toSorted((a, b) => (a.job_id < b.job_id ? -1 : 1))),
          orUnavailable,
        ),

      extendLease: (orgId, jobId, leaseUntil, now) =>
        Effect.gen(function* () {
          const extended = yield* sql`
            UPDATE jobs SET lease_expires_at = ${date(leaseUntil)}, updated_at = ${date(now)}
            WHERE id = ${jobId} AND org_id = ${orgId} AND status = 'running' RETURNING id`
          if (extended.length > 0) return
          const exists = yield* sql`SELECT id FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`
          return yield* exists.length > 0 ? Effect.fail(notRunning()) : Effect.fail(jobNotFound())
        }).pipe(orUnavailable),

      finish: (orgId, jobId, outcome, nonce, now, onlyIfExpired) =>
        finishJob(sql, random, { orgId, jobId, outcome, nonce, now, onlyIfExpired }).pipe(orUnavailable),

      find: (orgId, jobId) =>
        sql`SELECT ${columns} FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job))),
        ),

      list: (orgId, filter, page) =>
        sql`
          SELECT ${columns} FROM jobs
          WHERE org_id = ${orgId} AND ${afterCursor(sql, page, "newest")}
            ${filter.status === undefined ? sql.literal("") : sql`AND status = ${filter.status}`}
            ${filter.workflow === undefined ? sql.literal("") : sql`AND workflow = ${filter.workflow}`}
          ORDER BY id DESC LIMIT ${page.limit + 1}`.pipe(decode, orUnavailable),

      expireLeases: (now, maxAttempts) =>
        Effect.gen(function* () {
          yield* sql`
            UPDATE jobs SET status = 'queued', lease_expires_at = NULL, updated_at = ${date(now)}
            WHERE status = 'running' AND lease_expires_at <= ${date(now)} AND attempt < ${maxAttempts}`
          return yield* sql<{ orgId: string; jobId: string }>`
            SELECT org_id AS "orgId", id AS "jobId" FROM jobs
            WHERE status = 'running' AND lease_expires_at <= ${date(now)} AND attempt >= ${maxAttempts}
            ORDER BY lease_expires_at LIMIT 1000`
        }).pipe(orUnavailable),
    })
  }),
)
