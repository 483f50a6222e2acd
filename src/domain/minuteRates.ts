import { Effect } from "effect"
import { TooManyRequests } from "./Errors.ts"
import { monotonicMillis } from "./monotonicMillis.ts"

const minuteMillis = 60_000
/** The users that are remembered: the least recent one makes room for another. */
const maxRemembered = 10_000

/**
 * Limits how often something is used in a minute, by user, in the memory of this process. Each use lasts a minute
 * divided by the rate, so that a user who waits for one use may have one.
 *
 * @param what is limited, as in "The limit of … per minute is reached"
 * @returns takes one use of a user, or fails with the seconds to wait
 */
export const minuteRates = (what: string) => {
  /** Until when the uses of each user last, the most recent user last. No cache of a library: the SDK imports this. */
  const lastUntil = new Map<string, number>()
  const remember = (user: string, until: number) => {
    lastUntil.delete(user)
    lastUntil.set(user, until)
    if (lastUntil.size > maxRemembered) lastUntil.delete(lastUntil.keys().next().value!)
  }
  return (user: string, rate: number): Effect.Effect<void, TooManyRequests> =>
    Effect.flatMap(monotonicMillis, (now) => {
      const until = Math.max(now, lastUntil.get(user) ?? 0) + minuteMillis / rate
      const waitMillis = until - now - minuteMillis
      if (waitMillis <= 0) return Effect.sync(() => remember(user, until))
      return new TooManyRequests({
        error: `The limit of ${what} per minute is reached; try again after the seconds in Retry-After.`,
        retryAfterSeconds: Math.max(1, Math.ceil(waitMillis / 1000)),
      })
    })
}
