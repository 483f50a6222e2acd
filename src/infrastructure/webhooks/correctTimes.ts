import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { TimesCorrection } from "../../domain/webhooks/DeliveryQueue.ts"
import { date } from "../database/fragments.ts"
import { isOrdered } from "./placeInLane.ts"

/** Lanes of the backlog that one batch reads. */
const maxLanesPerBatch = 1_000

/**
 * Makes overdue deliveries due again after the clock was set back. Reads the indexes of claims, and no more parked rows than
 * it moves. Skips rows that others have locked, as a claim does.
 */
export const correctTimes = (sql: SqlClient.SqlClient, { after, leaseUntil, limit, now }: TimesCorrection) =>
  sql<{ moved: number; org_id: string | null; lane: string }>`
          WITH RECURSIVE parked_lanes AS (
            SELECT ${after?.orgId ?? ""}::text COLLATE "C" AS org_id, ${after?.lane ?? ""}::text COLLATE "C" AS lane, 0 AS turn
            UNION ALL
            SELECT next.org_id, next.lane, before.turn + 1 FROM parked_lanes before CROSS JOIN LATERAL (
              SELECT org_id, lane FROM pending_deliveries p
              WHERE p.parked AND (p.org_id, p.lane) > (before.org_id, before.lane)
              ORDER BY p.org_id, p.lane LIMIT 1
            ) AS next WHERE before.turn < ${maxLanesPerBatch}
          ), ready AS (
            SELECT ctid AS place FROM pending_deliveries
            WHERE NOT parked AND due_at > ${date(now)}
              AND CASE WHEN claim_id IS NULL THEN tries = 0 ELSE due_at > ${date(leaseUntil)} END
            ORDER BY due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
          ), backlog AS (
            SELECT head.place FROM parked_lanes l CROSS JOIN LATERAL (
              SELECT ctid AS place FROM pending_deliveries p
              WHERE p.parked AND p.org_id = l.org_id AND p.lane = l.lane AND p.due_at > ${date(now)}
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
