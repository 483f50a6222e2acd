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
      SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::int AS rows,
        sum(pg_stat_get_xact_blocks_fetched(oid))::int AS pages
      FROM pg_class
      WHERE relname IN (${names})
        OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relname IN (${names})))`,
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
