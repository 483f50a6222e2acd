import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { rmSync } from "node:fs"
import { join } from "node:path"
import { keyId } from "#src/infrastructure/crypto/AesCipher.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { spawnCli } from "../support/cli.ts"
import { adminClient, freshFolder, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { encryptionKey } from "../support/server.ts"

const readableBy = `v1.${keyId(Buffer.from(encryptionKey, "base64"))}.`

/** SQL: a value of each type, which a careless copy would change. */
const values: Readonly<Record<string, string>> = {
  text: `'${readableBy}a "b" \\ (c, d) {e}' || chr(10) || 'ü'`,
  "text[]": `ARRAY['a,"b"', NULL, '', '{}']`,
  "integer[]": "ARRAY[1, NULL]",
  "timestamp with time zone[]": "ARRAY['2026-01-01 00:00:00.123456+00'::timestamptz]",
  "timestamp with time zone": "'2026-01-01 00:00:00.123456+00'",
  json: `'{ "b": 1.0, "b2": 9007199254740993, "a": "\\u0000" }'`,
  jsonb: `'{"a": [null, 1.10]}'`,
  jsonpath: `'$.a ? (@ == "b")'`,
  bytea: `'\\x00ff5c'`,
  boolean: "true",
  smallint: "-1",
  integer: "2147483647",
  bigint: "9007199254740993",
  "double precision": "0.1::float8 + 0.2",
}

/** Adds a row to every table, without a value for what the database counts itself. */
const fill = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.gen(function* () {
    const columns = yield* sql<{ table: string; column: string; type: string }>`
      SELECT c.relname AS table, quote_ident(attname) AS column, format_type(atttypid, NULL) AS type
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
      WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname <> 'gatehouse_migrations' AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        AND attidentity = '' AND pg_get_serial_sequence(c.oid::regclass::text, attname) IS NULL`
    for (const [table, all] of Map.groupBy(columns, (column) => column.table)) {
      const names = all.map(({ column }) => column).join(", ")
      yield* sql.unsafe(
        `INSERT INTO ${table} (${names}) SELECT ${all.map(({ type }) => values[type] ?? `no value of ${type}`).join(", ")}`,
      )
    }
    // A range of time that is being removed, and one of its own, with more than a batch holds in rows and in bytes.
    yield* sql`INSERT INTO events (id, org_id, type, body, created_at) VALUES ('#', 'o', 't', '{}', now())`
    yield* sql`ALTER TABLE events DETACH PARTITION events_old`
    yield* sql`ALTER TABLE events_old RENAME TO gone_events_old1`
    yield* sql`CREATE TABLE events_x PARTITION OF events FOR VALUES FROM ('!') TO ('/')`
    yield* sql`ALTER TABLE events_x ALTER COLUMN org_id SET (n_distinct = -0.01)`
    yield* sql`
      INSERT INTO events (id, org_id, type, body, created_at)
      SELECT '#' || n, 'o', 't', repeat('€', CASE WHEN n % 1000 = 0 THEN 1000000 ELSE 1 END), now()
      FROM generate_series(1, 2500) AS n`
  }),
)

/** The digest of every table's rows, and the next numbers of the sequences. */
const content = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.gen(function* () {
    const tables = yield* sql<{ name: string }>`
      SELECT relname AS name, pg_get_expr(relpartbound, oid) AS range, reloptions::text,
        (SELECT string_agg(attoptions::text, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = pg_class.oid AND relispartition) AS columns
      FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND relname <> 'gatehouse_migrations' ORDER BY 1`
    const rows = yield* Effect.forEach(tables, (table) =>
      Effect.map(
        sql.unsafe<{ count: number; md5: string }>(
          `SELECT count(*)::int AS count, md5(coalesce(string_agg(md5(t::text), '' ORDER BY md5(t::text)), '')) AS md5
           FROM ${table.name} AS t`,
        ),
        ([row]) => ({ ...table, ...row! }),
      ),
    )
    return { rows, sequences: yield* sql`SELECT sequencename, last_value::text FROM pg_sequences ORDER BY 1` }
  }),
)

const inFolder = <A, E>(dataDir: string, effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
  Effect.provide(effect, Database.layer({ dataDir }))

it.live("move-data copies every value of every table to PostgreSQL, into the same ranges of time", function* () {
  const [dataDir, url] = [yield* freshFolder(), yield* freshPostgres("empty")]
  const env = { DATA_DIR: dataDir, DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }
  yield* inFolder(dataDir, fill)
  const otherKey = { ...env, ENCRYPTION_KEY: Buffer.alloc(32, 7).toString("base64") }
  expect(yield* spawnCli(["move-data"], { env: otherKey })).toMatchObject({
    code: 1,
    err: expect.stringContaining("cannot be decrypted: ENCRYPTION_KEY does not have the key"),
  })
  const moved = yield* spawnCli(["move-data"], { env })
  expect(moved).toMatchObject({ code: 0, err: expect.stringContaining("Everything is copied") })
  expect(moved.err).toMatch(/^events: 2,?501 rows$/m)
  const target = yield* adminClient(url)
  const [before, after] = [
    yield* inFolder(dataDir, content),
    yield* Effect.provideService(content, SqlClient.SqlClient, target),
  ]
  expect(after).toEqual(before)
  expect(
    before.rows.filter(({ count, name }) => count === 0 && !name.endsWith("_old")).map(({ name }) => name),
  ).toEqual([])
  expect((yield* spawnCli(["move-data"], { env })).err).toContain("is not empty (activity_counts has rows)")
})

it.live("move-data refuses a folder without a database, one in use, and a missing DATABASE_URL", function* () {
  const [dataDir, url] = [yield* freshFolder(), yield* freshPostgres("empty")]
  const env = { DATA_DIR: dataDir, DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }
  expect(yield* spawnCli(["move-data"], { env: { DATA_DIR: dataDir } })).toMatchObject({
    code: 2,
    err: "gatehouse: Set DATABASE_URL to the PostgreSQL that gets the data\n",
  })
  const inUse = yield* inFolder(dataDir, spawnCli(["move-data"], { env }))
  expect(inUse).toMatchObject({ code: 1, err: expect.stringContaining("is in use by another process") })
  rmSync(join(dataDir, "postgres"), { recursive: true })
  const { err } = yield* spawnCli(["move-data"], { env })
  expect(err).toBe(`gatehouse: DATA_DIR ${dataDir} has no database. Set DATA_DIR to the folder that has it\n`)
})
