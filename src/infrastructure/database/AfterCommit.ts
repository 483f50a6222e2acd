import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AfterCommit } from "../../domain/AfterCommit.ts"

/** Effects wait for the database's transaction at hand to be committed. */
export const layer = Layer.effect(
  AfterCommit,
  Effect.map(SqlClient.SqlClient, (sql) => sql.afterCommit),
)
