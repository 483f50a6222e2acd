import { Clock, Context, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import type { OrgLimitName } from "../../domain/orgs/OrgLimits.ts"

/** What is counted row by row. */
export type CountedLimit = Exclude<OrgLimitName, "storedBytes">

/** What was counted of an org, and what this replica has added since. */
export interface Counted {
  readonly name: CountedLimit
  readonly orgId: string
  readonly limit: number
  readonly count: number
  /** When it was counted, and when it was last known to hold, in monotonic milliseconds. */
  readonly countedAt: number
  at: number
  added: number
  /** Whether it was asked for since the last look of the background. */
  used: boolean
}

/**
 * How far below its limit an org must be for a creation that takes no lock. It covers the creations that are in flight
 * at one time, which do not see each other: two batches of 64 of each of two replicas.
 */
export const margin = 256

/** How long a count is believed, in milliseconds. */
const maxAgeMillis = 10_000
/** The same, as long as the background confirms it, of an org that is below half of its limit. */
const maxConfirmedMillis = 60_000
/** How many counts, and how many orgs with new pending deliveries, are kept at most. */
const maxKept = 10_000

const first = <A>(all: Iterable<A>, limit: number) => {
  const some: Array<A> = []
  for (const one of all) {
    if (some.length === limit) break
    some.push(one)
  }
  return some
}

const make = Effect.map(Clock.Clock, (clock) => {
  const counts = new LRUCache<string, Counted>({ max: maxKept })
  const owners = new LRUCache<string, string>({ max: maxKept })
  const unwritten = new Map<string, number>()
  const withPending = new LRUCache<string, string>({ max: maxKept })

  const keyOf = (name: CountedLimit, orgId: string) => `${name} ${orgId}`
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const fresh = (name: CountedLimit, orgId: string) => {
    const counted = counts.get(keyOf(name, orgId))
    if (counted === undefined || now() - counted.at > maxAgeMillis) return undefined
    counted.used = true
    return counted
  }
  const counted = (name: CountedLimit, orgId: string, limit: number, count: number) => {
    const key = keyOf(name, orgId)
    const used = counts.get(key)?.used ?? true
    const at = now()
    counts.set(key, { name, orgId, limit, count, countedAt: at, at, added: 0, used })
  }

  return {
    counted,

    /** What was counted lately. */
    known: (name: CountedLimit, orgId: string) => fresh(name, orgId),

    /**
     * Whether the org of an owner certainly has room for one more, which is then counted as added. Other replicas add at
     * the same time, so a replica trusts a count for a quarter of the room that it left.
     *
     * @param owner an org's id, or what `owns` has said to be of an org
     */
    take: (name: CountedLimit, owner: string) => {
      const known = fresh(name, owners.get(owner) ?? owner)
      if (known === undefined || known.added >= (known.limit - margin - known.count) / 4) return false
      known.added++
      return true
    },

    /** Remembers whose an owner is. */
    owns: (owner: string, orgId: string) => {
      if (owner !== orgId) owners.set(owner, orgId)
    },

    /** Counts one more where the background counts; tells whether the limit was reached before. */
    addWatched: (name: CountedLimit, orgId: string, limit: number) => {
      if (fresh(name, orgId) === undefined) counted(name, orgId, limit, 0)
      const known = fresh(name, orgId)!
      if (known.count + known.added >= known.limit) return false
      known.added++
      return true
    },

    /** Goes on believing a count of an org that is far below its limit; tells whether it does. */
    confirm: (known: Counted, limit: number) => {
      const isFar = known.count + known.added < limit / 2 && now() - known.countedAt < maxConfirmedMillis
      if (isFar && limit === known.limit) known.at = now()
      return isFar && limit === known.limit
    },

    /** Forgets what was counted of an org: its limits have changed. */
    forget: (orgId: string) => {
      for (const [key, known] of [...counts]) if (known.orgId === orgId) counts.delete(key)
    },

    /** The counts that were asked for since the last call; the others are forgotten. */
    takeUsed: (): ReadonlyArray<Counted> => {
      const used: Array<Counted> = []
      for (const [key, known] of [...counts]) {
        if (known.used) used.push(known)
        else counts.delete(key)
        known.used = false
      }
      return used
    },

    /** Counts bytes that an org stores (or no longer stores, below zero), until they are written down. */
    addBytes: (orgId: string, bytes: number) => {
      if (bytes === 0) return
      const left = (unwritten.get(orgId) ?? 0) + bytes
      if (left === 0) unwritten.delete(orgId)
      else unwritten.set(orgId, left)
    },
    unwrittenBytes: (orgId: string) => unwritten.get(orgId) ?? 0,
    /** Up to `limit` orgs with bytes that are not written down yet; they stay until `addBytes` takes them back. */
    unwritten: (limit: number): ReadonlyArray<readonly [orgId: string, bytes: number]> => first(unwritten, limit),

    /** Notes that an org may have new pending deliveries, so that they are counted. */
    notePending: (orgId: string) => {
      withPending.set(orgId, orgId)
    },
    /** Up to `limit` orgs with new pending deliveries, which are then no longer noted. */
    takeWithPending: (limit: number): ReadonlyArray<string> => {
      return Array.from({ length: Math.min(limit, withPending.size) }, () => withPending.pop()!)
    },
  }
})

/** What this replica has in memory of how much each org has: counts of a few seconds ago, and what is not written yet. */
export class OrgUsage extends Context.Service<OrgUsage, Effect.Success<typeof make>>()(
  "gatehouse/infrastructure/OrgUsage",
) {
  static readonly layer = Layer.effect(OrgUsage, make)
}
