import { Clock, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import {
  type AttemptRecord,
  type Claim,
  type ClaimedDelivery,
  DeliveryQueue,
  type DueDeliveries,
  type TimesCorrection,
} from "../../domain/webhooks/DeliveryQueue.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { makeResting } from "../background.ts"
import { Database } from "../database/Database.ts"
import { date, texts } from "../database/fragments.ts"
import { everywhere, Nodes } from "../database/Nodes.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { backlogLane } from "../queue/lanes.ts"
import { type LaneHead, laneHeads, queuePositions } from "../queue/queuePositions.ts"
import { claimSql, eventsOf, isUnclaimed, lanesFound, since, toClaimed } from "./claimDeliveries.ts"
import { recordAttempts } from "./recordAttempts.ts"

/**
 * Counts the bytes of attempts. The last one of a delivery that has ended stands in its row; each other one has a row
 * of its own, as the last one has from a resend on.
 */
const countAttempts = (usage: OrgUsage["Service"], records: ReadonlyArray<AttemptRecord>) => {
  for (const { decision, delivery, outcome } of records) {
    const texts = byteLength(outcome.failure?.message, outcome.body)
    const isFirstOfResend = delivery.attempts > 0 && delivery.attemptsSinceResend === 0
    const rows = (decision._tag === "Retry" ? 1 : 0) + (isFirstOfResend ? 1 : 0)
    usage.addBytes(delivery.orgId, texts + rows * rowCost.attempt)
  }
}

/**
 * Releases claims. Locks the deliveries in the order of their ids, like every statement that changes deliveries.
 * `commit` is evaluated in the transaction.
 */
const releaseSql = (
  sql: SqlClient.SqlClient,
  unsorted: ReadonlyArray<ClaimedDelivery>,
  now: DateTime.Utc,
  commit: Statement.Fragment,
) => {
  const deliveries = unsorted.toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
  const column = (of: (delivery: ClaimedDelivery) => string | null) => texts(deliveries.map(of))
  return sql<{ heads: ReadonlyArray<LaneHead> | null }>`
    WITH transaction AS MATERIALIZED (
      SELECT ${commit}
    ), held AS MATERIALIZED (
      SELECT p.place FROM transaction CROSS JOIN unnest(
        ${column((d) => d.deliveryId)}, ${column((d) => d.orgId)}, ${column((d) => d.endpointId)},
        ${column((d) => d.lane)}, ${column((d) => d.claimId)}
      ) AS given (id, org_id, endpoint_id, lane, claim_id)
      -- A resend moves deliveries to the new lane of their endpoint.
      CROSS JOIN LATERAL (
        SELECT ctid AS place FROM pending_deliveries WHERE org_id = given.org_id AND delivery_id = given.id
          AND lane = ANY(ARRAY[given.lane, (SELECT w.lane FROM webhook_endpoints w WHERE w.id = given.endpoint_id)])
          AND claim_id = given.claim_id
        FOR UPDATE
      ) AS p
    ), queued AS (
      UPDATE pending_deliveries p SET claim_id = NULL, lease_until = NULL,
        due_at = CASE WHEN p.backlogged THEN p.due_at ELSE ${date(now)} END, backlogged = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM held))
      RETURNING org_id, lane, due_at, backlogged
    )
    SELECT ${laneHeads(sql, "queued")} AS heads`
}

/** The queue of deliveries in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const { kind } = yield* Database
    const clock = yield* Clock.Clock
    // A claim, record or release need not survive a crash of PostgreSQL: it is repeated, or its lease expires. So its
    // commit does not wait for the disk. The embedded database crashes whenever the process ends, and only commits that
    // wait reach its disk. A claim ends with the process anyway, but a record must survive.
    const asyncCommit = sql`set_config('synchronous_commit', 'off', true)`
    const recordCommit = kind === "postgres" ? asyncCommit : sql`NULL`

    const nodes = yield* Nodes
    const positions = queuePositions(sql)
    const counting = makeResting<DueDeliveries>()
    const lookNow = Effect.flatMap(DateTime.now, (now) => look(sql, positions, now))

    const claim = Effect.fnUntraced(function* (claim: Claim) {
      if (positions.needsLook()) yield* lookNow
      const reads = positions.reads(claim)
      const rows = yield* claimSql(sql, claim, reads, asyncCommit)
      const first = rows[0]!
      const { backlogged, head, throttled_until: throttledUntil } = first
      const found = { head, lanes: lanesFound(rows, reads), backlogged, backloggedLanes: first.backlogged_lanes ?? [] }
      const isFull = positions.claimed(claim, reads, found)
      const answeredAt = monotonicMillisOf(clock)
      const events = yield* eventsOf(sql, rows)
      return {
        deliveries: toClaimed(rows, events, claim.claimId, monotonicMillisOf(clock) - answeredAt),
        more: first.more || reads.more || isFull,
        short: first.short || reads.short,
        throttledUntil: throttledUntil === null ? null : DateTime.fromDateUnsafe(throttledUntil),
      }
    }, orUnavailable)

    return DeliveryQueue.of({
      claim,
      look: orUnavailableWithin("sweep")(lookNow),

      record: (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) =>
        records.length === 0
          ? Effect.void
          : recordAttempts(sql, random, records, now, recordCommit).pipe(
              orUnavailable,
              Effect.map((decided) => {
                countAttempts(usage, decided)
                for (const { decision, delivery, nextAttemptAt } of decided) {
                  const { lane, ordered, orgId } = delivery
                  if (ordered && decision._tag === "Retry") positions.waits(orgId, lane, nextAttemptAt!)
                  else if (ordered) positions.backlogged([[orgId, lane, null]])
                }
              }),
            ),

      release: (deliveries: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
        deliveries.length === 0
          ? Effect.void
          : releaseSql(sql, deliveries, now, recordCommit).pipe(
              Effect.map(([row]) => positions.backlogged(row!.heads)),
              orUnavailable,
            ),

      nextDueAt: Effect.suspend(
        () => sql<{ next: Date | null }>`
          SELECT min(due_at) AS next FROM pending_deliveries
          WHERE NOT backlogged AND claim_id IS NULL AND due_at >= ${since(sql, positions.headSince())}`,
      ).pipe(
        Effect.map(([row]) => (row?.next == null ? null : DateTime.fromDateUnsafe(row.next))),
        orUnavailable,
      ),

      countDue: (now: DateTime.Utc, limit: number) =>
        counting(
          Effect.map(
            everywhere(sql, nodes, (sql) => orUnavailable(countDue(sql, now, limit))),
            (counts) => sumDue(counts, limit),
          ),
        ),
      correctTimes: (correction: TimesCorrection) =>
        correctTimes(sql, correction).pipe(
          Effect.tap(() => Effect.sync(() => positions.queued(correction.now.epochMilliseconds))),
          orUnavailable,
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/**
 * Makes deliveries without an attempt due again after the clock was set back, and shortens leases. Skips rows that
 * others have locked, as a claim does.
 */
const correctTimes = (sql: SqlClient.SqlClient, { leaseUntil, limit, now }: TimesCorrection) =>
  sql<{ moved: number }>`
    WITH late AS (
      SELECT ctid AS place FROM pending_deliveries
      WHERE NOT backlogged
        AND CASE WHEN claim_id IS NULL THEN tries = 0 AND due_at > ${date(now)} ELSE lease_until > ${date(leaseUntil)} END
      ORDER BY due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
    ), moved AS (
      UPDATE pending_deliveries
      SET due_at = least(due_at, ${date(now)}),
        lease_until = CASE WHEN claim_id IS NOT NULL THEN ${date(leaseUntil)}::timestamptz END
      WHERE ctid = ANY(ARRAY(SELECT place FROM late)) RETURNING 1
    )
    SELECT count(*)::int AS moved FROM moved`.pipe(Effect.map(([row]) => row!.moved))

/** Lanes that a look reads. */
const lookSize = 4_096

/**
 * Looks for deliveries that claims may not see: reads the head of the queue from its beginning to the first delivery
 * without a claim, and each lane to its first delivery. With a claim, too: in a lane that sends in order it holds the
 * others back.
 */
const look = (sql: SqlClient.SqlClient, positions: ReturnType<typeof queuePositions>, now: DateTime.Utc) =>
  Effect.suspend(() => {
    const [org, lane] = positions.startLook()
    const unclaimed = isUnclaimed(sql, date(now))
    return sql<{ head: Date | null; lanes: ReadonlyArray<LaneHead> | null; took: number }>`
      WITH RECURSIVE lanes AS (
        SELECT ${org}::text COLLATE "C" AS org_id, ${lane}::text COLLATE "C" AS lane, NULL::timestamptz AS due_at, 0 AS turn
        UNION ALL
        SELECT next.*, lanes.turn + 1 FROM lanes CROSS JOIN LATERAL (
          SELECT p.org_id, p.lane, p.due_at FROM pending_deliveries p
          WHERE p.backlogged AND (${backlogLane(sql)}) > (lanes.org_id, lanes.lane)
          ORDER BY ${backlogLane(sql)}, p.due_at LIMIT 1
        ) AS next WHERE lanes.turn < ${lookSize}::int
      ), found AS MATERIALIZED (
        SELECT (
            SELECT due_at FROM pending_deliveries WHERE NOT backlogged AND due_at <= ${date(now)} AND ${unclaimed}
            ORDER BY due_at LIMIT 1
          ) AS head,
          (SELECT json_agg(json_build_array(org_id, lane, due_at) ORDER BY turn) FROM lanes WHERE turn > 0) AS lanes
      )
      SELECT found.*, (1000 * extract(epoch FROM clock_timestamp() - now()))::float8 AS took FROM found`.pipe(
      Effect.map(([row]) => {
        const { head, lanes, took } = row!
        return positions.looked({ at: now, head, lanes: lanes ?? [], tookMillis: took }, lookSize)
      }),
    )
  })

/** Lanes whose oldest backlogged delivery is read. */
const maxLanesRead = 1_000

/**
 * Counts the due deliveries, up to `limit`, and finds the oldest. Reads the indexes of claims. For the oldest
 * backlogged delivery it reads the first of each lane, up to `maxLanesRead` lanes. With an org, it counts that org's.
 */
export const countDue = (sql: SqlClient.SqlClient, now: DateTime.Utc, limit: number, orgId: string | null = null) => {
  const ofOrg = orgId === null ? sql.literal("true") : sql`p.org_id || '' = ${orgId}`
  const unclaimed = isUnclaimed(sql, date(now))
  // The head of the queue has no index by org: an org's deliveries are counted among the first of all.
  const head = sql`
    (SELECT greatest(due_at, lease_until) AS due_at, org_id FROM pending_deliveries AS q
     WHERE NOT backlogged AND q.due_at <= ${date(now)} AND ${unclaimed} ORDER BY q.due_at LIMIT ${limit}) AS p`
  return sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            SELECT ${orgId ?? ""}::text COLLATE "C" AS org_id, '' COLLATE "C" AS lane, NULL::timestamptz AS due_at, 0 AS turn
            UNION ALL
            SELECT next.*, heads.turn + 1 FROM heads CROSS JOIN LATERAL (
              SELECT p.org_id, p.lane, p.due_at FROM pending_deliveries p
              WHERE p.backlogged AND (${backlogLane(sql)}) > (heads.org_id, heads.lane) AND ${unclaimed} AND ${ofOrg}
              ORDER BY ${backlogLane(sql)}, p.due_at LIMIT 1
            ) AS next WHERE heads.turn < ${maxLanesRead}
          ), due AS (
            SELECT 1 FROM ${head} WHERE ${ofOrg}
            UNION ALL
            SELECT 1 FROM pending_deliveries p WHERE backlogged AND ${unclaimed} AND ${ofOrg}
            LIMIT ${limit}
          ), oldest AS (
            SELECT min(due_at) AS at FROM ${head} WHERE ${ofOrg}
            UNION ALL
            SELECT min(due_at) FROM heads
          )
          SELECT (SELECT count(*)::int FROM due) AS count, (SELECT CASE WHEN min(at) > ${date(now)} THEN ${date(now)} ELSE min(at) END FROM oldest) AS oldest`.pipe(
    Effect.map(([row]) => ({
      count: row!.count,
      oldestDueAt: row!.oldest === null ? null : DateTime.fromDateUnsafe(row!.oldest),
    })),
  )
}

/** The due deliveries of several databases together, up to `limit`, and the oldest. */
export const sumDue = (counts: ReadonlyArray<Effect.Success<ReturnType<typeof countDue>>>, limit: number) => ({
  count: Math.min(
    limit,
    counts.reduce((sum, { count }) => sum + count, 0),
  ),
  oldestDueAt: counts
    .map(({ oldestDueAt }) => oldestDueAt)
    .reduce((a, b) => (a === null || (b !== null && DateTime.isLessThan(b, a)) ? b : a), null),
})
