import { DateTime, Effect, Layer } from "effect"
import { lease } from "#src/domain/keys/keyLimits.ts"
import { KeyCounterRepository } from "#src/domain/keys/LeasedQuotas.ts"
import { World } from "./World.ts"

/** Counters in memory. */
export const layer = Layer.effect(
  KeyCounterRepository,
  Effect.map(World, ({ counters }) =>
    KeyCounterRepository.of({
      lease: ({ counterId, orgId }, ask) =>
        Effect.map(DateTime.now, (now) => {
          const stored = counters.get(counterId)
          if (stored?.orgId !== orgId) return undefined
          const leased = lease(stored.counter, ask, DateTime.toEpochMillis(now))
          counters.set(counterId, { orgId, counter: leased.counter })
          return leased.lease
        }),
    }),
  ),
)
