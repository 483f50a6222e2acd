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
      due: (now, limit) =>
        sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            (SELECT lane, next_attempt_at FROM deliveries WHERE state = 'pending' AND parked
              ORDER BY lane, next_attempt_at LIMIT 1)
            UNION ALL
            SELECT next.lane, next.next_attempt_at FROM heads CROSS JOIN LATERAL (
              SELECT d.lane, d.next_attempt_at FROM deliveries d WHERE d.state = 'pending' AND d.parked
                AND d.lane > heads.lane ORDER BY d.lane, d.next_attempt_at LIMIT 1
            ) AS next
          ), due AS (
            SELECT 1 FROM deliveries WHERE state = 'pending' AND NOT parked AND next_attempt_at <= ${date(now)}
            UNION ALL
            SELECT 1 FROM deliveries WHERE state = 'pending' AND parked AND next_attempt_at <= ${date(now)}
            LIMIT ${limit}
          ), oldest AS (
            SELECT min(next_attempt_at) AS at FROM deliveries WHERE state = 'pending' AND NOT parked
            UNION ALL
            SELECT min(next_attempt_at) FROM heads
          )
          SELECT (SELECT count(*)::int FROM due) AS count,
            (SELECT min(at) FROM oldest WHERE at <= ${date(now)}) AS oldest`.pipe(
          Effect.map(([row]) => ({
            count: row!.count,
            oldestDueAt: row!.oldest === null ? null : DateTime.fromDateUnsafe(row!.oldest),
          })),
          orUnavailable,
        ),
    }),
  ),
)
