import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Orgs take turns in the queue, and what an org can make large is changed in the background (ADR 13). A replica of the
 * version before goes on: what it queues has no org, which is a turn of its own.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // The lane of an endpoint changes when the endpoint is deactivated: what is pending in another lane is canceled.
  yield* sql`
    ALTER TABLE webhook_endpoints
      ADD COLUMN lane text COLLATE "C",
      ADD COLUMN failures integer NOT NULL DEFAULT 0,
      ADD COLUMN deactivated_at timestamptz,
      ADD COLUMN deactivated_reason text`

  yield* sql`
    ALTER TABLE pending_deliveries
      ADD COLUMN org_id text COLLATE "C" NOT NULL DEFAULT '',
      ADD COLUMN bytes integer NOT NULL DEFAULT 0`
  yield* sql`
    UPDATE pending_deliveries p SET org_id = d.org_id, bytes = octet_length(e.body)
    FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.id = p.delivery_id`
  yield* sql`
    CREATE INDEX pending_deliveries_backlog ON pending_deliveries (org_id, lane, due_at)
    WITH (deduplicate_items = off) WHERE parked`
  yield* sql`DROP INDEX pending_deliveries_parked`

  // Generated, so that it is right whichever version writes; null while pending and once delivered, so that the
  // update of a delivery that succeeds changes no index.
  yield* sql`
    ALTER TABLE deliveries ADD COLUMN unsuccessful text
      GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'canceled', 'skipped') THEN state END) STORED`
  yield* sql`
    CREATE INDEX deliveries_unsuccessful ON deliveries (org_id, unsuccessful, id) WHERE unsuccessful IS NOT NULL`
  yield* sql`
    CREATE INDEX deliveries_unsuccessful_by_endpoint ON deliveries (endpoint_id, id) INCLUDE (created_at)
    WHERE unsuccessful IS NOT NULL`

  // Lanes of callbacks whose last attempt failed.
  yield* sql`
    CREATE TABLE failing_callbacks (
      lane text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      failing_since timestamptz NOT NULL
    )`

  // Changes of many rows that are decided and not yet made to every row.
  yield* sql`
    CREATE TABLE sweeps (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      kind text NOT NULL,
      endpoint_id text COLLATE "C",
      lane text COLLATE "C",
      event_id text COLLATE "C",
      receivers text[],
      since timestamptz,
      until timestamptz,
      done_to text COLLATE "C" NOT NULL DEFAULT '',
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX sweeps_by_org ON sweeps (org_id, id)`
  yield* sql`CREATE INDEX sweeps_by_endpoint ON sweeps (endpoint_id, id) WHERE endpoint_id IS NOT NULL`
})
