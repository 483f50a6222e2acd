import { Effect } from "effect"
import { SqlClient } from "effect/sql"

interface Column {
  readonly table: string
  readonly column: string
  readonly type: string
  /** Whether an insert must set the column. */
  readonly needed: boolean
}

export const columns = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Column>`
    SELECT c.table_name AS table, c.column_name AS column, c.data_type AS type,
      c.is_nullable = 'NO' AND c.column_default IS NULL AND c.is_generated = 'NEVER' AS needed
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
      -- The rows of partitions are those of their tables.
      AND NOT (SELECT relispartition FROM pg_class WHERE oid = quote_ident(c.table_name)::regclass) ORDER BY c.table_name, c.ordinal_position`,
)

/** Returns a value for any column. Every text is the same, so that rows of different tables refer to each other. */
const valueOf = ({ column, type }: Column, orgId: string): unknown => {
  if (column === "org_id") return orgId
  if (type === "text") return `${orgId} e`
  if (type === "boolean") return false
  if (type.startsWith("timestamp")) return new Date(0)
  if (type === "bytea") return Buffer.from(orgId)
  if (type.startsWith("json")) return "{}"
  if (type === "ARRAY") return "{}"
  return 1
}

/** Inserts a row of the org into each table that has an `org_id`. New tables are covered too. */
export const fillTables = Effect.fnUntraced(function* (orgId: string) {
  const sql = yield* SqlClient.SqlClient
  const byTable = Map.groupBy(yield* columns, ({ table }) => table)
  const owned = [...byTable].filter(([, all]) => all.some(({ column }) => column === "org_id"))
  // Inserts jobs first, because events refer to them.
  const tables = owned.toSorted(([a], [b]) => Number(b === "jobs") - Number(a === "jobs"))
  for (const [table, all] of tables) {
    const needed = all.filter((column) => column.needed || column.column === "org_id")
    const names = needed.map(({ column }) => sql`${sql(column)}`)
    const values = needed.map((column) => sql`${valueOf(column, orgId)}`)
    // A table with one row of each org may have it already.
    yield* sql`INSERT INTO ${sql(table)} (${sql.csv(names)}) VALUES (${sql.csv(values)}) ON CONFLICT DO NOTHING`
  }
  return tables.map(([table]) => table)
})

/** The tables in which a row has the text in some column. */
export const tablesWith = Effect.fnUntraced(function* (text: string) {
  const sql = yield* SqlClient.SqlClient
  const tables = [...new Set((yield* columns).map(({ table }) => table))]
  const found = yield* Effect.forEach(tables, (table) =>
    Effect.map(
      sql<{ n: number }>`SELECT count(*)::int AS n FROM ${sql(table)} AS t WHERE position(${text} IN t::text) > 0`,
      ([row]) => (row!.n > 0 ? [table] : []),
    ),
  )
  return found.flat()
})
