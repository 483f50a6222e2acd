import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DeliveryTimes } from "../../domain/DeliveryTimes.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { date } from "./fragments.ts"

/**
 * The times of deliveries in PostgreSQL. By the indexes that claims read: of what is parked no more is looked at than is
 * moved. Rows are locked as by a claim, which waits for nobody.
 */
export const layer = Layer.effect(
  DeliveryTimes,
  Effect.map(SqlClient.SqlClient, (sql) =>
    DeliveryTimes.of({
      putRight: ({ now, leaseUntil, limit }) =>
        sql<{ id: string }>`
          WITH RECURSIVE parked_lanes AS (
            (SELECT lane FROM pending_deliveries WHERE parked ORDER BY lane LIMIT 1)
            UNION ALL
            SELECT next.lane FROM parked_lanes before CROSS JOIN LATERAL (
              SELECT lane FROM pending_deliveries p WHERE p.parked AND p.lane > before.lane ORDER BY p.lane LIMIT 1
            ) AS next
          ), ready AS (
            SELECT ctid AS place FROM pending_deliveries
            WHERE NOT parked AND due_at > ${date(now)}
              AND CASE WHEN claim_id IS NULL THEN tries = 0 ELSE due_at > ${date(leaseUntil)} END
            ORDER BY due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
          ), backlog AS (
            SELECT head.place FROM parked_lanes l CROSS JOIN LATERAL (
              SELECT ctid AS place FROM pending_deliveries p
              WHERE p.parked AND p.lane = l.lane AND p.due_at > ${date(now)}
              ORDER BY p.due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
            ) AS head
            LIMIT ${limit}
          ), late AS (
            SELECT place FROM ready UNION ALL SELECT place FROM backlog LIMIT ${limit}
          )
          UPDATE pending_deliveries
          SET due_at = CASE WHEN claim_id IS NULL OR parked THEN ${date(now)}::timestamptz ELSE ${date(leaseUntil)} END,
            lease_until = CASE WHEN claim_id IS NOT NULL THEN least(lease_until, ${date(leaseUntil)}) END
          WHERE ctid = ANY(ARRAY(SELECT place FROM late)) RETURNING delivery_id AS id`.pipe(
          Effect.map((rows) => rows.length),
          orUnavailable,
        ),
    }),
  ),
)
