import { Duration, Effect, Layer, Queue, Stream } from "effect"
import { Sweeps } from "../../domain/webhooks/Sweeps.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"

/** How long the worker waits before it looks for sweeps of other replicas. */
const pollInterval = Duration.seconds(1)

/** Advances sweeps: at once when this process made one, and every second. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { run } = yield* Sweeps
    const wakeups = yield* Wakeups
    const woken = yield* Queue.sliding<void>(1)
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onSweeps, () => Queue.offer(woken, undefined)))
    yield* run.pipe(
      Effect.catch((error) => Effect.logWarning(`Sweeps do not advance: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Sweeps do not advance", fault)),
      Effect.andThen(Effect.timeoutOption(Queue.take(woken), pollInterval)),
      Effect.forever,
      Effect.forkScoped,
    )
  }),
)
