import { expect } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { once } from "#src/http/server/apiReferencePage.ts"
import { it } from "../../support/it.ts"

/** Promise (Bounded work): The page at `/docs` is made once, even if its first readers leave before it is ready. */

// Seen failing with `Effect.cached`, which forgets a run that nobody waits for: each client that left early started the
// docs page again, until the memory was used up.
it.effect("a value that is created once is created once, even when the first caller leaves", function* () {
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
})
