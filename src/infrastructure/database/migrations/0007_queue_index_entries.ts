import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * An index entry for each row of the queue: deliveries that are due at the same time (`recover`, a burst of jobs) shared one,
 * and PostgreSQL drops that only when all of them are gone, so that a claim read again what had long been delivered
 * (ADR 11).
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`ALTER INDEX pending_deliveries_due SET (deduplicate_items = off)`
  yield* sql`ALTER INDEX pending_deliveries_parked SET (deduplicate_items = off)`
})
