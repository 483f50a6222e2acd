import { Clock, Effect, Exit } from "effect"
import { LRUCache } from "lru-cache"
import { type Unauthorized, Unavailable } from "../Errors.ts"
import type { KeyLimits } from "./ApiKeyRepository.ts"
import {
  storeLease,
  rememberRefusal,
  takeUnused,
  type Held,
  updateDemand,
  leftOf,
  makeHeld,
  type Refusal,
  refusalOf,
  takeHeld,
  unitsOf,
} from "./HeldPortion.ts"
import type { Lease } from "./KeyCounter.ts"
import { KeyCounterRepository } from "./KeyCounterRepository.ts"

/** Counters that a process holds portions of; the least recently used one makes room. */
const maxCounters = 100_000
/** Uses that wait for one counter. */
const maxWaiters = 1_000
/** A portion that is unused for so long is returned. */
const maxIdleMillis = 2_000
/** Portions that one run returns. */
const maxReturned = 2_000
const busy = new Unavailable({ error: "Too many validations of this key wait for the database; try again." })

/**
 * The portions of counters that this process holds: exact limits over all replicas, answered from memory. A portion is
 * leased from the database (`KeyCounter.lease`), used for its lifetime, and returned when idle and at shutdown. Its
 * lifetime counts from before the question, so that it ends here no later than for the database. While the database is
 * away, what is held may be used.
 *
 * @param notValid the answer when the key has just been deleted
 */
export const make = (notValid: Unauthorized) =>
  Effect.gen(function* () {
    const { lease } = yield* KeyCounterRepository
    const clock = yield* Clock.Clock
    const run = Effect.runForkWith(yield* Effect.context<never>())
    const counters = new LRUCache<string, Held>({ max: maxCounters, dispose: (held) => void run(returnUnits(held)) })
    const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

    const heldOf = (orgId: string, { counterId, version }: KeyLimits, now: number) => {
      const known = counters.get(counterId)
      if (known !== undefined) {
        if (known.portion !== null && known.portion.version < version) takeUnused(known)
        if (known.blocked !== null && known.blocked.lease.version < version) known.blocked = null
        return known
      }
      const held = makeHeld(orgId, counterId, now)
      counters.set(counterId, held)
      return held
    }

    /** Puts an idle portion back; it is given up first, so that it is never used and put back. */
    const returnUnits = (held: Held) => {
      const unused = takeUnused(held)
      if (unused === null) return Effect.void
      // After a failure the units stay taken.
      return Effect.ignore(lease(held, { need: 0, waiting: 0, want: 0, unused }))
    }

    /** Answers those that wait, in order, as far as the new portion reaches. */
    const serve = (held: Held, answer: Lease, need: number) => {
      const now = nowMillis()
      if (answer.exhausted !== null) rememberRefusal(held, need, answer, now)
      // What is refused does not hold the cheaper ones up.
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

    /** Asks for one portion after another while uses wait. */
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
     * Takes `cost` units from the held portion. Returns false, and takes nothing, when the portion has too few units or is
     * being renewed.
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
       * Takes units for a use from memory. Returns the credits that are left (`null`: it has no such limit), or `undefined`
       * when only `take` can answer.
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

      /** Returns the portions that are idle or past their lifetime. */
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

      /** Returns the leased units of all portions to the database. Runs at shutdown. */
      returnAll: Effect.suspend(() =>
        Effect.forEach([...counters.values()], returnUnits, { concurrency: "unbounded", discard: true }),
      ),
    }
  })
