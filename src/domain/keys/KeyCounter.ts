import { changeCredits, type CreditsChange, type RateLimit, type Refill } from "./KeySettings.ts"

/** The credits of a counter that are neither used nor leased. */
interface CreditBalance {
  readonly remaining: number
  readonly refill: Refill | null
  /** When they were set or refilled last, in milliseconds of the database's clock. */
  readonly since: number
}

/** The limits of a key, and what is taken of them. After a rotation, both keys have one counter. */
export interface KeyCounter {
  /** Grows with each change of the limits, which ends all leased quotas. */
  readonly version: number
  readonly rateLimit: RateLimit | null
  readonly bucket: RateBucket
  readonly credits: CreditBalance | null
}

/** Units of all limits of a counter, for one replica to use. */
export interface LeasedQuota {
  readonly units: number
  readonly version: number
  /** When it was leased, in milliseconds of the database's clock. */
  readonly leasedAt: number
  /** `since` of the credits at that time; `null` without credits. */
  readonly creditsSince: number | null
}

/** What a replica asks a counter for. */
export interface LeaseAsk {
  /** The units of the first use that waits; 0 when none waits. */
  readonly need: number
  /** The units of all uses that wait. */
  readonly waiting: number
  /** The units that the replica expects to use within the lifetime of a leased quota. */
  readonly want: number
  /** What is left of an earlier leased quota. */
  readonly unused: LeasedQuota | null
}

/** The answer: a quota of at least `need` units, or of none. */
export interface Lease extends LeasedQuota {
  /** How long the quota may be used, from the time of the request on. */
  readonly lifetimeMillis: number
  /** The credits that are left beside this and other quotas; `null` without credits. */
  readonly remaining: number | null
  /** The units of the rate limit that are left beside this and other quotas; `null` without one. */
  readonly rateLeft: number | null
  /** Why the quota is empty though units are needed. */
  readonly exhausted: "rateLimit" | "credits" | null
  /** The milliseconds until the needed units may be left; `undefined` if never. */
  readonly retryMillis: number | undefined
  /** The largest cost that the limit which refuses lets pass after a wait; 0 for credits that are never refilled. */
  readonly maxCost: number
}

const day = 86_400_000

/** The first 00:00 UTC after a time: of a day, or of the first day of a month. */
const nextRefill = (since: number, { every }: Refill) => {
  if (every === "day") return (Math.floor(since / day) + 1) * day
  const date = new Date(since)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)
}

/** Refills credits whose time has come. */
export const refilled = (credits: CreditBalance, now: number): CreditBalance => {
  const { refill, since } = credits
  return refill !== null && now >= nextRefill(since, refill)
    ? { remaining: refill.amount, refill, since: now }
    : credits
}

/** Replicas lease quotas of this limit and larger ones. With a smaller limit, each use asks the database. */
const minLeasedLimit = 100

/** The units of a limit that a replica may lease: none of a small one, 10 below 1,000, else 1 %. */
export const maxQuota = (limit: number) => (limit < minLeasedLimit ? 0 : limit < 1000 ? 10 : Math.floor(limit / 100))

const advance = (counter: KeyCounter, now: number): KeyCounter => ({
  ...counter,
  bucket: counter.rateLimit === null ? counter.bucket : advanceBucket(counter.bucket, counter.rateLimit, now),
  credits: counter.credits === null ? null : refilled(counter.credits, now),
})

/**
 * Puts back what is left of a quota, as far as it still counts: its rate units while it lives, its credits until a
 * refill.
 */
const putBack = (counter: KeyCounter, quota: LeasedQuota): KeyCounter => {
  if (quota.version !== counter.version || quota.units === 0) return counter
  const { bucket, credits, rateLimit } = counter
  return {
    ...counter,
    bucket: rateLimit === null ? bucket : putBackUnits(bucket, rateLimit, quota.units, quota.leasedAt),
    credits:
      credits === null || credits.since !== quota.creditsSince
        ? credits
        : { ...credits, remaining: credits.remaining + quota.units },
  }
}

const take = (counter: KeyCounter, units: number): KeyCounter => ({
  ...counter,
  bucket: counter.rateLimit === null ? counter.bucket : takeUnits(counter.bucket, counter.rateLimit, units),
  credits: counter.credits && { ...counter.credits, remaining: counter.credits.remaining - units },
})

/** The size of a quota: enough for what waits and is expected, within what a replica may hold and what is left. */
const sizeOf = ({ need, waiting, want }: LeaseAsk, rateLeft: number, counter: KeyCounter) => {
  const { credits, rateLimit } = counter
  const mayHold = Math.min(
    rateLimit === null ? Infinity : maxQuota(rateLimit.limit),
    credits === null ? Infinity : maxQuota(credits.remaining),
  )
  // What waits is used at once. Where nothing may be held, each of these uses has asked by itself.
  const wanted = mayHold === 0 ? waiting : Math.min(Math.max(waiting, want), mayHold)
  return Math.min(Math.max(need, wanted), rateLeft, credits?.remaining ?? Infinity)
}

const lifetimeOf = ({ credits, rateLimit }: KeyCounter, now: number) =>
  Math.min(
    // 0 for a limit without leased quotas: its units are those of the uses that wait for this answer.
    rateLimit === null ? maxLifetimeMillis : bucketLifetime(rateLimit),
    credits?.refill ? nextRefill(credits.since, credits.refill) - now : Infinity,
  )

const refusal = ({ bucket, credits, rateLimit }: KeyCounter, need: number, now: number) => {
  if (credits !== null && credits.remaining < need) {
    const retryMillis = credits.refill === null ? undefined : nextRefill(credits.since, credits.refill) - now
    const maxCost = Math.min(rateLimit?.limit ?? Infinity, credits.refill?.amount ?? 0)
    return { exhausted: "credits", retryMillis, maxCost } as const
  }
  const { limit } = rateLimit!
  return {
    exhausted: "rateLimit",
    retryMillis: millisUntil(bucket, rateLimit!, need),
    maxCost: limit,
  } as const
}

/**
 * Puts back what is left of a replica's earlier quota, and leases it the next one. Whatever the order of such calls,
 * the units of all leased quotas together are never more than the limits allow.
 *
 * @param now in milliseconds of the database's clock
 */
export const lease = (
  before: KeyCounter,
  ask: LeaseAsk,
  now: number,
): { readonly counter: KeyCounter; readonly lease: Lease } => {
  const advanced = advance(before, now)
  const counter = ask.unused === null ? advanced : putBack(advanced, ask.unused)
  const rateLeft = counter.rateLimit === null ? Infinity : unitsLeft(counter.bucket, counter.rateLimit)
  const size = sizeOf(ask, rateLeft, counter)
  const isRefused = ask.need > 0 && size < ask.need
  const units = isRefused || ask.need + ask.want === 0 ? 0 : size
  const after = take(counter, units)
  return {
    counter: after,
    lease: {
      units,
      version: after.version,
      leasedAt: after.bucket.at,
      creditsSince: after.credits?.since ?? null,
      lifetimeMillis: lifetimeOf(after, now),
      remaining: after.credits?.remaining ?? null,
      rateLeft: after.rateLimit === null ? null : unitsLeft(after.bucket, after.rateLimit),
      ...(isRefused ? refusal(counter, ask.need, now) : { exhausted: null, retryMillis: undefined, maxCost: Infinity }),
    },
  }
}

/** The counter with other limits. Units that are taken of a rate limit stay taken. */
export const changeLimits = (
  before: KeyCounter,
  change: {
    readonly rateLimit?: RateLimit | null
    readonly credits?: CreditsChange | null
  },
  now: number,
): KeyCounter => {
  const counter = advance(before, now)
  const { bucket, rateLimit } = counter
  const next = change.rateLimit === undefined ? rateLimit : change.rateLimit
  const isConverted = rateLimit !== null && next !== null && next !== rateLimit
  return {
    version: counter.version + 1,
    rateLimit: next,
    // A new version ends all leased quotas, so their units drain from now on.
    bucket: isConverted ? convert(bucket, rateLimit, next) : rateLimit === null ? emptyBucket(now) : bucket,
    credits:
      change.credits === undefined
        ? counter.credits
        : change.credits && changeCredits(counter.credits, change.credits, now),
  }
}

/** The counter of new limits. */
export const newCounter = (
  limits: {
    readonly rateLimit: RateLimit | null
    readonly credits: CreditsChange | null
  },
  now: number,
): KeyCounter => changeLimits({ version: -1, rateLimit: null, bucket: emptyBucket(now), credits: null }, limits, now)

/**
 * The units that a rate limit has taken. `used` drains evenly: `limit` units in `window` seconds. Leased units do not
 * drain until their quota has expired. `current` are the units that were leased in the time slot of `at`, `previous`
 * those of the slot before it. A slot is as long as the lifetime of a quota. All numbers are whole.
 */
interface RateBucket {
  /** In parts of a unit (`partsOf`). */
  readonly used: number
  readonly current: number
  readonly previous: number
  /** The time of the last change, in milliseconds of the database's clock. */
  readonly at: number
}

/** The longest lifetime of a leased quota, in milliseconds. */
const maxLifetimeMillis = 10_000
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

/** Takes units, of which so many are left. */
export const takeUnits = (bucket: RateBucket, rateLimit: RateLimit, units: number): RateBucket =>
  bucketLifetime(rateLimit) === 0
    ? { ...bucket, used: bucket.used + units * partsOf(rateLimit) }
    : { ...bucket, current: bucket.current + units }

/**
 * Puts back units of a quota that was leased at `leasedAt`. Units past their lifetime drain already, and stay taken.
 */
const putBackUnits = (bucket: RateBucket, rateLimit: RateLimit, units: number, leasedAt: number): RateBucket => {
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
