import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { limitWaitingClaims } from "#src/domain/jobs/WaitingClaims.ts"
import { it } from "../../support/it.ts"
import { outcomeOf } from "../support.ts"
import { settle } from "../webhooks/webhookSupport.ts"

it.effect("an org has a limit of waiting claims; ended claims and other orgs' claims do not count", function* () {
  const waiting = limitWaitingClaims(2)
  const end = yield* Deferred.make<void, Error>()
  const wait = Effect.tap(Effect.forkChild(Effect.exit(waiting("a", Deferred.await(end)))), settle)
  const refused = outcomeOf(waiting("a", Effect.void))
  const [first, second] = [yield* wait, yield* wait]
  assert.strictEqual(yield* refused, "LimitReached")
  assert.strictEqual(yield* outcomeOf(waiting("b", Effect.void)), "ok")
  yield* Fiber.interrupt(first)
  assert.strictEqual(yield* refused, "ok")
  const third = yield* wait
  assert.strictEqual(yield* refused, "LimitReached")
  yield* Deferred.fail(end, new Error("lost"))
  yield* Effect.forEach([second, third], Fiber.join)
  assert.strictEqual(yield* refused, "ok")
})

it.effect("a limit of zero lets no claim wait", function* () {
  assert.strictEqual(yield* outcomeOf(limitWaitingClaims(0)("a", Effect.void)), "LimitReached")
})
