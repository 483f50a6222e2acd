import { DateTime, Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { LRUCache } from "lru-cache"
import { distribute, nextToServe } from "../../domain/jobs/WaitingClaims.ts"
import type { JobClaim } from "../../domain/jobs/JobRepository.ts"
import * as Batches from "../database/Batches.ts"
import { date, isOfOrg, texts, withinBytes } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import {
  areLimited,
  decodeClaims,
  inOrder,
  isInTime,
  keyedOf,
  nextQueued,
  queuedOf,
  spareCandidates,
  unkeyedOf,
  withoutPriority,
} from "./queuedJobs.ts"

type Sql = SqlClient.SqlClient
type Workflows = JobClaim["workflows"]

/** Orgs whose claims of limited workflows are remembered, and the claims of each. */
const maxOrgs = 1_000
const maxClaimsPerOrg = 100
/** Claims of an org that share their statements. */
const maxTogether = 64
/** Jobs that one statement claims for several requests: each costs less than with a statement of its own. */
const maxJobsTogether = 400
/** Workflows of the queue that a claim of any workflow reads, when the org has limits. */
const maxNames = 100
/** Keys and their running jobs that a statement looks at in a workflow, and statements of a claim that finds none. */
const maxLooked = 5_000
const maxStatements = 10
/** The parts of a rate's window: the start of a job counts until the part in which it was is over. */
const windowParts = 100

const nameOf = (workflows: Workflows) => JSON.stringify(workflows)

/** Claims of workflows that have limits, or jobs with keys (ADR 39). */
export const makeLimitedClaims = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  /** By org: which claims are limited, as far as this process knows. */
  const orgs = new LRUCache<string, Set<string>>({ max: maxOrgs })
  /** By org with too many names: the name after which the next claim of any workflow begins. */
  const namesAfter = new LRUCache<string, string>({ max: maxOrgs })
  /** Remembers whether claims are limited, and returns it. */
  const remember = (orgId: string, workflows: Workflows, isLimited: boolean) => {
    const claims = orgs.get(orgId) ?? new Set()
    if (!isLimited) claims.delete(nameOf(workflows))
    else if (claims.size < maxClaimsPerOrg) orgs.set(orgId, claims.add(nameOf(workflows)))
    return isLimited
  }

  /** The workflows that a claim of any workflow reads. */
  const namesOf = Effect.fnUntraced(function* (orgId: string) {
    const after = namesAfter.get(orgId) ?? ""
    const next = (than: Statement.Fragment) => nextQueued(sql, orgId, than)
    const rows = yield* sql<{ name: string }>`
      WITH RECURSIVE names AS (
        SELECT name FROM ${next(sql`${after}`)} AS first
        UNION ALL
        SELECT next.name FROM names CROSS JOIN LATERAL ${next(sql`names.name`)} AS next WHERE names.name IS NOT NULL
      )
      SELECT name FROM names WHERE name IS NOT NULL LIMIT ${maxNames}`
    const names = rows.map(({ name }) => name)
    if (names.length === maxNames) namesAfter.set(orgId, names.at(-1)!)
    else namesAfter.delete(orgId)
    return names
  })

  /** Claims for several requests of the same workflows and lease. */
  const claimFor = Effect.fnUntraced(function* (orgId: string, claim: JobClaim) {
    const names = claim.workflows ?? (yield* namesOf(orgId))
    for (let statement = 1; statement <= maxStatements; statement++) {
      let rows = yield* claimLimited(sql, orgId, { ...claim, workflows: names })
      // Another replica has claimed while this statement waited for it.
      if (!rows[0].isFresh) {
        rows = yield* sql.withTransaction(
          Effect.andThen(lockWorkflows(sql, orgId, names), claimLimited(sql, orgId, { ...claim, workflows: names })),
        )
      }
      const [{ hasMoreKeys, isLimited, job_id }] = rows
      if (claim.workflows !== undefined) remember(orgId, claim.workflows, isLimited)
      if (job_id !== null) return inOrder(rows)
      if (!hasMoreKeys) break
    }
    return []
  })

  const run =
    (orgId: string): Batches.RunTogether<JobClaim, ReadonlyArray<ClaimRow>> =>
    (all) =>
      Effect.gen(function* () {
        const claimed = new Map<JobClaim, ReadonlyArray<ClaimRow>>()
        const groups = Map.groupBy(all, ({ leaseUntil, now, workflows }) =>
          JSON.stringify([workflows, DateTime.toEpochMillis(leaseUntil) - DateTime.toEpochMillis(now)]),
        )
        for (let group of groups.values()) {
          while (group.length > 0) {
            const { limit, served } = nextToServe(group, maxJobsTogether)
            const jobs = yield* claimFor(orgId, { ...served.at(-1)!, limit })
            for (const [one, own] of distribute(served, jobs).shares) claimed.set(one, own)
            group = jobs.length < limit ? [] : group.slice(served.length)
          }
        }
        return claimed
      }).pipe(orUnavailable)
  // One statement at a time: the next one serves all claims that have come meanwhile.
  const batchOf = yield* Batches.makeByOrg(
    (orgId, all: ReadonlyArray<JobClaim>) => Batches.orAlone(run(orgId))(all),
    maxTogether,
    1,
  )

  return {
    /** Whether claims are limited as far as this process knows. */
    isKnown: (orgId: string, workflows: Workflows) => orgs.get(orgId)?.has(nameOf(workflows)) === true,
    hasLimits: (orgId: string) => (orgs.get(orgId)?.size ?? 0) > 0,
    remember,
    // Decoded by each claim, so that the next statement does not wait for it.
    claim: (orgId: string, claim: JobClaim) =>
      Batches.inBatch(sql, run(orgId), batchOf(orgId), claim).pipe(
        Effect.flatMap((rows) => decodeClaims(Effect.succeed(rows ?? []))),
        Effect.map((jobs) => jobs.map(withoutPriority)),
      ),
  }
})

/** Locks the settings of workflows, in the order of their names: two claims never wait for each other. */
const lockWorkflows = (sql: Sql, orgId: string, names: ReadonlyArray<string>) => sql`
  SELECT * FROM workflows WHERE org_id = ${orgId} AND workflow = ANY(${texts(names)})
  ORDER BY workflow FOR NO KEY UPDATE`

/**
 * Claims jobs of workflows within their limits, in one statement. It locks the settings, and counts what runs in its
 * snapshot. Each claim changes the version of the settings: when the locked one is that of the snapshot, no claim has
 * come in between, and the count is not too low. Otherwise it claims nothing.
 */
const claimLimited = (sql: Sql, orgId: string, claim: JobClaim) => {
  const { leaseUntil, limit, now, workflows } = claim
  const names = texts(workflows!)
  // Of many workflows, one has others for jobs that are locked.
  const spare = workflows!.length > 20 ? 0 : spareCandidates
  const queued = queuedOf(sql, orgId)
  const ordered = sql.literal("ORDER BY priority DESC, id")
  const head = (which: Statement.Fragment) =>
    sql`(SELECT id, priority FROM jobs WHERE ${queued} AND ${which} ${ordered} LIMIT r.room)`
  const nextKey = (range: Statement.Fragment, isSecond: Statement.Fragment) => sql`
    SELECT concurrency_key AS key, ${isSecond} AS is_second, id, priority FROM jobs
    WHERE ${queued} AND workflow = r.workflow AND ${range} AND max_attempts > 0
    ORDER BY concurrency_key, priority DESC, id LIMIT 1`
  const ofWindow = sql.literal("make_interval(secs => w.rate_window_seconds)")
  return sql<ClaimRow>`
    WITH RECURSIVE settings AS MATERIALIZED (${lockWorkflows(sql, orgId, workflows!)}),
    state AS MATERIALIZED (
      SELECT ARRAY(SELECT (workflow, version)::text FROM settings ORDER BY workflow) = ARRAY(
        SELECT (workflow, version)::text FROM workflows WHERE org_id = ${orgId} AND workflow = ANY(${names})
        ORDER BY workflow) AS "isFresh"
    ), clock AS MATERIALIZED (
      -- After the lock.
      SELECT clock_timestamp() AS at FROM state WHERE "isFresh"
    ), rooms AS MATERIALIZED (
      SELECT asked.name AS workflow, w.workflow IS NOT NULL AS is_limited, w.concurrency_per_key AS per_key, w.last_key,
        CASE WHEN w.workflow IS NULL THEN ${limit + spare}::int ELSE greatest(0, least(
          ${limit}, w.concurrency - running.count, w.rate_limit - started.count)) END::int AS room
      FROM clock CROSS JOIN unnest(${names}) AS asked (name) LEFT JOIN settings w ON w.workflow = asked.name
      CROSS JOIN LATERAL (
        SELECT count(*) FROM (
          -- The status is a parameter, which fits no index of all that runs.
          SELECT FROM jobs WHERE org_id || workflow = ${orgId}::text || asked.name AND status = ${"running"}
            AND ${isOfOrg(sql, orgId)}
          LIMIT coalesce(w.concurrency, 0)
        ) AS jobs
      ) AS running CROSS JOIN LATERAL (
        -- What is later was written before the clock stepped back.
        SELECT coalesce(sum(count), 0) AS count FROM unnest(w.start_times, w.start_counts) AS s (at, count)
        WHERE s.at > clock.at - ${ofWindow} AND s.at <= clock.at + ${ofWindow}
      ) AS started
    ), keys AS MATERIALIZED (
      -- The keys after the last one that had a turn, then those before it, until enough have a free slot.
      SELECT r.workflow, r.room, k.* FROM rooms r CROSS JOIN LATERAL (
        WITH RECURSIVE walk AS (
          SELECT r.last_key AS key, false AS is_second, '' COLLATE "C" AS id, 0::smallint AS priority,
            0 AS free, 0 AS turn, 0 AS looked
          UNION ALL
          SELECT next.*, r.per_key - running.count, turn + (running.count < r.per_key)::int, looked + 1 + running.count
          FROM walk CROSS JOIN LATERAL (
            (${nextKey(
              sql`concurrency_key > walk.key AND (NOT walk.is_second OR concurrency_key <= r.last_key)`,
              sql`walk.is_second`,
            )})
            UNION ALL
            (${nextKey(sql`concurrency_key > '' AND concurrency_key <= r.last_key AND NOT walk.is_second`, sql`true`)})
            LIMIT 1
          ) AS next CROSS JOIN LATERAL (
            SELECT count(*)::int FROM (
              SELECT FROM jobs WHERE org_id || workflow || concurrency_key = ${orgId}::text || r.workflow || next.key
                AND ${isOfOrg(sql, orgId)} AND workflow = r.workflow AND status = ${"running"}
                AND concurrency_key IS NOT NULL AND lease_expires_at IS NOT NULL LIMIT r.per_key
            ) AS jobs
          ) AS running
          WHERE turn < r.room AND looked < ${maxLooked}
        )
        SELECT *, max(turn) OVER () AS turns FROM walk
      ) AS k WHERE r.per_key IS NOT NULL AND r.room > 0
    ), candidates AS MATERIALIZED (
      SELECT r.workflow, r.room, id, priority, NULL AS key, 0 AS turn,
        CASE WHEN r.per_key IS NULL THEN 0 ELSE row_number() OVER (PARTITION BY r.workflow ${ordered}) END AS round
      FROM rooms r CROSS JOIN LATERAL ${head(unkeyedOf(sql, sql`r.workflow`))} AS job
      UNION ALL
      SELECT r.workflow, r.room, id, priority, NULL, 0, 0
      FROM rooms r CROSS JOIN LATERAL ${head(keyedOf(sql, sql`r.workflow`))} AS job WHERE r.per_key IS NULL
      UNION ALL
      SELECT workflow, room, id, priority, key, turn, 1 FROM keys WHERE free > 0
      UNION ALL
      -- More jobs of each key, if there are fewer keys than slots.
      SELECT r.workflow, r.room, job.id, job.priority, r.key, r.turn, job.round
      FROM keys r CROSS JOIN LATERAL (
        SELECT id, priority, row_number() OVER (${ordered}) AS round FROM (
          SELECT id, priority FROM jobs
          WHERE ${queued} AND workflow = r.workflow AND concurrency_key = r.key AND max_attempts > 0 ${ordered}
          LIMIT least(r.free, r.room)
        ) AS jobs
      ) AS job WHERE r.free > 1 AND r.turns < r.room AND round > 1
    ), queued AS MATERIALIZED (
      SELECT job.*, wanted.workflow, wanted.key, wanted.turn FROM (
        SELECT * FROM (
          SELECT *, row_number() OVER (PARTITION BY workflow ORDER BY round, turn, priority DESC, id) AS place
          FROM candidates
        ) AS ranked WHERE place <= room ${ordered} LIMIT ${limit + spareCandidates}
      ) AS wanted CROSS JOIN LATERAL (
        SELECT id, input, priority FROM jobs WHERE id = wanted.id AND ${queued} FOR UPDATE SKIP LOCKED
      ) AS job LIMIT ${limit}
    ), placed AS (
      SELECT *, (row_number() OVER (${ordered}))::int AS place FROM queued
    ), picked AS MATERIALIZED (${withinBytes(sql, sql`SELECT * FROM placed`, "place", ["input"])}),
    claimed AS (
      UPDATE jobs SET status = 'running', attempt = attempt + 1, lease_expires_at = ${date(leaseUntil)},
        updated_at = ${date(now)}, progress = NULL, note = NULL
      WHERE id = ANY(ARRAY(SELECT id FROM picked)) AND ${isOfOrg(sql, orgId)} AND ${isInTime(sql, now)}
      RETURNING id AS job_id, workflow, input, deployment_id, attempt, lease_expires_at, priority
    ), counted AS MATERIALIZED (
      SELECT r.workflow, (SELECT count(*)::int FROM claimed c WHERE c.workflow = r.workflow) AS count,
        (SELECT key FROM picked p WHERE p.workflow = r.workflow ORDER BY turn DESC LIMIT 1) AS key,
        -- The last key of a walk that was too long.
        (SELECT key FROM keys WHERE workflow = r.workflow AND looked >= ${maxLooked} LIMIT 1) AS "end"
      FROM rooms r WHERE is_limited
    ), noted AS (
      UPDATE workflows w SET version = version + 1, last_key = coalesce(counted.key, counted.end, last_key),
        (start_times, start_counts) = (
          SELECT coalesce(array_agg(at), '{}'), coalesce(array_agg(count), '{}') FROM (
            SELECT at, sum(count)::int AS count FROM (
              SELECT s.at, s.count FROM unnest(w.start_times, w.start_counts) AS s (at, count)
              WHERE s.at > clock.at - ${ofWindow} AND s.at <= clock.at + ${ofWindow}
              UNION ALL
              -- The end of the part of the window, so that a start never counts too short.
              SELECT to_timestamp(ceil(extract(epoch FROM clock.at) * ${windowParts} / w.rate_window_seconds)
                * w.rate_window_seconds / ${windowParts}), counted.count
              WHERE counted.count > 0 AND w.rate_limit IS NOT NULL
            ) AS s GROUP BY at
          ) AS s)
      FROM counted CROSS JOIN clock
      WHERE w.org_id = ${orgId} AND w.workflow = counted.workflow AND (counted.count > 0 OR counted.end IS NOT NULL)
    )
    SELECT claimed.*, "isFresh", ${areLimited(sql, orgId, workflows)} AS "isLimited",
      EXISTS (SELECT FROM counted WHERE "end" IS NOT NULL) AS "hasMoreKeys"
    FROM state LEFT JOIN claimed ON true`.pipe(Effect.map((rows) => rows as readonly [ClaimRow, ...typeof rows]))
}

/** A row of `claimLimited`: a claimed job, or the only row without one. */
interface ClaimRow {
  readonly job_id: string | null
  readonly priority: number
  /** Whether no other claim has come in between. */
  readonly isFresh: boolean
  readonly isLimited: boolean
  /** Whether a walk over the keys has not come to its end. */
  readonly hasMoreKeys: boolean
}
