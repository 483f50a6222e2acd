import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Runs an operation in a transaction that it rolls back, and counts the rows, index entries and pages that its
 * statements read from these tables. Finds an operation that reads the whole history of an org, with any query plan.
 */
export const rowsRead = Effect.fnUntraced(function* <A, E, R>(
  tables: ReadonlyArray<string>,
  operation: Effect.Effect<A, E, R>,
) {
  const sql = yield* SqlClient.SqlClient
  const names = sql.csv(tables.map((table) => sql`${table}`))
  const count = Effect.map(
    sql<{ rows: number; pages: number }>`
      SELECT sum(pg_stat_get_xact_tuples_returned(read.oid) + pg_stat_get_xact_tuples_fetched(read.oid))::int AS rows,
        sum(pg_stat_get_xact_blocks_fetched(read.oid))::int AS pages
      FROM (
        SELECT oid FROM pg_class WHERE relname IN (${names})
        UNION SELECT inhrelid FROM pg_inherits JOIN pg_class ON oid = inhparent WHERE relname IN (${names})
      ) AS tables CROSS JOIN LATERAL (
        SELECT tables.oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = tables.oid
      ) AS read (oid)`,
    ([row]) => row!,
  )
  return yield* sql
    .withTransaction(
      Effect.gen(function* () {
        const before = yield* count
        const answer = yield* operation
        const after = yield* count
        return yield* Effect.fail({ answer, rows: after.rows - before.rows, pages: after.pages - before.pages })
      }),
    )
    .pipe(
      Effect.flip,
      Effect.flatMap((error) =>
        typeof error === "object" && error !== null && "rows" in error
          ? Effect.succeed(error as { readonly answer: A; readonly rows: number; readonly pages: number })
          : Effect.die(error),
      ),
    )
})

/** Statistics of the tables stay as they are, however much the test changes. */
export const withoutAutovacuum = Effect.fnUntraced(function* (tables: ReadonlyArray<string>) {
  const sql = yield* SqlClient.SqlClient
  const names = sql.csv(tables.map((table) => sql`${table}`))
  const stored = yield* sql<{ name: string }>`
    SELECT c.relname AS name FROM pg_class c LEFT JOIN pg_inherits ON inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = inhparent
    WHERE c.relkind = 'r' AND (c.relname IN (${names}) OR p.relname IN (${names}))`
  for (const { name } of stored) yield* sql`ALTER TABLE ${sql(name)} SET (autovacuum_enabled = off)`
})
