import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { JobClaim } from "../../domain/jobs/JobRepository.ts"
import { date, integers, isOfOrg, texts, withinBytes } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { makeLimitedClaims } from "./claimLimitedJobs.ts"
import { type JobLook, jobPositions, type JobReads, maxLookedJobs } from "./jobPositions.ts"
import {
  areLimited,
  decodeClaims,
  isInTime,
  prioritiesOf,
  queuedOf,
  spareCandidates,
  unkeyedOf,
  withoutPriority,
} from "./queuedJobs.ts"

/** Claims of jobs in PostgreSQL: without limits from a position in the queue on (ADR 30), or within them. */
export const makeClaims = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const scope = yield* Effect.scope
  const nowMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)
  const positions = jobPositions(sql)
  const limits = yield* makeLimitedClaims

  /**
   * SQL: the next jobs of the queue, in its order; none when the claim is limited. Locks them and skips those that
   * others have locked.
   */
  const nextJobs = (orgId: string, { workflows, limit }: JobClaim, reads: JobReads | undefined) => {
    const columns = sql.literal("id, input, priority")
    // The indexes of the queue have the org in this form, and no others do: a plan that expects few queued jobs would
    // otherwise read all of them by their status, and sort them.
    const queued = sql`${queuedOf(sql, orgId)} AND NOT (SELECT "isLimited" FROM state)`
    const candidates = limit + spareCandidates
    if (reads !== undefined) {
      // The heads of each workflow and priority from their positions on, the highest priority first, and the jobs
      // before them.
      const ofQueue = workflows === undefined ? sql`priority >= -100` : unkeyedOf(sql, sql`asked.workflow`)
      return sql`
        SELECT job.* FROM (
          SELECT id FROM (
            (SELECT head.id, head.priority FROM unnest(
              ${texts(reads.heads.map((head) => head.workflow))},
              ${integers(reads.heads.map((head) => head.priority))},
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
      const ofQueue = workflow === undefined ? sql`priority >= -100` : unkeyedOf(sql, sql`${workflow}`)
      return sql`
        SELECT ${columns} FROM jobs WHERE ${queued} AND ${ofQueue}
        ORDER BY priority DESC, id LIMIT ${limit} FOR UPDATE SKIP LOCKED`
    }
    // The heads of each workflow, each one range of the index. Only jobs that are claimed are locked, in the order of
    // the queue.
    return sql`
      SELECT job.* FROM (
        SELECT head.id FROM unnest(${texts(workflows!)}) AS asked (workflow) CROSS JOIN LATERAL (
          SELECT id, priority FROM jobs WHERE ${queued} AND ${unkeyedOf(sql, sql`asked.workflow`)}
          ORDER BY priority DESC, id LIMIT ${candidates}
        ) AS head ORDER BY head.priority DESC, head.id LIMIT ${candidates}
      ) AS candidate CROSS JOIN LATERAL (
        SELECT ${columns} FROM jobs WHERE id = candidate.id AND ${queued} FOR UPDATE SKIP LOCKED
      ) AS job LIMIT ${limit}`
  }

  /**
   * Claims the next queued jobs, up to the limit and the bytes of a page. A claim that is limited returns one row
   * without a job.
   */
  const claimJobs = (orgId: string, claim: JobClaim, reads: JobReads | undefined) =>
    sql<{ readonly job_id: string | null }>`
      -- Materialized: a plan that runs the subquery again for each row would take more than the limit.
      WITH state AS MATERIALIZED (SELECT ${areLimited(sql, orgId, claim.workflows)} AS "isLimited"),
      queued AS MATERIALIZED (${nextJobs(orgId, claim, reads)}), placed AS (
        SELECT id, input, (row_number() OVER (ORDER BY priority DESC, id))::int AS place FROM queued
      ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT id, input, place FROM placed`, "place", ["input"])}),
      claimed AS (
        UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(claim.leaseUntil)},
          updated_at = ${date(claim.now)}, progress = NULL, note = NULL
        WHERE id = ANY(ARRAY(SELECT id FROM picked)) AND ${isOfOrg(sql, orgId)}
          AND ${isInTime(sql, claim.now)}
        RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at, priority
      )
      SELECT * FROM claimed UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM state WHERE "isLimited"`

  /**
   * Looks for the first jobs of a queue, with each priority. Reads the queue from its beginning, as claims without a
   * position do.
   */
  const lookAtQueue = Effect.fnUntraced(function* (orgId: string, workflow: string | null) {
    const at = yield* Clock.currentTimeMillis
    const ofQueue = workflow === null ? sql`priority >= -100` : unkeyedOf(sql, sql`${workflow}`)
    const queued = sql`${isOfOrg(sql, orgId)} AND status = 'queued' AND NOT delayed AND ${ofQueue}`
    const [row] = yield* sql<{ heads: JobLook["heads"] | null; took: number }>`
      WITH RECURSIVE ${prioritiesOf(sql, queued)}, found AS MATERIALIZED (
        SELECT json_agg(json_build_array(p.priority, ARRAY(
          SELECT id FROM jobs WHERE ${queued} AND priority = p.priority ORDER BY id LIMIT ${maxLookedJobs}
        ))) AS heads FROM priorities p WHERE p.priority <= 100
      )
      SELECT found.*, (1000 * extract(epoch FROM clock_timestamp() - now()))::float8 AS took FROM found`
    return { at, heads: row!.heads ?? [], tookMillis: row!.took }
  })

  const look = Effect.fnUntraced(function* (orgId: string, workflow: string | null) {
    const found = yield* lookAtQueue(orgId, workflow).pipe(
      orUnavailableWithin("sweep"),
      Effect.catch(({ error }) => Effect.as(Effect.logDebug(`A queue of jobs is not read: ${error}`), undefined)),
    )
    positions.looked(orgId, workflow, found, yield* nowMillis)
  })
  const claimUnlimited = Effect.fnUntraced(function* (orgId: string, claim: JobClaim) {
    const workflows = claim.workflows ?? [null]
    const begun = yield* nowMillis
    const rows = yield* claimJobs(orgId, claim, positions.reads(orgId, workflows))
    if (limits.remember(orgId, claim.workflows, rows[0]?.job_id === null)) return undefined
    const jobs = yield* decodeClaims(Effect.succeed(rows))
    const found = jobs.map(({ job_id, priority, workflow }) => ({ id: job_id, priority, workflow }))
    const ended = yield* nowMillis
    for (const workflow of positions.claimed(orgId, workflows, found, ended - begun, ended)) {
      yield* Effect.forkIn(look(orgId, workflow), scope)
    }
    return jobs.map(withoutPriority)
  })
  const claim = Effect.fnUntraced(function* (orgId: string, claim: JobClaim) {
    const isKnown = limits.isKnown(orgId, claim.workflows)
    const jobs = isKnown ? undefined : yield* orUnavailable(claimUnlimited(orgId, claim))
    return jobs ?? (yield* limits.claim(orgId, claim))
  })

  return { claim, hasLimits: limits.hasLimits }
})
