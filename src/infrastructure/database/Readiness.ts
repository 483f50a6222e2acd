import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseSize, Readiness } from "../../domain/activity/ServiceStates.ts"
import { Database } from "./Database.ts"
import { shardsOf } from "./shards.ts"
import { orUnavailable } from "./orUnavailable.ts"

/** The service is ready if the database is. */
export const layer = Layer.effect(
  Readiness,
  Effect.map(Database, ({ ready }) => Readiness.of({ check: ready })),
)

/**
 * The size of the connected database, in bytes. PostgreSQL adds up the sizes of its files.
 *
 * @param isDistributed whether it is on several nodes, whose sizes are added; of those that answer
 */
export const databaseBytes = (sql: SqlClient.SqlClient, isDistributed = shardsOf(sql) !== undefined) =>
  Effect.map(
    isDistributed
      ? sql<{ bytes: number }>`
          SELECT coalesce(sum(result::bigint) FILTER (WHERE success), 0)::float8 AS bytes
          FROM run_command_on_all_nodes('SELECT pg_database_size(current_database())')`
      : sql<{ bytes: number }>`SELECT pg_database_size(current_database())::float8 AS bytes`,
    ([row]) => row!.bytes,
  )

export const databaseSize = Layer.effect(
  DatabaseSize,
  Effect.map(SqlClient.SqlClient, (sql) => DatabaseSize.of({ bytes: orUnavailable(databaseBytes(sql)) })),
)
