import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/**
 * Makes changes with the same name one after the other, each in a transaction. What a change then counts has all that
 * the one before has committed.
 */
export const oneAtATime = <A, E, R>(sql: SqlClient.SqlClient, name: string, change: Effect.Effect<A, E, R>) =>
  sql.withTransaction(
    // A statement of its own: the next one sees what the previous holder of the lock has committed.
    Effect.andThen(sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:${name}`}, 0))`, change),
  )
