import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Events of the user's own and of the service's own, which have no job, and which endpoint receives which events. A replica
 * of the version before goes on: it sends the events of jobs to every endpoint.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    ALTER TABLE events
      ALTER COLUMN job_id DROP NOT NULL,
      ALTER COLUMN type TYPE text COLLATE "C",
      ADD COLUMN idempotency_key text,
      DROP CONSTRAINT IF EXISTS events_org_id_fkey,
      DROP CONSTRAINT IF EXISTS events_job_id_fkey`
  yield* sql`
    CREATE UNIQUE INDEX events_idempotency ON events (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL`
  yield* sql`CREATE INDEX events_by_org ON events (org_id, id)`
  yield* sql`CREATE INDEX events_by_type ON events (org_id, type, id)`
  // Partial, so that an event without a job has no entry in it.
  yield* sql`CREATE UNIQUE INDEX events_by_job ON events (job_id) WHERE job_id IS NOT NULL`
  yield* sql`DROP INDEX events_one_per_job`

  yield* sql`
    ALTER TABLE deliveries
      ALTER COLUMN job_id DROP NOT NULL,
      DROP CONSTRAINT IF EXISTS deliveries_org_id_fkey`
  // Each delivery is in one of the two: it is found by its job, or by its event.
  yield* sql`CREATE INDEX deliveries_of_job ON deliveries (job_id) WHERE job_id IS NOT NULL`
  yield* sql`CREATE INDEX deliveries_of_event ON deliveries (event_id) WHERE job_id IS NULL`
  yield* sql`DROP INDEX deliveries_by_job`

  // Where one org has nearly all rows, statistics would say that to read an org is to read the table.
  for (const table of ["events", "deliveries"]) {
    yield* sql`ALTER TABLE ${sql(table)} ALTER COLUMN org_id SET (n_distinct = -0.01)`
  }
  yield* sql`ALTER TABLE events ALTER COLUMN type SET (n_distinct = 100)`

  yield* sql`
    ALTER TABLE webhook_endpoints
      ADD COLUMN event_types text[],
      ADD COLUMN headers text,
      ADD COLUMN header_names text[],
      ADD COLUMN max_per_second integer,
      ADD COLUMN ordered boolean NOT NULL DEFAULT false,
      ADD COLUMN retry_delays integer[],
      ADD COLUMN signature text NOT NULL DEFAULT 'hmac'`
  // Few endpoints have patterns, and only these can name an event of the service's own.
  yield* sql`
    CREATE INDEX webhook_endpoints_with_patterns ON webhook_endpoints (org_id, id) WHERE event_types IS NOT NULL`

  // The Ed25519 keys of orgs.
  yield* sql`
    CREATE TABLE org_signing_keys (
      org_id text COLLATE "C" PRIMARY KEY,
      public_key text NOT NULL,
      private_key text NOT NULL,
      previous_public_key text,
      previous_private_key text,
      previous_until timestamptz,
      created_at timestamptz NOT NULL
    )`
  // When an endpoint with a limit per second may send its next delivery. A table of its own: an event locks the endpoint's
  // row, and a claim must not wait for it.
  yield* sql`
    CREATE TABLE endpoint_paces (
      org_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C" NOT NULL,
      next_at timestamptz NOT NULL,
      PRIMARY KEY (org_id, endpoint_id)
    )`
  // With the id, for lanes that send in order: their rows are read in this order, and no two of them have the same place.
  yield* sql`
    CREATE INDEX pending_deliveries_in_order ON pending_deliveries (org_id, lane, due_at, delivery_id)
    WITH (deduplicate_items = off) WHERE parked`
  yield* sql`DROP INDEX pending_deliveries_backlog`
})
