import { Context, Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { Bucket, functionsOf } from "./buckets.ts"
import { partsFunction } from "./citus/partsFunction.ts"
import { ctes, type Part } from "./parts.ts"

/**
 * Runs the parts of a statement, and returns the rows of its SELECT. One round trip, and one transaction. In a bucket these
 * rows pass through JSON.
 */
export const runParts = <Row extends object>(
  sql: SqlClient.SqlClient,
  parts: ReadonlyArray<Part>,
  select: Statement.Fragment,
): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> => {
  const whole = () => sql<Row>`WITH ${ctes(sql, parts)} ${select}`
  const functions = functionsOf(sql)
  if (functions === undefined) return whole()
  return Effect.withFiber(({ context }) => {
    if (Context.get(context, Bucket) === undefined) return whole()
    const { call, create, parameters } = partsFunction(sql, parts, select)
    functions.add(call, create)
    return Effect.map(sql.unsafe<{ rows: ReadonlyArray<Row> }>(call, parameters), ([found]) => found!.rows)
  })
}
