import { Effect, Layer, Schedule } from "effect"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"

/**
 * Writes the uses of keys every five seconds, and returns portions of limits that are idle every second. Does both when the
 * process stops. No request waits for it.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { flushUsage, returnIdlePortions, returnPortions } = yield* ApiKeys
    const flush = flushUsage.pipe(
      Effect.catch((error) => Effect.logWarning(`Key usage is not written yet: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Key usage is not written yet", fault)),
    )
    const logged = <R>(effect: Effect.Effect<void, never, R>) =>
      Effect.catchDefect(effect, (fault) => Effect.logError("Portions of limits are not returned", fault))
    yield* Effect.addFinalizer(() => Effect.andThen(logged(returnPortions), flush))
    yield* Effect.forkScoped(Effect.repeat(logged(returnIdlePortions), Schedule.spaced("1 second")))
    yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced("5 seconds")))
  }),
)
