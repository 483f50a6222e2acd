/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { once } from "#src/http/server/once.ts"

// Seen failing with `Effect.cached`: it forgets a run that nobody waits for, so that a stranger who asked and left started
// the page of /docs as often as they liked, until the memory was used up.
it.effect("what is made once is made once, though whoever asked first has left", () =>
  Effect.gen(function* () {
    let runs = 0
    const gate = yield* Deferred.make<void>()
    const made = yield* once(
      Effect.suspend(() => {
        runs++
        return Effect.as(Deferred.await(gate), runs)
      }),
    )
    for (let n = 0; n < 3; n++) {
      const left = yield* Effect.forkChild(made, { startImmediately: true })
      left.interruptUnsafe()
      yield* Effect.yieldNow
    }
    const waiting = yield* Effect.forkChild(made, { startImmediately: true })
    yield* Deferred.succeed(gate, undefined)
    expect(yield* Fiber.join(waiting)).toBe(1)
    expect(yield* made).toBe(1)
    expect(runs).toBe(1)
  }),
)
