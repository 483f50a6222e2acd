import { Effect, Layer, Schedule } from "effect"
import { Idempotency } from "../../domain/Idempotency.ts"

/** Deletes expired idempotency keys and their answers every hour. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { deleteExpired } = yield* Idempotency
    yield* deleteExpired.pipe(
      Effect.catch((error) => Effect.logWarning(`Expired idempotency keys are not deleted: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Expired idempotency keys are not deleted", fault)),
      Effect.repeat(Schedule.spaced("1 hour")),
      Effect.forkScoped,
    )
  }),
)
