import { changeCredits, type CreditsChange, type RateLimit, type Refill } from "./KeySettings.ts"
import {
  advanceBucket,
  bucketLifetime,
  convert,
  emptyBucket,
  maxLifetimeMillis,
  millisUntil,
  minLeasedLimit,
  putBackUnits,
  type RateBucket,
  takeUnits,
  unitsLeft,
} from "./RateBucket.ts"

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
  // What waits is used at once. Of a limit so small that nothing may be held, a replica leases just that.
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
