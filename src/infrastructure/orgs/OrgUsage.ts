import { Clock, Context, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import type { OrgLimitName } from "../../domain/orgs/OrgLimits.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"

/** The limits that count rows. */
export type CountedLimit = Exclude<OrgLimitName, "storedBytes">

/** A count of an org's rows, and what this replica has added since. */
export interface Counted {
  readonly name: CountedLimit
  readonly orgId: string
  readonly count: number
  /** In monotonic milliseconds. */
  readonly countedAt: number
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

/** The age at which rows are counted again that are far below their limit, in milliseconds; others are always. */
const maxFreshMillis = 60_000
/** How long a count is used, in milliseconds: two runs of the background longer. */
const maxAgeMillis = 70_000
/** Entries of each cache. */
const maxCacheEntries = 10_000

/**
 * The most rows that an org has, with those in flight. Other replicas add rows at the same time, so what this replica
 * has added counts four times.
 */
export const mostRows = ({ added, count }: Counted) => count + 4 * added + lockFreeMargin

/** The latest counts, by limit and org. */
const makeCounts = (clock: Clock.Clock) => {
  const counts = new LRUCache<string, Counted>({ max: maxCacheEntries })
  const orgOfOwner = new LRUCache<string, string>({ max: maxCacheEntries })
  const keyOf = (name: CountedLimit, orgId: string) => `${name} ${orgId}`
  const nowMillis = () => monotonicMillisOf(clock)

  /** Stores a new count. */
  const counted = (name: CountedLimit, orgId: string, count: number, countedAt = nowMillis()) => {
    const key = keyOf(name, orgId)
    const used = counts.get(key)?.used ?? true
    counts.set(key, { name, orgId, count, countedAt, added: 0, used })
  }

  /** Begins a count, and returns what stores it: rows that this replica adds meanwhile may be missing in it. */
  const counting = (name: CountedLimit, owner: string) => {
    const orgId = () => orgOfOwner.get(owner) ?? owner
    const before = counts.get(keyOf(name, orgId()))
    const added = before?.added ?? 0
    return (count: number) => {
      const now = counts.get(keyOf(name, orgId()))
      const since = now === before ? -added : 0
      counted(name, orgId(), count)
      counts.get(keyOf(name, orgId()))!.added = (now?.added ?? 0) + since
    }
  }

  /**
   * Returns a count that is still valid.
   *
   * @param owner an org's id, or an owner that `owns` knows
   */
  const known = (name: CountedLimit, owner: string) => {
    const found = counts.get(keyOf(name, orgOfOwner.get(owner) ?? owner))
    if (found === undefined || nowMillis() - found.countedAt > maxAgeMillis) return undefined
    found.used = true
    return found
  }

  return {
    counted,
    counting,
    known,

    /** Adds rows; without a count, stores that the org has at most so many beside them. */
    atMost: (name: CountedLimit, orgId: string, count: number, rows: number) => {
      if (known(name, orgId) === undefined) counted(name, orgId, count)
      known(name, orgId)!.added += rows
    },

    /** Whether the rows need no new count: the last one is far below the limit, and less than a minute old. */
    isFresh: ({ added, count, countedAt }: Counted, limit: number) =>
      count + added < limit / 2 && nowMillis() - countedAt < maxFreshMillis,

    /** Remembers the org of an owner. */
    owns: (owner: string, orgId: string) => {
      if (owner !== orgId) orgOfOwner.set(owner, orgId)
    },

    /** Adds rows that the background counts; returns `false` when the limit leaves no room for them. */
    addWatched: (name: CountedLimit, orgId: string, limit: number, rows = 1) => {
      // Not fresh: the next run of the background counts the rows.
      if (known(name, orgId) === undefined) counted(name, orgId, 0, nowMillis() - maxFreshMillis)
      const found = known(name, orgId)!
      if (found.count + found.added + rows > limit) return false
      found.added += rows
      return true
    },

    /** Returns the counts that were read since the last call, and deletes the others. */
    takeUsed: (): ReadonlyArray<Counted> => {
      const used: Array<Counted> = []
      for (const [key, found] of [...counts]) {
        if (found.used) used.push(found)
        else counts.delete(key)
        found.used = false
      }
      return used
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

const make = Effect.map(Clock.Clock, (clock) => ({
  ...makeCounts(clock),
  ...makeUnwrittenBytes(),
  ...makePendingNotes(),
}))

/** How much each org has, as far as this replica has it in memory: counts of the last minute, and unwritten bytes. */
export class OrgUsage extends Context.Service<OrgUsage, Effect.Success<typeof make>>()(
  "gatehouse/infrastructure/OrgUsage",
) {
  static readonly layer = Layer.effect(OrgUsage, make)
}
