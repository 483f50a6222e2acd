import { Effect, Layer, Schedule } from "effect"
import type { Unavailable } from "../../domain/Errors.ts"
import { startCounting } from "../../domain/orgs/OrgLimits.ts"
import { PendingLimit } from "../../domain/webhooks/PendingLimit.ts"
import { OrgUsage } from "./OrgUsage.ts"
import * as MeasuredBytes from "./measuredBytes.ts"
import * as OrgAmounts from "./orgAmounts.ts"

const logged = (problem: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(problem, fault)),
  )

/**
 * Every five seconds: writes and counts the usage of orgs, and enforces the limit of pending deliveries. Every minute:
 * measures the bytes of orgs that have changed.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* startCounting
    const refresh = logged("Usage of orgs is not counted", yield* OrgAmounts.refresh)
    const { enforce } = yield* PendingLimit
    yield* Effect.addFinalizer(() => refresh)
    const measure = logged("The bytes of orgs are not measured", yield* MeasuredBytes.measure)
    yield* Effect.forkScoped(Effect.repeat(measure, Schedule.jittered(Schedule.spaced("1 minute"))))
    yield* Effect.andThen(refresh, logged("Pending deliveries are not counted", enforce)).pipe(
      Effect.repeat(Schedule.spaced("5 seconds")),
      Effect.forkScoped,
    )
  }),
).pipe(Layer.provide(OrgUsage.layer))
