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
      ADD COLUMN event_types text[]`
  // Few endpoints have patterns, and only these can name an event of the service's own.
  yield* sql`
    CREATE INDEX webhook_endpoints_with_patterns ON webhook_endpoints (org_id, id) WHERE event_types IS NOT NULL`
})
