import { Effect, Layer, Schedule } from "effect"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"

/** Writes when keys were last used, every five seconds and when the process stops, so that no request waits for it. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { flushUsage } = yield* ApiKeys
    const flush = flushUsage.pipe(
      Effect.catch((error) => Effect.logWarning(`Key usage is not written yet: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Key usage is not written yet", fault)),
    )
    yield* Effect.addFinalizer(() => flush)
    yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced("5 seconds")))
  }),
)
