import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Keys' rate limits and rotation, the answers of keyed operations, and the audit log. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    ALTER TABLE api_keys
      ADD COLUMN rate_limit integer,
      ADD COLUMN rate_window integer,
      ADD COLUMN replaced_by text COLLATE "C"`

  yield* sql`
    CREATE TABLE idempotency_keys (
      caller text COLLATE "C" NOT NULL,
      operation text COLLATE "C" NOT NULL,
      key text COLLATE "C" NOT NULL,
      record text NOT NULL,
      expires_at timestamptz NOT NULL,
      PRIMARY KEY (caller, operation, key)
    )`
  yield* sql`CREATE INDEX idempotency_keys_expired ON idempotency_keys (expires_at)`

  yield* sql`
    CREATE TABLE audit_log (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      at timestamptz NOT NULL,
      actor text NOT NULL,
      action text NOT NULL,
      target text NOT NULL,
      details text NOT NULL,
      request_id text
    )`
  yield* sql`CREATE INDEX audit_log_by_org ON audit_log (org_id, id)`
  // What was written down stays: nothing here updates it, and nobody else is to.
  yield* sql`
    CREATE FUNCTION audit_log_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'The audit log is never changed';
    END $$`
  yield* sql`
    CREATE TRIGGER audit_log_stays BEFORE UPDATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_stays()`
})
