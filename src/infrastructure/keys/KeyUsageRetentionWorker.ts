import { Effect, Layer, Schedule } from "effect"
import { KeyUsageReport } from "../../domain/keys/KeyUsageReport.ts"

/** Removes old usage of keys about every hour. The jitter spreads the work of replicas. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { removeOld } = yield* KeyUsageReport
    yield* removeOld.pipe(
      Effect.catch((error) => Effect.logWarning(`Old usage of keys is not removed: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Old usage of keys is not removed", fault)),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
