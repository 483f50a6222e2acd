import { Effect, Fiber } from "effect"

/**
 * Runs an effect when its value is first asked for, to its end, whoever stops waiting; and never again. `Effect.cached`
 * forgets a run that nobody waits for, and starts another one beside it.
 */
export const once = <A>(effect: Effect.Effect<A>): Effect.Effect<Effect.Effect<A>> =>
  Effect.sync(() => {
    let running: Fiber.Fiber<A> | undefined
    return Effect.suspend(() => Fiber.join((running ??= Effect.runFork(effect))))
  })
