import { Effect, Layer, Schedule } from "effect"
import { Retention } from "../../domain/Retention.ts"

/** Removes old jobs and events about every hour. The jitter spreads the work of replicas. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { removeOld } = yield* Retention
    yield* removeOld.pipe(
      Effect.tap((removed) =>
        removed === 0 ? Effect.void : Effect.logInfo(`${removed} events past RETENTION_DAYS are removed`),
      ),
      Effect.catch((error) => Effect.logWarning(`Old events are not removed: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Old events are not removed", fault)),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
