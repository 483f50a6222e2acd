import { Context, Effect, Latch, Layer } from "effect"

/** Wakes the worker that fetches documentation, when an owner of this replica has changed it. */
export class DocsWakeup extends Context.Service<
  DocsWakeup,
  {
    readonly wake: Effect.Effect<void>
    /** Waits for the next `wake`, or returns at once after one that nobody has waited for. */
    readonly wait: Effect.Effect<void>
  }
>()("gatehouse/domain/DocsWakeup") {
  static readonly layer = Layer.sync(DocsWakeup, () => {
    const latch = Latch.makeUnsafe()
    return { wake: Effect.asVoid(latch.open), wait: Effect.andThen(latch.await, Effect.asVoid(latch.close)) }
  })
}
