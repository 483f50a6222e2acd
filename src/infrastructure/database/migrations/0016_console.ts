import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What the console reads: sessions, counts of what happened, and the replicas. A replica of the version before goes on as
 * before; what it does is not counted.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // Sessions of people and portal links. org_id is '' for the administrator's.
  yield* sql`
    CREATE TABLE sessions (
      org_id text COLLATE "C" NOT NULL,
      hash bytea NOT NULL,
      id text COLLATE "C" NOT NULL,
      kind text NOT NULL,
      credential_hash bytea NOT NULL,
      created_at timestamptz NOT NULL,
      expires_at timestamptz NOT NULL,
      PRIMARY KEY (org_id, hash)
    )`
  yield* sql`CREATE INDEX sessions_by_credential ON sessions (org_id, credential_hash, kind, id)`
  yield* sql`CREATE INDEX sessions_by_end ON sessions (expires_at)`

  // How often something happened in a minute, an hour and a day: a row of each. Rows with the org '' count every org.
  yield* sql`
    CREATE TABLE activity_counts (
      org_id text COLLATE "C" NOT NULL,
      every text COLLATE "C" NOT NULL,
      at timestamptz NOT NULL,
      kind text COLLATE "C" NOT NULL,
      outcome text COLLATE "C" NOT NULL,
      count bigint NOT NULL,
      PRIMARY KEY (org_id, every, at, kind, outcome)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX activity_counts_by_age ON activity_counts (every, at)`

  // Failed attempts of endpoints in an hour and a day, with the last of them.
  yield* sql`
    CREATE TABLE endpoint_failures (
      org_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C" NOT NULL,
      every text COLLATE "C" NOT NULL,
      at timestamptz NOT NULL,
      count bigint NOT NULL,
      last_at timestamptz NOT NULL,
      last_status integer,
      last_failure text,
      PRIMARY KEY (org_id, endpoint_id, every, at)
    ) WITH (fillfactor = 70)`
  yield* sql`
    CREATE INDEX endpoint_failures_by_age ON endpoint_failures (every, at) INCLUDE (org_id, endpoint_id, count)`

  yield* sql`
    CREATE TABLE replicas (
      id text COLLATE "C" PRIMARY KEY,
      started_at timestamptz NOT NULL,
      seen_at timestamptz NOT NULL
    )`
})
