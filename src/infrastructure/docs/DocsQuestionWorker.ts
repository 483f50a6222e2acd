import { Effect, Layer, Schedule } from "effect"
import { DocsQuestions } from "../../domain/docs/DocsQuestions.ts"
import type { Unavailable } from "../../domain/Errors.ts"

const logged = (problem: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    // Without the cause: a fault of a statement can name its values, which are words of readers.
    Effect.catchDefect(() => Effect.logError(problem)),
  )

/** Writes the questions of readers every second and when the process stops, and removes old ones about every hour. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { flush, removeOld } = yield* DocsQuestions
    const write = logged("Questions are not kept yet", flush)
    yield* Effect.addFinalizer(() => write)
    yield* Effect.forkScoped(Effect.repeat(write, Schedule.spaced("1 second")))
    yield* logged("Old questions are not removed", removeOld).pipe(
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
