import { Effect, Layer, Schedule } from "effect"
import { Retention } from "../../domain/Retention.ts"

/** Once an hour or so, not at the same moment as every other replica: what is past its time is removed. */
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
