import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/** The text of everything in the database: each table of each schema that is not PostgreSQL's own. */
export const dump = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const tables = yield* sql<{ schema: string; name: string }>`
    SELECT table_schema AS schema, table_name AS name FROM information_schema.tables
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'`
  const rows = yield* Effect.forEach(
    tables,
    ({ schema, name }) => sql<{ row: string }>`SELECT "row"::text AS row FROM ${sql(`${schema}.${name}`)} AS "row"`,
  )
  return {
    tables: tables.map(({ name }) => name),
    text: rows
      .flat()
      .map(({ row }) => row)
      .join("\n"),
  }
})

/** The forms in which a secret could leak: plain, without its public prefix, and in the usual encodings. */
export const disguises = (secret: string) => {
  const bytes = Buffer.from(secret)
  return [secret, secret.slice(12), bytes.toString("hex"), bytes.toString("base64"), bytes.toString("base64url")]
}
