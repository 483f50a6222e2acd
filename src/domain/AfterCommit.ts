import { Context, type Effect } from "effect"

/**
 * Runs an effect once what was written is certain: at once, unless the operation at hand is part of something larger that
 * is yet to be committed as a whole. If that fails, the effect is dropped.
 */
export const AfterCommit = Context.Reference<(effect: Effect.Effect<void>) => Effect.Effect<void>>(
  "gatehouse/domain/AfterCommit",
  { defaultValue: () => (effect) => effect },
)
