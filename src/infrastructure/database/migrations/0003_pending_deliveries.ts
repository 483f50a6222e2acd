import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The queue as a narrow table of its own, with a row for each pending delivery and none for any other (ADR 3). What
 * was in `deliveries` for the queue moves there; a replica of the version before cannot finish a job from here on.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE pending_deliveries (
      lane text COLLATE "C" NOT NULL,
      delivery_id text COLLATE "C" NOT NULL,
      event_id text COLLATE "C" NOT NULL,
      attempts integer NOT NULL,
      tries integer NOT NULL,
      due_at timestamptz NOT NULL,
      parked boolean NOT NULL,
      claim_id text COLLATE "C",
      PRIMARY KEY (lane, delivery_id)
    )`
  yield* sql`
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, claim_id)
    SELECT lane, id, event_id, attempts, tries, next_attempt_at, parked, claim_id FROM deliveries
    WHERE state = 'pending' ORDER BY id`
  // Each row is in one of the two. A claim reads the head of the first; what a full lane cannot take yet is parked in
  // the second, out of its way.
  yield* sql`CREATE INDEX pending_deliveries_due ON pending_deliveries (due_at) WHERE NOT parked`
  yield* sql`CREATE INDEX pending_deliveries_parked ON pending_deliveries (lane, due_at) WHERE parked`

  yield* sql`DROP INDEX deliveries_due, deliveries_parked, deliveries_pending_by_lane`
  // What is left is the claim of an attempt that was in flight when its delivery was canceled, and how long it holds.
  yield* sql`UPDATE deliveries SET claim_id = NULL, next_attempt_at = NULL WHERE state = 'pending'`
  yield* sql`ALTER TABLE deliveries RENAME COLUMN next_attempt_at TO lease_until`
  yield* sql`ALTER TABLE deliveries DROP COLUMN parked, DROP COLUMN tries`
  // Every row is changed at least once: with room for that on its page, its indexes stay as they are.
  yield* sql`ALTER TABLE deliveries SET (fillfactor = 50)`
  // Attempts are written by the statement that has just changed their delivery, and go with it.
  yield* sql`ALTER TABLE delivery_attempts DROP CONSTRAINT delivery_attempts_delivery_id_fkey`
})
