import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * So that old events can go: without this reference, for which every event that goes would have all deliveries read
 * through. Deliveries are made by the statement that makes their event, and go in the transaction that takes it away.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`ALTER TABLE deliveries DROP CONSTRAINT deliveries_event_id_fkey`
})
