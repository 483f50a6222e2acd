import { Effect, Layer, Schedule } from "effect"
import { Sessions } from "../../domain/sessions/Sessions.ts"

/** Removes expired sessions about every hour. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { removeExpired } = yield* Sessions
    yield* removeExpired.pipe(
      Effect.catch((error) => Effect.logWarning(`Expired sessions are not removed: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Expired sessions are not removed", fault)),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
