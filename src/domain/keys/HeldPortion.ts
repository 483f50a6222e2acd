import type { Effect } from "effect"
import { CostAboveLimit, CreditsExhausted, TooManyRequests, type Unauthorized, type Unavailable } from "../Errors.ts"
import type { Lease, Portion } from "./KeyCounter.ts"

export type Refusal = TooManyRequests | CostAboveLimit | CreditsExhausted | Unauthorized | Unavailable

/** A use that waits for the database. Its result is the credits that are left. */
export interface Waiter {
  readonly cost: number
  readonly done: (outcome: Effect.Effect<number | null, Refusal>) => void
}

/** What this process holds of a counter. Times are of the monotonic clock, in milliseconds. */
export interface Held {
  readonly orgId: string
  readonly counterId: string
  portion: Portion | null
  /** The units that are left of the portion. A number of its own: each use changes it. */
  units: number
  /** The portion may not be used from then on. */
  expiresAt: number
  lifetimeMillis: number
  leasedAt: number
  /** The credits beside the portion. */
  remaining: number | null
  /** The units that are expected to be used within a lifetime. */
  want: number
  usedAt: number
  /** Uses of at least this cost are refused without a question until then. */
  blocked: { readonly cost: number; readonly at: number; readonly until: number; readonly lease: Lease } | null
  isAsking: boolean
  waiters: Array<Waiter>
}

/** The largest number of units that is expected to be used within a lifetime. */
const maxWant = 1_000_000
/** The longest time for which refusals are answered from memory. */
const maxBlockMillis = 1_000

const seconds = (millis: number) => Math.max(1, Math.ceil(millis / 1000))

/** The answer to a use of this cost that a limit refuses. `Retry-After` is absent when no wait helps. */
export const refusalOf = ({ exhausted, maxCost, retryMillis }: Lease, cost: number, passedMillis: number) => {
  const helpsToWait = retryMillis !== undefined && cost <= maxCost
  if (exhausted === "credits") {
    return new CreditsExhausted(
      helpsToWait
        ? {
            error: "The key has too few credits left for this use.",
            retryAfterSeconds: seconds(retryMillis - passedMillis),
          }
        : {
            error:
              "The key has too few credits left for this use. Waiting does not help: add credits, or lower the cost.",
          },
    )
  }
  return helpsToWait
    ? new TooManyRequests({
        error: "The rate limit of the key is reached; try again after the seconds in Retry-After.",
        retryAfterSeconds: seconds(retryMillis - passedMillis),
      })
    : new CostAboveLimit({
        error: "The cost of this use is larger than the rate limit of the key. Lower the cost, or raise the limit.",
      })
}

export const unitsOf = (held: Held, now: number) => (now >= held.expiresAt ? 0 : held.units)

/** The credits that are left, as far as this process knows. */
export const leftOf = ({ remaining, units }: Held) => (remaining === null ? null : remaining + units)

/** Takes units of the portion that is held; they are there. */
export const takeHeld = (held: Held, cost: number, now: number) => {
  held.units -= cost
  held.usedAt = now
}

/** Gives up what is held, and returns what is left of it. */
export const takeUnused = (held: Held): Portion | null => {
  const unused = held.portion === null || held.units === 0 ? null : { ...held.portion, units: held.units }
  held.portion = null
  held.units = 0
  return unused
}

/** Holds nothing of a counter yet. */
export const makeHeld = (orgId: string, counterId: string, now: number): Held => {
  const times = { expiresAt: 0, lifetimeMillis: 0, leasedAt: 0, usedAt: now }
  return {
    ...{ orgId, counterId, portion: null, units: 0, ...times, remaining: null, want: 1 },
    ...{ blocked: null, isAsking: false, waiters: [] },
  }
}

/** Learns from how the last portion was used how large the next one should be. */
export const updateDemand = (held: Held, now: number) => {
  const left = held.units
  if (held.portion === null) return
  if (left === 0 && now - held.leasedAt < held.lifetimeMillis / 2) held.want = Math.min(held.want * 2, maxWant)
  if (left > 0 && now >= held.expiresAt) held.want = Math.max(1, held.want - left)
}

/** Holds the portion of an answer. Its lifetime counts from the question, so that it ends no later than for the database. */
export const storeLease = (held: Held, answer: Lease, askedAt: number) => {
  held.portion = answer
  held.units = answer.units
  held.leasedAt = askedAt
  held.lifetimeMillis = answer.lifetimeMillis
  held.expiresAt = askedAt + answer.lifetimeMillis
  held.remaining = answer.remaining
}

/** Refuses uses of at least this cost from memory for a while, after an answer that refused one. */
export const rememberRefusal = (held: Held, cost: number, lease: Lease, now: number) => {
  // At least half a lifetime, which is a fortieth of a window: in that time portions for several replicas drain.
  const millis = Math.max(lease.retryMillis ?? Infinity, lease.lifetimeMillis / 2)
  held.blocked = { cost, at: now, until: now + Math.min(millis, maxBlockMillis), lease }
}
