import { Clock, Context, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import type { OrgLimitName } from "../../domain/orgs/OrgLimits.ts"

/** The limits that count rows. */
export type CountedLimit = Exclude<OrgLimitName, "storedBytes">

/** A count of an org's rows, and what this replica has added since. */
export interface Counted {
  readonly name: CountedLimit
  readonly orgId: string
  readonly limit: number
  readonly count: number
  /** When the rows were counted, in monotonic milliseconds. */
  readonly countedAt: number
  /** When the count was last counted or confirmed, in monotonic milliseconds. */
  confirmedAt: number
  added: number
  /** Whether it was read since the last `takeUsed`. */
  used: boolean
}

/**
 * A creation takes no lock while more rows than this are free below the limit.
 * They cover the creations in flight, which do not see each
 * other: two batches of 64 in each of two replicas.
 */
export const lockFreeMargin = 256

/** How long a count is valid, in milliseconds. */
const maxAgeMillis = 10_000
/** `confirm` renews a count below half of its limit only until the count is this old, in milliseconds. */
const maxConfirmedMillis = 60_000
/** Entries of each cache. */
const maxCacheEntries = 10_000

/** Counts of the last seconds, by limit and org. */
const makeCounts = (clock: Clock.Clock) => {
  const counts = new LRUCache<string, Counted>({ max: maxCacheEntries })
  const keyOf = (name: CountedLimit, orgId: string) => `${name} ${orgId}`
  const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  return {
    /** Stores a new count. */
    counted: (name: CountedLimit, orgId: string, limit: number, count: number) => {
      const key = keyOf(name, orgId)
      const used = counts.get(key)?.used ?? true
      const now = nowMillis()
      counts.set(key, { name, orgId, limit, count, countedAt: now, confirmedAt: now, added: 0, used })
    },

    /** Returns a count that is still valid. */
    known: (name: CountedLimit, orgId: string) => {
      const known = counts.get(keyOf(name, orgId))
      if (known === undefined || nowMillis() - known.confirmedAt > maxAgeMillis) return undefined
      known.used = true
      return known
    },

    /** Renews a count that is below half of its limit; returns whether it did. */
    confirm: (known: Counted, limit: number) => {
      const isFarBelow = known.count + known.added < limit / 2
      const isConfirmed = isFarBelow && limit === known.limit && nowMillis() - known.countedAt < maxConfirmedMillis
      if (isConfirmed) known.confirmedAt = nowMillis()
      return isConfirmed
    },

    /** Deletes the counts of an org, whose limits have changed. */
    forget: (orgId: string) => {
      for (const [key, known] of [...counts]) if (known.orgId === orgId) counts.delete(key)
    },

    /** Returns the counts that were read since the last call, and deletes the others. */
    takeUsed: (): ReadonlyArray<Counted> => {
      const used: Array<Counted> = []
      for (const [key, known] of [...counts]) {
        if (known.used) used.push(known)
        else counts.delete(key)
        known.used = false
      }
      return used
    },
  }
}

/** Decides from counts whether an org has room for one more row. */
const makeRoom = ({ counted, known: knownOf }: ReturnType<typeof makeCounts>) => {
  const orgOfOwner = new LRUCache<string, string>({ max: maxCacheEntries })

  return {
    /**
     * Takes room for one row if the org of an owner certainly has it. Other replicas add rows at the same time, so a
     * replica uses a quarter of the room that a count leaves.
     *
     * @param owner an org's id, or an owner that `owns` knows
     */
    take: (name: CountedLimit, owner: string) => {
      const known = knownOf(name, orgOfOwner.get(owner) ?? owner)
      if (known === undefined || known.added >= (known.limit - lockFreeMargin - known.count) / 4) return false
      known.added++
      return true
    },

    /** Remembers the org of an owner. */
    owns: (owner: string, orgId: string) => {
      if (owner !== orgId) orgOfOwner.set(owner, orgId)
    },

    /** Takes room for one row of a limit that the background counts; returns `false` when the limit is reached. */
    addWatched: (name: CountedLimit, orgId: string, limit: number) => {
      if (knownOf(name, orgId) === undefined) counted(name, orgId, limit, 0)
      const known = knownOf(name, orgId)!
      if (known.count + known.added >= known.limit) return false
      known.added++
      return true
    },
  }
}

/** Bytes that this replica has stored and not yet added to the database's count, by org. */
const makeUnwrittenBytes = () => {
  const unwritten = new Map<string, number>()

  return {
    /** Counts bytes that an org stores, or frees when below zero. */
    addBytes: (orgId: string, bytes: number) => {
      if (bytes === 0) return
      const sum = (unwritten.get(orgId) ?? 0) + bytes
      if (sum === 0) unwritten.delete(orgId)
      else unwritten.set(orgId, sum)
    },

    unwrittenBytes: (orgId: string) => unwritten.get(orgId) ?? 0,

    /** Returns up to `limit` orgs with unwritten bytes. They stay until `addBytes` takes the bytes back. */
    unwritten: (limit: number): ReadonlyArray<readonly [orgId: string, bytes: number]> => {
      const first: Array<readonly [orgId: string, bytes: number]> = []
      for (const entry of unwritten) {
        if (first.length === limit) break
        first.push(entry)
      }
      return first
    },
  }
}

/** Orgs that may have new pending deliveries. */
const makePendingNotes = () => {
  const orgs = new LRUCache<string, string>({ max: maxCacheEntries })

  return {
    /** Notes that an org may have new pending deliveries, which must be counted. */
    notePending: (orgId: string) => {
      orgs.set(orgId, orgId)
    },

    /** Removes and returns up to `limit` of the noted orgs. */
    takeWithPending: (limit: number): ReadonlyArray<string> =>
      Array.from({ length: Math.min(limit, orgs.size) }, () => orgs.pop()!),
  }
}

const make = Effect.map(Clock.Clock, (clock) => {
  const counts = makeCounts(clock)
  return { ...counts, ...makeRoom(counts), ...makeUnwrittenBytes(), ...makePendingNotes() }
})

/** How much each org has, as far as this replica has it in memory: counts of the last seconds, and unwritten bytes. */
export class OrgUsage extends Context.Service<OrgUsage, Effect.Success<typeof make>>()(
  "gatehouse/infrastructure/OrgUsage",
) {
  static readonly layer = Layer.effect(OrgUsage, make)
}
