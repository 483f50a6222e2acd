import { Effect, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import type { JobEnd, JobReport } from "../../domain/jobs/JobEnd.ts"
import { inOrg } from "../database/buckets.ts"
import * as Batches from "../database/Batches.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { inBatch, orAlone, type RunTogether } from "../database/changeBatches.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { type Reported, type ReportOutcome, reportJobs } from "./finishJob.ts"

/** Reports of an org that share a statement. */
const maxReports = 64
/** Reports with a longer text run alone, so that a batch holds a few MiB. */
const maxSharedLength = 32 * 1024

const isShort = (value: unknown) => value === null || JSON.stringify(value).length <= maxSharedLength

/** Whether a report may share a statement with others. Background work runs alone, because it may wait longer. */
const isShared = (report: JobReport) => {
  if (report._tag !== "Ended") return report._tag === "Canceled"
  const { error, mapped_stack, result } = report.outcome
  return [error, mapped_stack, result].every(isShort)
}

/** Reports about jobs. The reports about jobs of one org at the same time share their statements. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const random = yield* SecureRandom.SecureRandom
  const usage = yield* OrgUsage
  const count = (orgId: string, outcomes: ReadonlyMap<Reported, ReportOutcome>) => {
    for (const outcome of outcomes.values()) if (Result.isSuccess(outcome)) usage.addBytes(orgId, outcome.success.bytes)
    usage.notePending(orgId)
  }
  const run =
    (orgId: string): RunTogether<Reported, ReportOutcome> =>
    (all) =>
      reportJobs(sql, random, orgId, all).pipe(
        orUnavailable,
        // Here, because a shared statement goes on without the request.
        Effect.tap((outcomes) => Effect.sync(() => count(orgId, outcomes))),
        inOrg(sql, orgId),
      )
  const batchOf = yield* Batches.makeByOrg(
    (orgId, all: ReadonlyArray<Reported>) => orAlone(run(orgId))(all),
    maxReports,
  )

  return (end: JobEnd, report: JobReport) => {
    const { orgId } = end
    const reported = { end, report }
    const outcome = isShared(report)
      ? inBatch(sql, run(orgId), batchOf(orgId), reported)
      : Effect.map(run(orgId)([reported]), (found) => found.get(reported))
    return Effect.flatMap(outcome, (written) => Effect.fromResult(written!))
  }
})
