import { Context, Effect, Layer, PubSub, Stream } from "effect"

/**
 * Signals inside this process that there may be work. They save waiting, and nothing depends on them: the workers also
 * poll, and so find the work of other replicas and of crashed ones.
 */
export class Wakeups extends Context.Service<Wakeups>()("gatehouse/domain/Wakeups", {
  make: Effect.gen(function* () {
    const deliveries = yield* PubSub.sliding<void>(1)
    const sweeps = yield* PubSub.sliding<void>(1)
    const listeners = new Set<(orgId: string) => void>()

    return {
      /** Signals that deliveries may be due. */
      deliveries: Effect.asVoid(PubSub.publish(deliveries, undefined)),

      /** Signals that there may be sweeps. */
      sweeps: Effect.asVoid(PubSub.publish(sweeps, undefined)),

      /** Signals that the org may have queued jobs, after the transaction that queues them has committed. */
      jobs: (orgId: string) => Effect.sync(() => listeners.forEach((listener) => listener(orgId))),

      /** An element for each signal of `deliveries`; signals in quick succession can be one element. */
      onDeliveries: Stream.fromPubSub(deliveries),

      /** An element for each signal of `sweeps`; signals in quick succession can be one element. */
      onSweeps: Stream.fromPubSub(sweeps),

      /** Calls the listener with the org at each signal of `jobs`, until the scope closes. */
      onJobs: (listener: (orgId: string) => void) =>
        Effect.asVoid(
          Effect.acquireRelease(
            Effect.sync(() => listeners.add(listener)),
            () => Effect.sync(() => listeners.delete(listener)),
          ),
        ),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
