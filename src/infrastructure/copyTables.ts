import { Data, Effect, type Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { checkSecrets } from "./checks/checkSecrets.ts"
import { embeddedClient } from "./database/Database.ts"
import * as EmbeddedDatabase from "./database/embedded/EmbeddedDatabase.ts"
import { texts } from "./database/fragments.ts"
import { migrate } from "./database/Migrations.ts"
import { migrationClient } from "./database/PostgresDatabase.ts"

/** Data cannot be moved. `message` is one line that says what to do. */
export class NotMoved extends Data.TaggedError("NotMoved")<{ readonly message: string }> {}

/** Rows and bytes of one batch. A longer row is a batch of its own. */
const maxRows = 1_000
const maxBytes = 8 * 1024 * 1024

type Sql = SqlClient.SqlClient

interface Table {
  readonly name: string
  /** The table that it was a partition of, while it is being removed. */
  readonly parent: string | null
  /** The columns that a row can be inserted with. */
  readonly columns: ReadonlyArray<string>
}

const tablesOf = (sql: Sql) => sql<Table>`
  SELECT c.relname AS name, substring(c.relname FROM '^gone_(.*)_[^_]*$') AS parent,
    (SELECT json_agg(quote_ident(attname) ORDER BY attnum) FROM pg_attribute
      WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns
  FROM pg_class c
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relname <> 'gatehouse_migrations'
  ORDER BY 1`

/** The partitions, with the statements that give them their settings. */
const partitionsOf = (sql: Sql) => sql<{
  name: string
  parent: string
  range: string
  settings: ReadonlyArray<string>
}>`
  SELECT c.relname AS name, p.relname AS parent, pg_get_expr(c.relpartbound, c.oid) AS range, to_json(ARRAY(
    SELECT format('SET (%s)', array_to_string(c.reloptions, ', ')) WHERE c.reloptions IS NOT NULL
    UNION ALL SELECT format('ALTER COLUMN %I SET (%s)', attname, array_to_string(attoptions, ', ')) FROM pg_attribute
    WHERE attrelid = c.oid AND attoptions IS NOT NULL)) AS settings
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'`

const countsOf = (sql: Sql, tables: ReadonlyArray<Table>) =>
  sql<{ name: string; rows: number }>`${sql.literal(
    tables.map(({ name }) => `SELECT '${name}' AS name, count(*)::float8 AS rows FROM ${name}`).join(" UNION ALL "),
  )} ORDER BY 1`

/** Gives the empty database the ranges of time that the other one has, so that old rows leave when they should. */
const copyPartitions = Effect.fnUntraced(function* (source: Sql, target: Sql) {
  for (const { name } of yield* partitionsOf(target)) yield* target.unsafe(`DROP TABLE ${name}`)
  for (const { name, parent, range, settings } of yield* partitionsOf(source)) {
    yield* target.unsafe(`CREATE TABLE ${name} PARTITION OF ${parent} ${range}`)
    for (const setting of settings) yield* target.unsafe(`ALTER TABLE ${name} ${setting}`)
  }
})

/** Copies the rows of a table, as text, which is exact for every type. Returns their number. */
const copyRows = Effect.fnUntraced(function* (source: Sql, target: Sql, { columns, name }: Table) {
  yield* source.unsafe(`DECLARE sizes CURSOR FOR SELECT octet_length(t::text) AS bytes FROM ${name} AS t`)
  yield* source.unsafe(`DECLARE rows CURSOR FOR SELECT t::text AS row FROM ${name} AS t`)
  const nextSizes = Effect.map(source.unsafe<{ bytes: number }>(`FETCH ${maxRows} FROM sizes`), (rows) =>
    rows.map(({ bytes }) => bytes),
  )
  let copied = 0
  for (let sizes = yield* nextSizes; sizes.length > 0; sizes = yield* nextSizes) {
    while (sizes.length > 0) {
      let bytes = sizes.shift()!
      let count = 1
      while (sizes.length > 0 && bytes + sizes[0]! <= maxBytes) {
        bytes += sizes.shift()!
        count++
      }
      const rows = yield* source.unsafe<{ row: string }>(`FETCH ${count} FROM rows`)
      yield* target`
        INSERT INTO ${target.literal(name)} (${target.literal(columns.join(", "))})
        SELECT ${target.literal(columns.join(", "))}
        FROM unnest(${texts(rows.map(({ row }) => row))}::text[]::${target.literal(name)}[])`
      copied += count
    }
  }
  yield* source`CLOSE sizes`
  yield* source`CLOSE rows`
  return copied
})

/**
 * Copies everything in the embedded database of a folder to an empty PostgreSQL, in one transaction there: a copy that
 * ends early leaves it empty. Returns the rows of each table.
 *
 * @param keys the encryption keys, which stay the same
 * @param onCopied is told each table
 */
export const moveData = Effect.fnUntraced(
  function* (
    dataDir: string,
    url: Redacted.Redacted<string>,
    keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
    onCopied: (table: string, rows: number) => Effect.Effect<void>,
  ) {
    if (!existsSync(join(dataDir, "postgres"))) {
      return yield* new NotMoved({
        message: `DATA_DIR ${dataDir} has no database. Set DATA_DIR to the folder that has it`,
      })
    }
    const source: Sql = yield* embeddedClient(yield* EmbeddedDatabase.make(dataDir))
    yield* Effect.provideService(migrate, SqlClient.SqlClient, source)
    const secrets = yield* Effect.provideService(checkSecrets(keys), SqlClient.SqlClient, source)
    if (secrets.state === "fail") return yield* new NotMoved({ message: `${secrets.message}: ${secrets.remedy}` })

    const target: Sql = yield* migrationClient(url)
    yield* Effect.provideService(migrate, SqlClient.SqlClient, target)
    const copy = Effect.gen(function* () {
      const tables = yield* tablesOf(source)
      const permanent = tables.filter(({ parent }) => parent === null)
      yield* target`SET LOCAL lock_timeout = '10s'`
      yield* target.unsafe(`LOCK TABLE ${permanent.map(({ name }) => name).join(", ")} IN ACCESS EXCLUSIVE MODE`)
      const full = (yield* countsOf(target, permanent)).find(({ rows }) => rows > 0)
      if (full !== undefined) {
        return yield* new NotMoved({
          message: `The database of DATABASE_URL is not empty (${full.name} has rows). Use one that no service has used`,
        })
      }
      yield* copyPartitions(source, target)
      for (const table of tables) {
        if (table.parent !== null) {
          yield* target.unsafe(`CREATE TABLE ${table.name} (LIKE ${table.parent} INCLUDING ALL)`)
        }
        yield* onCopied(table.name, yield* copyRows(source, target, table))
      }
      const sequences = yield* source<{ name: string; value: string }>`
        SELECT sequencename AS name, last_value::text AS value FROM pg_sequences
        WHERE schemaname = current_schema() AND last_value IS NOT NULL`
      for (const { name, value } of sequences)
        yield* target`SELECT setval(${name}::text::regclass, ${value}::text::bigint)`

      const copied = yield* countsOf(target, tables)
      const different = (yield* countsOf(source, tables)).find(({ rows }, n) => rows !== copied[n]!.rows)
      if (different !== undefined) {
        return yield* new NotMoved({
          message: `${different.name} did not arrive whole. Report this; nothing was copied`,
        })
      }
      return copied
    })
    return yield* copy.pipe(target.withTransaction, source.withTransaction)
  },
  Effect.scoped,
  Effect.provide(Reactivity.layer),
)
