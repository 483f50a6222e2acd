import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Limits of one org, and the bytes that each org has stored. A replica of the version before goes on as before; what it
 * stores is not counted.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE org_usage (
      org_id text COLLATE "C" PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
      stored_bytes bigint NOT NULL
    )`
  // Lengths of long values are in their rows: no value is read.
  yield* sql`
    INSERT INTO org_usage (org_id, stored_bytes)
    SELECT org_id, sum(bytes) FROM (
      SELECT org_id, coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
        + coalesce(octet_length(mapped_stack), 0) AS bytes FROM jobs
      UNION ALL
      SELECT org_id, octet_length(body) FROM events
      UNION ALL
      SELECT org_id, octet_length(input) FROM job_schedules WHERE input IS NOT NULL
    ) AS stored GROUP BY org_id`
  // Only the limits that differ from the defaults: { "keys": 20000 }. Last, for nobody reads orgs from here on.
  yield* sql`ALTER TABLE orgs ADD COLUMN limits jsonb`
})
