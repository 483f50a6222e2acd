import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { texts } from "./arrays.ts"
import { date } from "./fragments.ts"

/**
 * Cancels what is pending for endpoints. In the transaction that ends them, after their rows were changed: whoever
 * creates a delivery holds those rows until it is in. An attempt in flight keeps its claim and lease, and is still
 * recorded.
 */
export const cancelPending = (sql: SqlClient.SqlClient, endpointIds: ReadonlyArray<string>, now: DateTime.Utc) => sql`
  WITH held AS (
    SELECT id FROM deliveries WHERE lane = ANY(${texts(endpointIds)}) AND state = 'pending' ORDER BY id FOR UPDATE
  )
  UPDATE deliveries SET state = 'canceled', parked = false, updated_at = ${date(now)},
    next_attempt_at = CASE WHEN claim_id IS NOT NULL THEN next_attempt_at END
  WHERE id IN (SELECT id FROM held)`
