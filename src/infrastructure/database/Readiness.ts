import { Effect, Layer } from "effect"
import { Unavailable } from "../../domain/Errors.ts"
import { Readiness } from "../../domain/Readiness.ts"
import { Database } from "./Database.ts"

/** The service is ready if the database is. */
export const layer = Layer.effect(
  Readiness,
  Effect.map(Database, (database) =>
    Readiness.of({
      check: Effect.mapError(
        database.ready,
        () =>
          new Unavailable({
            error: "The database does not answer, or its migrations are not applied.",
          }),
      ),
    }),
  ),
)
