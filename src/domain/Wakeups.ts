import { Context, Effect, Layer, PubSub, type Scope, Stream } from "effect"

/**
 * Signals inside this process that there may be work. They save waiting, and nothing depends on them: the workers also
 * poll, and so find the work of other replicas and of crashed ones.
 */
export class Wakeups extends Context.Service<
  Wakeups,
  {
    /** Signals that deliveries may be due. */
    readonly deliveries: Effect.Effect<void>
    /** Signals that there may be sweeps. */
    readonly sweeps: Effect.Effect<void>
    /** Signals that the org may have queued jobs, after the transaction that queues them has committed. */
    readonly jobs: (orgId: string) => Effect.Effect<void>
    /** An element for each signal of `deliveries`; signals in quick succession can be one element. */
    readonly onDeliveries: Stream.Stream<void>
    /** An element for each signal of `sweeps`; signals in quick succession can be one element. */
    readonly onSweeps: Stream.Stream<void>
    /** Calls the listener with the org at each signal of `jobs`, until the scope closes. */
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
        jobs: (orgId) => Effect.sync(() => listeners.forEach((listener) => listener(orgId))),
        onDeliveries: Stream.fromPubSub(deliveries),
        onSweeps: Stream.fromPubSub(sweeps),
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
