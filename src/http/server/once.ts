import { Effect, Fiber } from "effect"

/**
 * Runs an effect once, at the first use, in a fiber that no caller interrupts. `Effect.cached` starts a second run when
 * the first caller is interrupted.
 */
export const once = <A>(effect: Effect.Effect<A>): Effect.Effect<Effect.Effect<A>> =>
  Effect.sync(() => {
    let running: Fiber.Fiber<A> | undefined
    return Effect.suspend(() => Fiber.join((running ??= Effect.runFork(effect))))
  })
