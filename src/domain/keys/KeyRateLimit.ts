import { Effect } from "effect"
import { LRUCache } from "lru-cache"
import type { RateLimit } from "./ApiKey.ts"
import { TooManyRequests } from "../Errors.ts"
import { monotonicMillis } from "../monotonicMillis.ts"

/**
 * How much of a key's limit is used, and when that was so: whole numbers, of which a use takes as many as the window has
 * milliseconds, and `limit` are given back in each millisecond.
 */
interface Bucket {
  used: number
  at: number
}

/** How many keys are counted; those that were not used for the longest time are forgotten first. */
const capacity = 100_000

/**
 * Counts the uses of keys that have a limit, in this process: a bucket that holds `limit` uses and empties evenly, all of
 * it in `window` seconds. A key that has rested may be used `limit` times at once. What is refused does not count.
 */
export const make = () => {
  const buckets = new LRUCache<string, Bucket>({ max: capacity })

  const bucketOf = (keyId: string, now: number) => {
    const known = buckets.get(keyId)
    if (known !== undefined) return known
    const bucket = { used: 0, at: now }
    buckets.set(keyId, bucket)
    return bucket
  }

  /** Counts a use at a time (`monotonicMillis`): 0 when it is within the limit, else the milliseconds until one is. */
  const take = (keyId: string, { limit, window }: RateLimit, now: number): number => {
    const bucket = bucketOf(keyId, now)
    const use = window * 1000
    const used = Math.max(0, bucket.used - (now - bucket.at) * limit)
    const excess = used + use - limit * use
    if (excess > 0) return Math.ceil(excess / limit)
    bucket.used = used + use
    bucket.at = now
    return 0
  }

  /** Counts a use of the key now. Fails with `TooManyRequests` when its limit is used up; a key without one never does. */
  const check = (grant: { readonly keyId: string; readonly rateLimit: RateLimit | null }) => {
    const { keyId, rateLimit } = grant
    if (rateLimit === null) return Effect.void
    return Effect.flatMap(monotonicMillis, (now) => {
      const wait = take(keyId, rateLimit, now)
      if (wait === 0) return Effect.void
      return Effect.fail(
        new TooManyRequests({
          error: "The key is used more often than its rate limit allows; wait.",
          retryAfterSeconds: Math.max(1, Math.ceil(wait / 1000)),
        }),
      )
    })
  }

  return { take, check }
}
