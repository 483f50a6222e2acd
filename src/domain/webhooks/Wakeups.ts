import type { Scope } from "effect"
import { Context, Effect, Layer, PubSub, Stream } from "effect"

/**
 * Word inside this process that there may be work. It makes things quick and nothing correct: work of another replica,
 * or of one that crashed, is found by looking every so often.
 */
export class Wakeups extends Context.Service<
  Wakeups,
  {
    /** Says that deliveries may be due. */
    readonly deliveries: Effect.Effect<void>
    /** Says that there may be sweeps. */
    readonly sweeps: Effect.Effect<void>
    /** Says that the org may have queued jobs, once those that it was told of are certain. */
    readonly jobs: (orgId: string) => Effect.Effect<void>
    /** An element for every word of deliveries. */
    readonly onDeliveries: Stream.Stream<void>
    /** An element for every word of sweeps. */
    readonly onSweeps: Stream.Stream<void>
    /** Calls the listener with the org at every word of jobs, until the scope closes. */
    readonly onJobs: (listener: (orgId: string) => void) => Effect.Effect<void, never, Scope.Scope>
  }
>()("gatehouse/domain/Wakeups") {
  static readonly layer = Layer.effect(
    Wakeups,
    Effect.gen(function* () {
      const deliveries = yield* PubSub.sliding<void>(1)
      const sweeps = yield* PubSub.sliding<void>(1)
      const listeners = new Set<(orgId: string) => void>()
      return Wakeups.of({
        deliveries: Effect.asVoid(PubSub.publish(deliveries, undefined)),
        sweeps: Effect.asVoid(PubSub.publish(sweeps, undefined)),
        onSweeps: Stream.fromPubSub(sweeps),
        jobs: (orgId) => Effect.sync(() => listeners.forEach((listener) => listener(orgId))),
        onDeliveries: Stream.fromPubSub(deliveries),
        onJobs: (listener) =>
          Effect.asVoid(
            Effect.acquireRelease(
              Effect.sync(() => listeners.add(listener)),
              () => Effect.sync(() => listeners.delete(listener)),
            ),
          ),
      })
    }),
  )
}
