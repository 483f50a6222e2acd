import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { Job } from "../../domain/jobs/Job.ts"
import { isUnfinished, isUnfinishedAndExpired, leaseExpired } from "../../domain/jobs/JobEnd.ts"
import type { JobEnd, JobOutcome } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound, JobRepository, type NewJob } from "../../domain/jobs/JobRepository.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { claimJobs, extendLease, releaseJobs } from "./claimJobs.ts"
import { expireLeases } from "./expireLeases.ts"
import { finishJob } from "./finishJob.ts"
import { date, decodePage, decodeRows, JsonText, toJsonText, Time } from "../database/fragments.ts"
import { insertJobs, templateValues } from "./insertJobs.ts"
import { jobColumns, listJobs } from "./listJobs.ts"
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

/** Inserts a job within the limits of its org; returns its id, or the id of the earlier job with its idempotency key. */
const insertJob = (sql: SqlClient.SqlClient, limit: Limited.Limited, bytes: StoredBytes.StoredBytes, job: NewJob) => {
  const { jobId, orgId, idempotencyKey } = job
  const input = toJsonText(job.input)
  const inputBytes = StoredBytes.byteLength(input)
  const insert = (hasRoom: boolean) =>
    Effect.gen(function* () {
      const row = sql`
        SELECT ${jobId}, org.id, ${idempotencyKey}, ${jobId}, ${templateValues(sql, job, input)}
        FROM orgs org
        WHERE org.id = ${orgId} AND ${limit.guard(sql`${hasRoom}::boolean`)} AND ${bytes.fits(orgId, inputBytes)}`
      // Without the columns of the index, so that a later version may make it a partial index.
      const onConflict = sql.literal(idempotencyKey === null ? "" : "ON CONFLICT DO NOTHING")
      const [inserted] = yield* sql<{ id: string }>`
        ${insertJobs(sql, row, date(job.now))} ${onConflict} RETURNING id`
      if (inserted !== undefined || idempotencyKey === null) return inserted?.id
      const [earlier] = yield* sql<{ id: string }>`
        SELECT id FROM jobs WHERE org_id = ${orgId} AND idempotency_key = ${idempotencyKey}`
      return earlier?.id
    }).pipe(orUnavailable)
  const isInserted = (id: string | undefined) => id === jobId
  return bytes
    .storing(orgId, inputBytes, isInserted, limit.admit(Limited.orgOwner(sql, orgId), insert))
    .pipe(Effect.flatMap((id) => (id === undefined ? bytes.refuse(orgId) : Effect.succeed(id))))
}

/** Jobs in PostgreSQL. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const limit = yield* Limited.make("unfinishedJobs")
    const bytes = yield* StoredBytes.make

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
      insert: (job) => insertJob(sql, limit, bytes, job),
      claim: (orgId, claim) => orUnavailable(claimJobs(sql, orgId, claim)),
      release: (orgId, jobs, now) => releaseJobs(sql, orgId, jobs, now).pipe(Effect.asVoid, orUnavailable),
      extendLease: (orgId, jobId, leaseUntil, now) => orUnavailable(extendLease(sql, orgId, jobId, leaseUntil, now)),
      expireLeases: (batch) => expireLeases(sql, batch).pipe(orUnavailableWithin("sweep")),

      finish: (end, outcome) => finish(end, outcome, (row) => isUnfinished(row, outcome)),
      failExpired: (end) => finish(end, leaseExpired, (row) => isUnfinishedAndExpired(row, end.now)),

      find: (orgId, jobId) =>
        sql`SELECT ${jobColumns(sql)} FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job))),
        ),

      list: (orgId, filter, page) => listJobs(sql, orgId, filter, page).pipe(decodeList, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
