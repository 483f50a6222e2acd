import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { texts } from "./arrays.ts"
import { date } from "./fragments.ts"

/**
 * Cancels what is pending for endpoints. In the transaction that ends them, after their rows were changed: whoever
 * creates a delivery holds those rows until it is in. An attempt in flight keeps its claim, and is still recorded.
 */
export const cancelPending = (sql: SqlClient.SqlClient, endpointIds: ReadonlyArray<string>, now: DateTime.Utc) => sql`
  UPDATE deliveries SET state = 'canceled', next_attempt_at = NULL, parked = false, updated_at = ${date(now)}
  WHERE lane = ANY(${texts(endpointIds)}) AND state = 'pending'`
