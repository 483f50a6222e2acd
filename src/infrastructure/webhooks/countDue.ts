import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"

/** Lanes whose oldest parked delivery is read. */
const maxLanesRead = 1_000

/**
 * Counts the due deliveries, up to `limit`, and finds the oldest. Reads the indexes of claims. For the oldest parked delivery
 * it reads the first of each lane, up to `maxLanesRead` lanes. With an org, it counts that org's.
 */
export const countDue = (sql: SqlClient.SqlClient, now: DateTime.Utc, limit: number, orgId: string | null = null) => {
  const ofOrg = orgId === null ? sql.literal("true") : sql`p.org_id = ${orgId}`
  // The head of the queue has no index by org: an org's deliveries are counted among the first of all.
  const head = sql`
    (SELECT due_at, org_id FROM pending_deliveries WHERE NOT parked AND due_at <= ${date(now)} ORDER BY due_at
     LIMIT ${limit}) AS p`
  const unclaimed = sql`(p.lease_until IS NULL OR p.lease_until <= ${date(now)})`
  return sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            SELECT ${orgId ?? ""}::text COLLATE "C" AS org_id, '' COLLATE "C" AS lane, NULL::timestamptz AS due_at, 0 AS turn
            UNION ALL
            SELECT next.*, heads.turn + 1 FROM heads CROSS JOIN LATERAL (
              SELECT p.org_id, p.lane, p.due_at FROM pending_deliveries p
              WHERE p.parked AND (p.org_id, p.lane) > (heads.org_id, heads.lane) AND ${unclaimed} AND ${ofOrg}
              ORDER BY p.org_id, p.lane, p.due_at LIMIT 1
            ) AS next WHERE heads.turn < ${maxLanesRead}
          ), due AS (
            SELECT 1 FROM ${head} WHERE ${ofOrg}
            UNION ALL
            SELECT 1 FROM pending_deliveries p WHERE parked AND due_at <= ${date(now)} AND ${unclaimed} AND ${ofOrg}
            LIMIT ${limit}
          ), oldest AS (
            SELECT min(due_at) AS at FROM ${head} WHERE ${ofOrg}
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
