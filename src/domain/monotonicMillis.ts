import { Clock, Effect } from "effect"

/**
 * The whole milliseconds of the monotonic clock, by which what has passed is measured: the wall clock can be set back,
 * and what waits by it would then wait for as long.
 */
export const monotonicMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Math.floor(Number(nanos) / 1e6))
