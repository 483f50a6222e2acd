import { Clock, Effect } from "effect"

/**
 * The monotonic clock in whole milliseconds. Elapsed time is measured with it: after the wall clock steps back, a wait
 * measured with the wall clock would be too long.
 */
export const monotonicMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Math.floor(Number(nanos) / 1e6))

/** The monotonic clock in milliseconds and parts of them, for code outside of an effect. */
export const monotonicMillisOf = (clock: Clock.Clock) => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
