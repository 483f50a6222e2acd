import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * A delivery is written less often (ADR 11): its last attempt stands in its own row, those before it in
 * `delivery_attempts`; and a claim has a column of its own, so that one of the backlog changes no index.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    ALTER TABLE deliveries
      ADD COLUMN attempt_started_at timestamptz,
      ADD COLUMN attempt_duration_ms integer,
      ADD COLUMN attempt_status integer,
      ADD COLUMN attempt_failure text,
      ADD COLUMN attempt_error text,
      ADD COLUMN attempt_body text`

  yield* sql`ALTER TABLE pending_deliveries ADD COLUMN lease_until timestamptz`
  yield* sql`UPDATE pending_deliveries SET lease_until = due_at WHERE claim_id IS NOT NULL`
  // Each row is changed by its claim: with room for that on its page, its indexes stay as they are.
  yield* sql`ALTER TABLE pending_deliveries SET (fillfactor = 50)`
})
