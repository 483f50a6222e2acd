import { Duration, Effect, Layer, Queue, Stream } from "effect"
import { Sweeps } from "../../domain/sweeps/Sweeps.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"

/** How often the worker looks for sweeps that other replicas started. */
const pollInterval = Duration.seconds(1)

/** Runs sweeps: at once when this process starts one, and every second. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { run } = yield* Sweeps
    const wakeups = yield* Wakeups
    const woken = yield* Queue.sliding<void>(1)
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onSweeps, () => Queue.offer(woken, undefined)))
    yield* run.pipe(
      Effect.catch((error) => Effect.logWarning(`Sweeps do not run: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Sweeps do not run", fault)),
      Effect.andThen(Effect.timeoutOption(Queue.take(woken), pollInterval)),
      Effect.forever,
      Effect.forkScoped,
    )
  }),
)
