import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { texts } from "./arrays.ts"
import { date } from "./fragments.ts"

/**
 * Cancels what is pending for endpoints. In the transaction that ends them, after their rows were changed: whoever
 * creates a delivery holds those rows until it is in. An attempt in flight is still recorded: its delivery keeps the
 * claim and its lease.
 */
export const cancelPending = (sql: SqlClient.SqlClient, endpointIds: ReadonlyArray<string>, now: DateTime.Utc) => sql`
  WITH held AS (
    SELECT d.id, d.lane FROM deliveries d
    JOIN pending_deliveries p ON p.lane = d.lane AND p.delivery_id = d.id
    WHERE p.lane = ANY(${texts(endpointIds)}) ORDER BY d.id FOR NO KEY UPDATE OF d
  ), gone AS (
    DELETE FROM pending_deliveries p USING held WHERE p.lane = held.lane AND p.delivery_id = held.id
    RETURNING p.delivery_id, p.claim_id, p.lease_until
  )
  UPDATE deliveries d SET state = 'canceled', updated_at = ${date(now)}, claim_id = gone.claim_id,
    lease_until = gone.lease_until
  FROM gone WHERE d.id = gone.delivery_id`
