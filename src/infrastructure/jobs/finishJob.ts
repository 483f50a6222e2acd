import { DateTime, Effect, Result } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient, Statement } from "effect/sql"
import type { Conflict, NotFound } from "../../domain/Errors.ts"
import { decide, type JobDecision, type JobEnd, type JobReport } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound } from "../../domain/jobs/JobRepository.ts"
import { eventType } from "../../domain/webhooks/Event.ts"
import { texts } from "../database/arrays.ts"
import { isOfOrg } from "../database/fragments.ts"
import { wantsType } from "../webhooks/wantedEvents.ts"
import { type Change, type ReportedJob, type Written, writeReports } from "./writeReports.ts"

/** A report about a job. */
export interface Reported {
  readonly end: JobEnd
  readonly report: JobReport
}

/** What became of a report. */
export type ReportOutcome = Result.Result<Written, NotFound | Conflict>

interface Row extends Omit<ReportedJob, "lease_expires_at"> {
  /** `null`: there is no such job. */
  readonly id: string | null
  readonly lease_expires_at: Date | null
  /** In the first row: the ids of the org's endpoints that want job.completed, that want job.failed, and the inactive ones. */
  readonly completed: ReadonlyArray<string> | null
  readonly failed: ReadonlyArray<string> | null
  readonly inactive: ReadonlyArray<string> | null
}

/** Reads jobs of an org, and its endpoints. */
const readJobs = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, jobIds: ReadonlyArray<string>) {
  const endpoints = (which: Statement.Fragment) => sql`
    CASE WHEN place = 1 THEN
      ARRAY(SELECT id FROM webhook_endpoints w WHERE w.org_id = ${orgId} AND ${which} ORDER BY NOT ordered, id)
    END`
  const rows = yield* sql<Row>`
    SELECT job.*,
      ${endpoints(wantsType(sql, eventType("completed")))} AS completed,
      ${endpoints(wantsType(sql, eventType("failed")))} AS failed, ${endpoints(sql`NOT active`)} AS inactive
    FROM unnest(${texts(jobIds)}) WITH ORDINALITY AS asked (id, place) LEFT JOIN LATERAL (
      SELECT id, status, workflow, deployment_id, callback_url, callback_secret IS NOT NULL AS "hasCallbackSecret",
        skip_callbacks, attempt, lease_expires_at, max_attempts, retry_delay_seconds,
        finished_attempt AS "finishedAttempt", retried_attempts AS "retriedAttempts",
        coalesce(octet_length(error), 0) + coalesce(octet_length(mapped_stack), 0) AS bytes
      FROM jobs WHERE id = asked.id AND ${isOfOrg(sql, orgId)} OFFSET 0
    ) AS job ON true ORDER BY place`
  const [first] = rows
  const inactive = new Set(first!.inactive)
  const candidates = (ids: ReadonlyArray<string>) => ids.map((id) => ({ id, active: !inactive.has(id) }))
  return {
    candidates: { completed: candidates(first!.completed!), failed: candidates(first!.failed!) },
    jobs: new Map(
      rows.flatMap(({ id, lease_expires_at: lease, ...row }): Array<[string, ReportedJob]> =>
        id === null ? [] : [[id, { ...row, lease_expires_at: lease && DateTime.fromDateUnsafe(lease) }]],
      ),
    ),
  }
})

const nothing: Written = { bytes: 0, hasSweep: false, status: null }

/**
 * Reports about jobs of one org: reads the jobs, decides and writes, each in one statement for all of them. Of two reports
 * about one job, the second is decided after the first is written. So is a report about a job that changed in between.
 */
export const reportJobs = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  orgId: string,
  reports: ReadonlyArray<Reported>,
) {
  const outcomes = new Map<Reported, ReportOutcome>()
  let open = reports
  while (open.length > 0) {
    const ofJob = new Map<string, Reported>()
    for (const one of open) if (!ofJob.has(one.end.jobId)) ofJob.set(one.end.jobId, one)
    const { candidates, jobs } = yield* readJobs(sql, orgId, [...ofJob.keys()])
    const changes: Array<Change> = []
    for (const [jobId, reported] of ofJob) {
      const job = jobs.get(jobId)
      const decision: Result.Result<JobDecision, NotFound | Conflict> =
        job === undefined ? Result.fail(jobNotFound()) : decide(job, reported.report, reported.end.now)
      if (Result.isFailure(decision)) outcomes.set(reported, Result.fail(decision.failure))
      else if (decision.success._tag === "Unchanged") outcomes.set(reported, Result.succeed(nothing))
      else changes.push({ end: reported.end, job: job!, decision: decision.success })
    }
    if (changes.length > 0) {
      const written = yield* writeReports(sql, random, orgId, changes, candidates)
      for (const [jobId, done] of written) outcomes.set(ofJob.get(jobId)!, Result.succeed(done))
    }
    open = open.filter((one) => !outcomes.has(one))
  }
  return outcomes
})
