import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"

/** Lanes whose oldest parked delivery is read. */
const maxLanesRead = 1_000

/**
 * Counts the due deliveries, up to `limit`, and finds the oldest. Reads the indexes of claims. For the oldest parked delivery
 * it reads the first of each lane, up to `maxLanesRead` lanes.
 */
export const countDue = (sql: SqlClient.SqlClient, now: DateTime.Utc, limit: number) => {
  const unclaimed = sql`(p.lease_until IS NULL OR p.lease_until <= ${date(now)})`
  return sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            SELECT '' COLLATE "C" AS org_id, '' COLLATE "C" AS lane, NULL::timestamptz AS due_at, 0 AS turn
            UNION ALL
            SELECT next.*, heads.turn + 1 FROM heads CROSS JOIN LATERAL (
              SELECT p.org_id, p.lane, p.due_at FROM pending_deliveries p
              WHERE p.parked AND (p.org_id, p.lane) > (heads.org_id, heads.lane) AND ${unclaimed}
              ORDER BY p.org_id, p.lane, p.due_at LIMIT 1
            ) AS next WHERE heads.turn < ${maxLanesRead}
          ), due AS (
            SELECT 1 FROM pending_deliveries WHERE NOT parked AND due_at <= ${date(now)}
            UNION ALL
            SELECT 1 FROM pending_deliveries p WHERE parked AND due_at <= ${date(now)} AND ${unclaimed}
            LIMIT ${limit}
          ), oldest AS (
            SELECT min(due_at) AS at FROM pending_deliveries WHERE NOT parked
            UNION ALL
            SELECT min(due_at) FROM heads
          )
          SELECT (SELECT count(*)::int FROM due) AS count,
            (SELECT min(at) FROM oldest WHERE at <= ${date(now)}) AS oldest`.pipe(
    Effect.map(([row]) => ({
      count: row!.count,
      oldestDueAt: row!.oldest === null ? null : DateTime.fromDateUnsafe(row!.oldest),
    })),
  )
}
