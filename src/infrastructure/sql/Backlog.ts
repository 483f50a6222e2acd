import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Backlog } from "../../domain/Backlog.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { date } from "./fragments.ts"

/**
 * The backlog in PostgreSQL, by the indexes that claims read: no more rows than the limit are looked at, and of the
 * parked ones' ages the first of each lane.
 */
export const layer = Layer.effect(
  Backlog,
  Effect.map(SqlClient.SqlClient, (sql) =>
    Backlog.of({
      due: (now, limit) => {
        const unclaimed = sql`(p.lease_until IS NULL OR p.lease_until <= ${date(now)})`
        return sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            (SELECT lane, due_at FROM pending_deliveries p WHERE parked AND ${unclaimed} ORDER BY lane, due_at LIMIT 1)
            UNION ALL
            SELECT next.lane, next.due_at FROM heads CROSS JOIN LATERAL (
              SELECT p.lane, p.due_at FROM pending_deliveries p WHERE p.parked AND p.lane > heads.lane AND ${unclaimed}
              ORDER BY p.lane, p.due_at LIMIT 1
            ) AS next
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
          orUnavailable,
        )
      },
    }),
  ),
)
