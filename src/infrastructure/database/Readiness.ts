import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseSize, Readiness } from "../../domain/activity/ServiceStates.ts"
import { Database } from "./Database.ts"
import { everywhere, Nodes } from "./Nodes.ts"
import { orUnavailable } from "./orUnavailable.ts"

/** The service is ready if the database is. */
export const layer = Layer.effect(
  Readiness,
  Effect.map(Database, ({ ready }) => Readiness.of({ check: ready })),
)

/** The size of a database, in bytes. PostgreSQL adds up the sizes of its files. */
export const databaseBytes = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ bytes: number }>`SELECT pg_database_size(current_database())::float8 AS bytes`,
    ([row]) => row!.bytes,
  )

export const databaseSize = Layer.effect(
  DatabaseSize,
  Effect.map(Effect.all([SqlClient.SqlClient, Nodes]), ([sql, nodes]) =>
    DatabaseSize.of({
      bytes: Effect.map(
        everywhere(sql, nodes, (one) => orUnavailable(databaseBytes(one))),
        (sizes) => sizes.reduce((sum, bytes) => sum + bytes, 0),
      ),
    }),
  ),
)
