import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Job } from "../../domain/jobs/Job.ts"
import { jobNotFound, JobRepository } from "../../domain/jobs/JobRepository.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { inOrgs } from "../database/buckets.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { mergeTurns } from "../orgs/orgsInTurn.ts"
import { claimJobs, extendLease, releaseJobs } from "./claimJobs.ts"
import { DueBuckets } from "./dueBuckets.ts"
import { expireLeases } from "./expireLeases.ts"
import { decodePage, decodeRows, isOfOrg, JsonText, Time } from "../database/fragments.ts"
import * as InsertJob from "./insertJob.ts"
import { jobColumns, listJobs } from "./listJobs.ts"
import { queueDelayed } from "./queueDelayed.ts"
import * as ReportJob from "./reportJob.ts"

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
const sum = (counts: ReadonlyArray<number>) => counts.reduce((total, count) => total + count, 0)

const decode = decodeRows(Row)
const decodeList = decodePage(Row)

/** Jobs in PostgreSQL. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const insert = yield* InsertJob.make
    const report = yield* ReportJob.make
    const dueBuckets = yield* DueBuckets

    const repository = JobRepository.of({
      insert,
      claim: (orgId, claim) => orUnavailable(claimJobs(sql, orgId, claim)),
      release: (orgId, jobs, now) => releaseJobs(sql, orgId, jobs, now).pipe(Effect.asVoid, orUnavailable),
      extendLease: (orgId, jobId, heartbeat) => orUnavailable(extendLease(sql, orgId, jobId, heartbeat)),
      expireLeases: (batch) =>
        dueBuckets.run("leases", batch.now, expireLeases(sql, batch).pipe(orUnavailableWithin("sweep"))).pipe(
          Effect.map((parts) => ({
            queued: sum(parts.map(({ queued }) => queued)),
            exhausted: parts.flatMap(({ exhausted }) => exhausted),
            next: mergeTurns(parts),
          })),
        ),
      queueDelayed: (batch) =>
        dueBuckets.run("delays", batch.now, queueDelayed(sql, batch).pipe(orUnavailableWithin("sweep"))).pipe(
          Effect.map((parts) => ({
            orgs: parts.flatMap(({ orgs }) => orgs),
            moved: sum(parts.map(({ moved }) => moved)),
            next: mergeTurns(parts),
          })),
        ),
      report,

      find: (orgId, jobId) =>
        sql`SELECT ${jobColumns(sql)} FROM jobs WHERE id = ${jobId} AND ${isOfOrg(sql, orgId)}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([job]) => (job === undefined ? Effect.fail(jobNotFound()) : Effect.succeed(job))),
        ),

      list: (orgId, filter, page) => listJobs(sql, orgId, filter, page).pipe(decodeList, orUnavailable),
    })
    return inOrgs(sql, repository, ["insert", "claim", "release", "extendLease", "report", "find", "list"])
  }),
).pipe(Layer.provide([OrgUsage.layer, DueBuckets.layer]))
