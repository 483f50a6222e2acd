import { Clock, Context, Effect, Exit } from "effect"
import { LRUCache } from "lru-cache"
import { CostAboveLimit, CreditsExhausted, TooManyRequests, type Unauthorized, Unavailable } from "../Errors.ts"
import type { KeyLimits } from "./ApiKeyRepository.ts"
import type { Lease, LeaseAsk, LeasedQuota } from "./keyLimits.ts"
import { monotonicMillisOf } from "../monotonicMillis.ts"

/** Counters that a process has leased quotas of; the least recently used one is evicted. */
const maxCounters = 100_000
/** Uses that wait for one counter. */
const maxWaiters = 1_000
/** A leased quota that is unused for so long is returned. */
const maxIdleMillis = 2_000
/** Leased quotas that one run returns. */
const maxReturned = 2_000
const busy = new Unavailable({ error: "Too many validations of this key wait for the database; try again." })

/**
 * The leased quotas of this process: exact limits over all replicas, answered from memory. A quota is leased from the
 * database (`KeyCounter.lease`), used for its lifetime, and returned when idle and at shutdown. The lifetime counts
 * from before the request, so that it ends here no later than for the database. While the database is away, quotas may
 * be used until their lifetime ends.
 *
 * @param notValid the answer when the key has just been deleted
 */
export const make = (notValid: Unauthorized) =>
  Effect.gen(function* () {
    const { lease } = yield* KeyCounterRepository
    const clock = yield* Clock.Clock
    const run = Effect.runForkWith(yield* Effect.context<never>())
    const counters = new LRUCache<string, Held>({ max: maxCounters, dispose: (held) => void run(returnUnits(held)) })
    const nowMillis = () => monotonicMillisOf(clock)

    const heldOf = (orgId: string, { counterId, version }: KeyLimits, now: number) => {
      const known = counters.get(counterId)
      if (known !== undefined) {
        if (known.quota !== null && known.quota.version < version) takeUnused(known)
        if (known.blocked !== null && known.blocked.lease.version < version) known.blocked = null
        return known
      }
      const held = makeHeld(orgId, counterId, now)
      counters.set(counterId, held)
      return held
    }

    /** Returns the unused units to the database. They leave memory first, so that no unit is both used and returned. */
    const returnUnits = (held: Held) => {
      const unused = takeUnused(held)
      if (unused === null) return Effect.void
      // After a failure the units stay taken.
      return Effect.ignore(lease(held, { need: 0, waiting: 0, want: 0, unused }))
    }

    /** Answers the waiting uses, in order, as far as the new quota reaches. */
    const serve = (held: Held, answer: Lease, need: number) => {
      const now = nowMillis()
      if (answer.exhausted !== null) rememberRefusal(held, need, answer, now)
      // A use that is refused does not delay cheaper ones.
      const waiters = held.waiters
      held.waiters = []
      for (const waiter of waiters) {
        if (answer.exhausted !== null && waiter.cost >= need)
          waiter.done(Effect.fail(refusalOf(answer, waiter.cost, 0)))
        else if (waiter.cost <= held.units) {
          takeHeld(held, waiter.cost, now)
          waiter.done(Effect.succeed(leftOf(held)))
        } else held.waiters.push(waiter)
      }
    }

    const answerAll = (held: Held, answer: Effect.Effect<never, Refusal>) => {
      for (const { done } of held.waiters.splice(0)) done(answer)
    }

    /** Leases one quota after another while uses wait. */
    const askWhileWaiting = Effect.fnUntraced(function* (held: Held) {
      while (held.waiters.length > 0) {
        const askedAt = nowMillis()
        updateDemand(held, askedAt)
        const need = held.waiters[0]!.cost
        const waiting = held.waiters.reduce((sum, { cost }) => sum + cost, 0)
        const ask = { need, waiting, want: held.want, unused: takeUnused(held) }
        const exit = yield* Effect.exit(lease(held, ask))
        if (Exit.isFailure(exit)) answerAll(held, Effect.failCause(exit.cause))
        else if (exit.value === undefined) answerAll(held, Effect.fail(notValid))
        else {
          storeLease(held, exit.value, askedAt)
          serve(held, exit.value, need)
        }
      }
      held.isAsking = false
    })

    /**
     * Takes `cost` units from the quota. Returns false, and takes nothing, when the quota has too few units or
     * is being renewed.
     */
    const takeNow = (held: Held, cost: number, now: number) => {
      if (unitsOf(held, now) < cost || held.isAsking) return false
      takeHeld(held, cost, now)
      return true
    }

    const wait = (held: Held, cost: number) =>
      Effect.callback<number | null, Refusal>((resume) => {
        if (held.waiters.length >= maxWaiters) return resume(Effect.fail(busy))
        const waiter = { cost, done: resume }
        held.waiters.push(waiter)
        if (!held.isAsking) {
          held.isAsking = true
          run(askWhileWaiting(held))
        }
        return Effect.sync(() => {
          held.waiters = held.waiters.filter((one) => one !== waiter)
        })
      })

    /** Reads the credits that are left. */
    const readLeft = (held: Held) =>
      Effect.flatMap(lease(held, { need: 0, waiting: 0, want: 0, unused: null }), (answer) => {
        if (answer === undefined) return Effect.fail(notValid)
        return Effect.succeed(answer.remaining === null ? null : answer.remaining + held.units)
      })

    return {
      /**
       * Takes units for a use from memory. Returns the credits that are left (`null`: it has no such limit), or
       * `undefined` when only `take` can answer.
       */
      takeFromMemory: (orgId: string, limits: KeyLimits, cost: number): number | null | undefined => {
        if (cost === 0) return limits.hasCredits ? undefined : null
        const now = nowMillis()
        const held = heldOf(orgId, limits, now)
        return takeNow(held, cost, now) ? leftOf(held) : undefined
      },

      /** Takes units for a use. Returns the credits that are left; `null`: it has no such limit. */
      take: (orgId: string, limits: KeyLimits, cost: number): Effect.Effect<number | null, Refusal> =>
        Effect.suspend(() => {
          const now = nowMillis()
          const held = heldOf(orgId, limits, now)
          if (cost === 0) return limits.hasCredits ? readLeft(held) : Effect.succeed(null)
          if (takeNow(held, cost, now)) return Effect.succeed(leftOf(held))
          const { blocked } = held
          if (blocked !== null && cost >= blocked.cost && now < blocked.until) {
            return Effect.fail(refusalOf(blocked.lease, cost, now - blocked.at))
          }
          return wait(held, cost)
        }),

      /** The units of a rate limit that are left, as far as this process knows: as of the last lease. */
      rateLeft: ({ counterId }: KeyLimits, limit: number): number => {
        const held = counters.peek(counterId)
        return held === undefined || held.rateLeft === null ? limit : Math.min(limit, held.rateLeft + held.units)
      },

      /** Returns the leased quotas that are idle or past their lifetime. */
      returnIdle: Effect.suspend(() => {
        const now = nowMillis()
        const idle: Array<Held> = []
        for (const held of counters.values()) {
          if (held.isAsking || now - held.usedAt < maxIdleMillis) continue
          if (held.units > 0) idle.push(held)
          else if (now - held.usedAt > 60_000) counters.delete(held.counterId)
          if (idle.length >= maxReturned) break
        }
        return Effect.forEach(idle, returnUnits, { concurrency: "unbounded", discard: true })
      }),

      /** Returns all leased quotas to the database. Runs at shutdown. */
      returnAll: Effect.suspend(() =>
        Effect.forEach([...counters.values()], returnUnits, { concurrency: "unbounded", discard: true }),
      ),
    }
  })

type Refusal = TooManyRequests | CostAboveLimit | CreditsExhausted | Unauthorized | Unavailable

/** A use that waits for the database. Its result is the credits that are left. */
interface Waiter {
  readonly cost: number
  readonly done: (outcome: Effect.Effect<number | null, Refusal>) => void
}

/** What this process holds of a counter. Times are of the monotonic clock, in milliseconds. */
interface Held {
  readonly orgId: string
  readonly counterId: string
  quota: LeasedQuota | null
  /** The units that are left of the quota. Apart from `quota`, because each use changes them. */
  units: number
  /** The quota may not be used from then on. */
  expiresAt: number
  lifetimeMillis: number
  leasedAt: number
  /** The credits beside the quota. */
  remaining: number | null
  /** The units of the rate limit beside the quota. */
  rateLeft: number | null
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
const refusalOf = ({ exhausted, maxCost, retryMillis }: Lease, cost: number, passedMillis: number) => {
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

const unitsOf = (held: Held, now: number) => (now >= held.expiresAt ? 0 : held.units)

/** The credits that are left, as far as this process knows. */
const leftOf = ({ remaining, units }: Held) => (remaining === null ? null : remaining + units)

/** Takes units of the quota. The caller has checked that it has them. */
const takeHeld = (held: Held, cost: number, now: number) => {
  held.units -= cost
  held.usedAt = now
}

/** Drops the quota, and returns what is left of it. */
const takeUnused = (held: Held): LeasedQuota | null => {
  const unused = held.quota === null || held.units === 0 ? null : { ...held.quota, units: held.units }
  held.quota = null
  held.units = 0
  return unused
}

/** The state of a counter without a leased quota. */
const makeHeld = (orgId: string, counterId: string, now: number): Held => {
  const times = { expiresAt: 0, lifetimeMillis: 0, leasedAt: 0, usedAt: now }
  return {
    orgId,
    counterId,
    quota: null,
    units: 0,
    ...times,
    remaining: null,
    rateLeft: null,
    want: 1,
    blocked: null,
    isAsking: false,
    waiters: [],
  }
}

/** Decides how large the next quota should be by how the last one was used. */
const updateDemand = (held: Held, now: number) => {
  const left = held.units
  if (held.quota === null) return
  if (left === 0 && now - held.leasedAt < held.lifetimeMillis / 2) held.want = Math.min(held.want * 2, maxWant)
  if (left > 0 && now >= held.expiresAt) held.want = Math.max(1, held.want - left)
}

/**
 * Keeps the quota of an answer. Its lifetime counts from the question, so that it ends no later than for the
 * database.
 */
const storeLease = (held: Held, answer: Lease, askedAt: number) => {
  held.quota = answer
  held.units = answer.units
  held.leasedAt = askedAt
  held.lifetimeMillis = answer.lifetimeMillis
  held.expiresAt = askedAt + answer.lifetimeMillis
  held.remaining = answer.remaining
  held.rateLeft = answer.rateLeft
}

/** Refuses uses of at least this cost from memory for a while, after an answer that refused one. */
const rememberRefusal = (held: Held, cost: number, lease: Lease, now: number) => {
  // At least half a lifetime, which is a fortieth of a window: in that time leased quotas for several replicas drain.
  const millis = Math.max(lease.retryMillis ?? Infinity, lease.lifetimeMillis / 2)
  held.blocked = { cost, at: now, until: now + Math.min(millis, maxBlockMillis), lease }
}

/** A counter, and the key whose use asks it. */
export interface CounterId {
  readonly orgId: string
  readonly counterId: string
}

/** The counters of keys with limits. */
export class KeyCounterRepository extends Context.Service<
  KeyCounterRepository,
  {
    /**
     * Leases a quota of a counter (`KeyCounter.lease`) by the database's clock, in one transaction. Questions of the
     * same time are answered together. `undefined`: there is no such key any more. After a failure it is unknown
     * whether the units are taken: treat them as taken.
     */
    readonly lease: (counter: CounterId, ask: LeaseAsk) => Effect.Effect<Lease | undefined, Unavailable>
  }
>()("gatehouse/domain/keys/KeyCounterRepository") {}
