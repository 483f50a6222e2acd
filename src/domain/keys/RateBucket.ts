import type { RateLimit } from "./KeySettings.ts"

/**
 * The units that a rate limit has taken. `used` drains evenly: `limit` units in `window` seconds. Leased units do not
 * drain until their quota has expired. `current` are the units that were leased in the time slot of `at`, `previous`
 * those of the slot before it. A slot is as long as the lifetime of a quota. All numbers are whole.
 */
export interface RateBucket {
  /** In parts of a unit (`partsOf`). */
  readonly used: number
  readonly current: number
  readonly previous: number
  /** The time of the last change, in milliseconds of the database's clock. */
  readonly at: number
}

/** Replicas lease quotas of this limit and larger ones. With a smaller limit, each use asks the database. */
export const minLeasedLimit = 100

/** The longest lifetime of a leased quota, in milliseconds. */
export const maxLifetimeMillis = 10_000
/** The clock of the database has stepped back when it is behind the last change by more. No statement takes as long. */
const maxClockLagMillis = 20_000

/**
 * The lifetime of a quota in milliseconds: a twentieth of the window, so that a burst begins to drain soon. 0: units
 * are used at once.
 */
export const bucketLifetime = ({ limit, window }: RateLimit) =>
  limit < minLeasedLimit ? 0 : Math.min(window * 50, maxLifetimeMillis)

/** The parts of a unit, so that the drain of a millisecond is a whole number of them. At most 8.64e15 make a limit. */
const partsOf = ({ window }: RateLimit) => window * 1000 * 100

/**
 * The parts that drain in a millisecond. A leased limit drains 2 % slower, so that a window that begins with a full
 * burst stays below twice the limit also as clients measure it.
 */
const drainOf = ({ limit }: RateLimit) => limit * (limit < minLeasedLimit ? 100 : 98)

export const emptyBucket = (at: number): RateBucket => ({ used: 0, current: 0, previous: 0, at })

const drained = (bucket: RateBucket, rateLimit: RateLimit, to: number): RateBucket => ({
  ...bucket,
  used: Math.max(0, bucket.used - (to - bucket.at) * drainOf(rateLimit)),
  at: to,
})

/** Drains a bucket until now. A clock that is behind drains nothing. */
export const advanceBucket = (bucket: RateBucket, rateLimit: RateLimit, now: number): RateBucket => {
  if (now < bucket.at) return bucket.at - now > maxClockLagMillis ? { ...bucket, at: now } : bucket
  const slot = bucketLifetime(rateLimit)
  const parts = partsOf(rateLimit)
  let moved = bucket
  for (let n = 0; n < 2 && moved.current + moved.previous > 0; n++) {
    const end = slot === 0 ? moved.at : (Math.floor(moved.at / slot) + 1) * slot
    if (end > now) break
    const { current, previous, used, at } = drained(moved, rateLimit, end)
    moved = { used: used + previous * parts, previous: current, current: 0, at }
  }
  return drained(moved, rateLimit, now)
}

/** The units that are left in a bucket that was advanced. */
export const unitsLeft = ({ current, previous, used }: RateBucket, rateLimit: RateLimit) => {
  const parts = partsOf(rateLimit)
  return Math.max(0, Math.floor((rateLimit.limit * parts - used) / parts) - current - previous)
}

/** The bucket after units were taken; `unitsLeft` must be at least as many. */
export const takeUnits = (bucket: RateBucket, rateLimit: RateLimit, units: number): RateBucket =>
  bucketLifetime(rateLimit) === 0
    ? { ...bucket, used: bucket.used + units * partsOf(rateLimit) }
    : { ...bucket, current: bucket.current + units }

/**
 * Puts back units of a quota that was leased at `leasedAt`. Units past their lifetime drain already, and stay taken.
 */
export const putBackUnits = (bucket: RateBucket, rateLimit: RateLimit, units: number, leasedAt: number): RateBucket => {
  const slot = bucketLifetime(rateLimit)
  if (slot === 0) return bucket
  const age = Math.floor(bucket.at / slot) - Math.floor(leasedAt / slot)
  if (age === 0) return { ...bucket, current: Math.max(0, bucket.current - units) }
  return age === 1 ? { ...bucket, previous: Math.max(0, bucket.previous - units) } : bucket
}

/** The milliseconds until so many units are left, about; exact for a limit without leased quotas. */
export const millisUntil = (bucket: RateBucket, rateLimit: RateLimit, units: number): number => {
  if (units > rateLimit.limit) return rateLimit.window * 1000
  const parts = partsOf(rateLimit)
  const excess = bucket.used + (bucket.current + bucket.previous + units) * parts - rateLimit.limit * parts
  if (excess <= 0) return 0
  const drain = Math.ceil(excess / drainOf(rateLimit))
  // Leased units have to begin to drain first.
  return excess <= bucket.used ? drain : drain + 2 * bucketLifetime(rateLimit)
}

/** The bucket of another limit, with as many units taken. */
export const convert = (bucket: RateBucket, from: RateLimit, to: RateLimit): RateBucket => {
  const units = Math.ceil(bucket.used / partsOf(from)) + bucket.current + bucket.previous
  return { used: Math.min(units, to.limit) * partsOf(to), current: 0, previous: 0, at: bucket.at }
}
