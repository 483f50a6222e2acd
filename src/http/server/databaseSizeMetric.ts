import { Effect, Fiber, Metric } from "effect"
import { DatabaseSize } from "../../domain/DatabaseSize.ts"

const databaseSize = Metric.gauge("gatehouse_database_size_bytes", {
  description: "Size of the database with its indexes, in bytes.",
})

/** Updates the size of the database. Removes it when the database does not answer. */
export const measureDatabaseSize = DatabaseSize.pipe(
  Effect.flatMap(({ bytes }) => Effect.forkDetach(bytes)),
  Effect.flatMap((size) => Effect.timeout(Fiber.join(size), "2 seconds")),
  Effect.flatMap((bytes) => Metric.update(databaseSize, bytes)),
  Effect.catchCause((cause) =>
    Effect.andThen(Effect.logDebug("The size of the database cannot be measured", cause), Metric.remove(databaseSize)),
  ),
)
