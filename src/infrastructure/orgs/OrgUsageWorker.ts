import { Effect, Layer, Schedule } from "effect"
import type { Unavailable } from "../../domain/Errors.ts"
import { startCounting } from "../../domain/orgs/OrgLimits.ts"
import { PendingLimit } from "../../domain/webhooks/PendingLimit.ts"
import { OrgUsage } from "./OrgUsage.ts"
import * as OrgAmounts from "./orgAmounts.ts"

const logged = (problem: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(problem, fault)),
  )

/** Every five seconds: writes and counts the usage of orgs, and enforces the limit of pending deliveries. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* startCounting
    const refresh = logged("Usage of orgs is not counted", yield* OrgAmounts.refresh)
    const { enforce } = yield* PendingLimit
    yield* Effect.addFinalizer(() => refresh)
    yield* Effect.andThen(refresh, logged("Pending deliveries are not counted", enforce)).pipe(
      Effect.repeat(Schedule.spaced("5 seconds")),
      Effect.forkScoped,
    )
  }),
).pipe(Layer.provide(OrgUsage.layer))
