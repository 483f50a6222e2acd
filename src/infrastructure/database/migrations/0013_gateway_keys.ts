import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What a gateway asks of keys: settings, limits that are exact over all replicas, usage. A replica of the version before
 * goes on as before: it ignores the settings of keys, and counts rate limits by itself.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // counter_id: the counter of the key's limits; null is the key's own id. A replacement has the counter of the old key.
  yield* sql`
    ALTER TABLE api_keys
      ADD COLUMN enabled boolean NOT NULL DEFAULT true,
      ADD COLUMN leaked_at timestamptz,
      ADD COLUMN permissions json,
      ADD COLUMN external_id text COLLATE "C",
      ADD COLUMN metadata json,
      ADD COLUMN counter_id text COLLATE "C"`
  yield* sql`
    CREATE INDEX api_keys_by_external_id ON api_keys (org_id, external_id, id) WHERE external_id IS NOT NULL`
  yield* sql`CREATE INDEX api_keys_by_counter ON api_keys (org_id, counter_id) WHERE counter_id IS NOT NULL`

  // By id first: a list of ids is a list of index entries, whatever the orgs. Limits, and what is taken of them. Created with the first limit of a key; then rate_limit and rate_window count here,
  // and those of api_keys are for replicas of the version before. Times are milliseconds since 1970, as the arithmetic has
  // them. Updated often: there is space for updates in the same page.
  yield* sql`
    CREATE TABLE key_counters (
      org_id text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      version integer NOT NULL,
      rate_limit integer,
      rate_window integer,
      rate_used bigint NOT NULL,
      rate_current integer NOT NULL,
      rate_previous integer NOT NULL,
      rate_at bigint NOT NULL,
      credits bigint,
      credits_since bigint,
      refill_amount bigint,
      refill_every text,
      PRIMARY KEY (id, org_id)
    ) WITH (fillfactor = 70)`

  // Validations by key and hour (hours since 1970). Rows without a key are the sums of their org.
  yield* sql`
    CREATE TABLE key_usage (
      org_id text COLLATE "C" NOT NULL,
      key_id text COLLATE "C" NOT NULL,
      hour integer NOT NULL,
      valid bigint NOT NULL,
      forbidden bigint NOT NULL,
      limited bigint NOT NULL,
      cost bigint NOT NULL,
      PRIMARY KEY (org_id, key_id, hour)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX key_usage_by_hour ON key_usage (hour)`
})
