import { Effect, Layer, Schedule } from "effect"
import type { Unavailable } from "../../domain/Errors.ts"
import { startCounting } from "../../domain/orgs/OrgLimits.ts"
import { PendingLimit } from "../../domain/orgs/PendingLimit.ts"
import { OrgUsage } from "./OrgUsage.ts"
import * as Usage from "./orgAmounts.ts"

const logged = (what: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${what}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(what, fault)),
  )

/** Every five seconds: what orgs have is written down and counted, and the limit of pending deliveries is held. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* startCounting
    const refresh = logged("What orgs have is not counted", yield* Usage.refresh)
    const { enforce } = yield* PendingLimit
    yield* Effect.addFinalizer(() => refresh)
    yield* Effect.andThen(refresh, logged("Pending deliveries are not counted", enforce)).pipe(
      Effect.repeat(Schedule.spaced("5 seconds")),
      Effect.forkScoped,
    )
  }),
).pipe(Layer.provide(OrgUsage.layer))
