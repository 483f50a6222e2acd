import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { bucketSql, schemaOf } from "../buckets.ts"

/** SQL: whether a row belongs in a bucket. Sweeps that erase an org or a project begin on the platform, and stay there. */
export const ofTenants = (sql: SqlClient.SqlClient, table: string) =>
  table === "sweeps" ? sql`kind <> 'erase'` : sql`true`

/** The columns of a table that can be inserted. */
const columnsOf = Effect.fnUntraced(function* (table: string) {
  const sql = yield* SqlClient.SqlClient
  const columns = yield* sql<{ name: string }>`
    SELECT attname AS name FROM pg_attribute
    WHERE attrelid = to_regclass(${`public.${table}`}) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attnum`
  return sql.literal(columns.map(({ name }) => `"${name}"`).join(", "))
})

/**
 * Moves the rows of a table of the platform's schema into the buckets, each bucket in one transaction; copies those of `orgs`.
 * A row that an interrupted run has copied and not deleted is not copied again. A temporary index finds the rows of each bucket:
 * without it, the whole table is read for each of them.
 */
export const moveRows = Effect.fnUntraced(function* (table: string, buckets: number) {
  const sql = yield* SqlClient.SqlClient
  const columns = yield* columnsOf(table)
  const from = sql(`public.${table}`)
  const index = `gatehouse_bucket_of_${table}`
  const bucketOfRow = sql.literal(bucketSql(table === "orgs" ? "id" : "org_id", buckets))
  const move = Effect.fnUntraced(function* (bucket: number) {
    const isOfBucket = sql`${bucketOfRow} = ${sql.literal(String(bucket))} AND ${ofTenants(sql, table)}`
    yield* sql`LOCK TABLE ${from} IN SHARE ROW EXCLUSIVE MODE`
    yield* sql`
      INSERT INTO ${sql(`${schemaOf(bucket)}.${table}`)} (${columns}) SELECT ${columns} FROM ${from} WHERE ${isOfBucket}
      ON CONFLICT DO NOTHING`
    if (table !== "orgs") yield* sql`DELETE FROM ${from} WHERE ${isOfBucket}`
  })
  yield* sql`CREATE INDEX IF NOT EXISTS ${sql(index)} ON ${from} (${bucketOfRow})`
  for (let bucket = 0; bucket < buckets; bucket++) yield* sql.withTransaction(move(bucket))
  yield* sql`DROP INDEX ${sql(`public.${index}`)}`
})
