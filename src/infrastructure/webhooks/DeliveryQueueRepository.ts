import { DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import { LRUCache } from "lru-cache"
import {
  type AttemptRecord,
  type Claim,
  type ClaimedDelivery,
  DeliveryQueue,
  type TimesCorrection,
} from "../../domain/webhooks/DeliveryQueue.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { Database } from "../database/Database.ts"
import { date, texts } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { countDue, overShards } from "./shardQueues.ts"
import { type ClaimedRow, claimSql, hasDue, maxHeadSize, minHeadSize, toClaimed } from "./claimDeliveries.ts"
import { isOrdered, parkedLane } from "./lanes.ts"
import { recordAttempts } from "./recordAttempts.ts"

/**
 * Counts the bytes of attempts. The row of a delivery has the texts of its last one; each one before has a row of its
 * own.
 */
const countAttempts = (usage: OrgUsage["Service"], records: ReadonlyArray<AttemptRecord>) => {
  for (const { delivery, outcome } of records) {
    const texts = byteLength(outcome.failure?.message, outcome.body)
    usage.addBytes(delivery.orgId, texts + (delivery.attempts > 0 ? rowCost.attempt : 0))
  }
}

/**
 * Releases claims. A delivery that was canceled in flight is not in the queue; its own row loses the claim. Locks the
 * deliveries first, in the order of their ids, like every statement that changes deliveries. Uses arrays in place of
 * joins: PostgreSQL may have planned a join when the table was small, and that plan reads the whole table. `commit` is
 * evaluated in the transaction.
 */
const releaseSql = (
  sql: SqlClient.SqlClient,
  unsorted: ReadonlyArray<ClaimedDelivery>,
  now: DateTime.Utc,
  commit: Statement.Fragment,
) => {
  const deliveries = unsorted.toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
  const ids = texts(deliveries.map(({ deliveryId }) => deliveryId))
  const claims = texts(deliveries.map(({ claimId }) => claimId))
  return sql`
    WITH transaction AS MATERIALIZED (
      SELECT ${commit}
    ), held AS (
      SELECT given.*, d.lane FROM transaction CROSS JOIN unnest(${ids}, ${claims}) AS given (id, claim_id)
      CROSS JOIN LATERAL (SELECT lane FROM deliveries WHERE id = given.id FOR NO KEY UPDATE) AS d
    ), queued AS (
      UPDATE pending_deliveries p SET claim_id = NULL, lease_until = NULL,
        due_at = CASE WHEN p.parked THEN p.due_at ELSE ${date(now)} END, parked = true
      WHERE p.lane = ANY(ARRAY(SELECT lane FROM held)) AND p.delivery_id = ANY(${ids})
        AND p.claim_id = (SELECT claim_id FROM held WHERE id = p.delivery_id AND lane = p.lane)
    )
    UPDATE deliveries d SET claim_id = NULL, lease_until = NULL
    WHERE d.id = ANY(${ids}) AND d.claim_id = (SELECT claim_id FROM held WHERE id = d.id)`
}

/** Orgs whose last lane this process remembers; the turn of any other org begins at its first lane. */
const maxRememberedOrgs = 256

/** Remembers where the next claim of this process continues. */
const makeTurns = () => {
  const lastLanes = new LRUCache<string, string>({ max: maxRememberedOrgs })
  let lastOrg = ""
  let headSize = minHeadSize
  return {
    current: () => ({ lastOrg, lastLanes, headSize }),
    advance: ([first]: ReadonlyArray<ClaimedRow>) => {
      const { turns, last_org, parked } = first!
      lastOrg = last_org ?? ""
      for (const [org, lane] of Object.entries(turns ?? {})) lastLanes.set(org, lane)
      headSize = parked > headSize / 2 ? Math.min(2 * headSize, maxHeadSize) : minHeadSize
    },
  }
}

/** The queue of deliveries in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const usage = yield* OrgUsage
    const { kind } = yield* Database
    // A claim, record or release need not survive a crash of PostgreSQL: it is repeated, or its lease expires. So its
    // commit does not wait for the disk. The embedded database crashes whenever the process ends, and only commits that
    // wait reach its disk. A claim ends with the process anyway, but a record must survive.
    const asyncCommit = sql`set_config('synchronous_commit', 'off', true)`
    const recordCommit = kind === "postgres" ? asyncCommit : sql`NULL`

    const make = (turns = makeTurns()) => ({
      claim: (claim: Claim) =>
        Effect.suspend(() => claimSql(sql, claim, turns.current(), asyncCommit)).pipe(
          Effect.map((rows) => {
            turns.advance(rows)
            const { more, paced_until: pacedUntil, short } = rows[0]!
            return {
              deliveries: toClaimed(rows, claim.claimId),
              more,
              short,
              pacedUntil: pacedUntil === null ? null : DateTime.fromDateUnsafe(pacedUntil),
            }
          }),
          orUnavailable,
        ),

      record: (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) =>
        records.length === 0
          ? Effect.void
          : recordAttempts(sql, random, records, now, recordCommit).pipe(
              orUnavailable,
              Effect.tap(() => Effect.sync(() => countAttempts(usage, records))),
            ),

      release: (deliveries: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
        deliveries.length === 0
          ? Effect.void
          : releaseSql(sql, deliveries, now, recordCommit).pipe(Effect.asVoid, orUnavailable),

      nextDueAt: sql<{ next: Date | null }>`
        SELECT min(due_at) AS next FROM pending_deliveries WHERE NOT parked`.pipe(
        Effect.map(([row]) => (row?.next == null ? null : DateTime.fromDateUnsafe(row.next))),
        orUnavailable,
      ),

      countDue: (now: DateTime.Utc, limit: number) => orUnavailable(countDue(sql, now, limit)),
      correctTimes: (correction: TimesCorrection) => orUnavailable(correctTimes(sql, correction)),
    })
    return DeliveryQueue.of(overShards(sql, make, (now) => hasDue(sql, now)))
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** Lanes of the backlog that one batch reads. */
const maxLanesPerBatch = 1_000

/**
 * Makes overdue deliveries due again after the clock was set back. Reads the indexes of claims, and no more parked rows
 * than it moves. Skips rows that others have locked, as a claim does.
 */
const correctTimes = (sql: SqlClient.SqlClient, { after, leaseUntil, limit, now }: TimesCorrection) =>
  sql<{ moved: number; org_id: string | null; lane: string }>`
          WITH RECURSIVE parked_lanes AS (
            SELECT ${after?.orgId ?? ""}::text COLLATE "C" AS org_id, ${after?.lane ?? ""}::text COLLATE "C" AS lane, 0 AS turn
            UNION ALL
            SELECT next.org_id, next.lane, before.turn + 1 FROM parked_lanes before CROSS JOIN LATERAL (
              SELECT org_id, lane FROM pending_deliveries p
              WHERE p.parked AND (p.org_id, ${parkedLane(sql)}) > (before.org_id, before.lane)
              ORDER BY p.org_id, ${parkedLane(sql)} LIMIT 1
            ) AS next WHERE before.turn < ${maxLanesPerBatch}
          ), ready AS (
            SELECT ctid AS place FROM pending_deliveries
            WHERE NOT parked AND due_at > ${date(now)}
              AND CASE WHEN claim_id IS NULL THEN tries = 0 ELSE due_at > ${date(leaseUntil)} END
            ORDER BY due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
          ), backlog AS (
            SELECT head.place FROM parked_lanes l CROSS JOIN LATERAL (
              SELECT ctid AS place FROM pending_deliveries p
              WHERE p.parked AND p.org_id = l.org_id AND ${parkedLane(sql)} = l.lane AND p.due_at > ${date(now)}
              ORDER BY p.due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
            ) AS head
            -- In a lane that sends in order, due_at is the order.
            WHERE l.turn > 0 AND NOT ${isOrdered(sql, "left(l.lane, 26)")} LIMIT ${limit}
          ), late AS (
            SELECT place FROM ready UNION ALL SELECT place FROM backlog LIMIT ${limit}
          ), moved AS (
            UPDATE pending_deliveries
            SET due_at = CASE WHEN claim_id IS NULL OR parked THEN ${date(now)}::timestamptz ELSE ${date(leaseUntil)} END,
              lease_until = CASE WHEN claim_id IS NOT NULL THEN least(lease_until, ${date(leaseUntil)}) END
            WHERE ctid = ANY(ARRAY(SELECT place FROM late)) RETURNING 1
          )
          SELECT (SELECT count(*)::int FROM moved) AS moved, last.* FROM (SELECT) AS one
          LEFT JOIN (SELECT org_id, lane FROM parked_lanes WHERE turn = ${maxLanesPerBatch}) AS last ON true`.pipe(
    Effect.map(([row]) => {
      const { lane, moved, org_id } = row!
      // A full batch may have left rows in the same lanes.
      if (moved === limit) return { moved, next: after ?? { orgId: "", lane: "" } }
      return { moved, next: org_id === null ? null : { orgId: org_id, lane } }
    }),
  )
