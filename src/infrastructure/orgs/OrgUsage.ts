import { Clock, Context, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"

/** The columns of `org_usage`. `measured_bytes` are those of rows that are measured again later. */
export const columns = [
  "stored_bytes",
  "measured_bytes",
  "projects",
  "keys",
  "endpoints",
  "schedules",
  "unfinished_jobs",
] as const
export type Column = (typeof columns)[number]
/** What an org has more than `org_usage` says, or less when below zero. */
export type Amounts = Partial<Record<Column, number>>

/** What may become the org's: it counts until it is settled. */
export interface Hold {
  readonly orgId: string
  readonly amounts: Amounts
  readonly since: number
  /** Whether it holds what is there already, until that is written. */
  readonly isClaim: boolean
}

interface Usage {
  /** What is there, and not yet in `org_usage`. */
  readonly unwritten: Amounts
  /** What holds have become, while this entry exists. */
  readonly made: Amounts
  /** The sum of the holds. */
  readonly held: Amounts
  /** In the order in which they began. */
  readonly holds: Set<Hold>
}

/** Entries of each cache. */
const maxRemembered = 50_000
/** The age after which a hold counts as kept: its transaction was undone, or its commit was not answered. */
const maxHoldMillis = 60_000

const add = (to: Amounts, by: Amounts, sign = 1) => {
  for (const column of columns) if (by[column] !== undefined) to[column] = (to[column] ?? 0) + sign * by[column]
}

const sumOfBytes = (amounts: Amounts = {}) => (amounts.stored_bytes ?? 0) + (amounts.measured_bytes ?? 0)

/** What each org has beside what its row in `org_usage` says, as far as this replica has made it. */
export class OrgUsage extends Context.Service<OrgUsage>()("gatehouse/infrastructure/OrgUsage", {
  make: Effect.map(Clock.Clock, (clock) => {
    const usages = new Map<string, Usage>()
    const orgOfOwner = new LRUCache<string, string>({ max: maxRemembered })
    const counted = new LRUCache<string, true>({ max: maxRemembered })
    const pending = new LRUCache<string, string>({ max: maxRemembered })
    const nowMillis = () => monotonicMillisOf(clock)

    const change = (orgId: string, by: (usage: Usage) => void) => {
      const usage = usages.get(orgId) ?? { unwritten: {}, made: {}, held: {}, holds: new Set() }
      by(usage)
      if (usage.holds.size === 0 && columns.every((column) => !usage.unwritten[column])) usages.delete(orgId)
      else usages.set(orgId, usage)
    }

    const hold = (orgId: string, amounts: Amounts, isClaim = false) => {
      const one: Hold = { orgId, amounts, since: nowMillis(), isClaim }
      change(orgId, ({ held, holds }) => {
        add(held, amounts)
        holds.add(one)
      })
      return one
    }

    /** Ends a hold: `kept` is what the org has more. */
    const settle = (one: Hold, kept: Amounts) =>
      change(one.orgId, ({ held, holds, made, unwritten }) => {
        if (!holds.delete(one)) return
        add(held, one.amounts, -1)
        add(unwritten, kept)
        if (!one.isClaim) add(made, kept)
      })

    /** Makes a hold of what is unwritten, so that nothing else writes it. */
    const claim = (orgId: string, which: ReadonlyArray<Column>) => {
      const unwritten = usages.get(orgId)?.unwritten ?? {}
      const amounts: Amounts = {}
      for (const column of which) if (unwritten[column]) amounts[column] = unwritten[column]
      change(orgId, (usage) => add(usage.unwritten, amounts, -1))
      return hold(orgId, amounts, true)
    }

    const sumBefore = (one: Hold, of: (other: Hold) => number) => {
      let sum = 0
      for (const other of usages.get(one.orgId)?.holds ?? []) {
        if (other === one) break
        if (!other.isClaim) sum += of(other)
      }
      return sum
    }
    const claimedBytes = (orgId: string) => {
      let sum = 0
      for (const { amounts, isClaim } of usages.get(orgId)?.holds ?? []) if (isClaim) sum += sumOfBytes(amounts)
      return sum
    }

    return {
      hold,
      settle,
      claim,

      /** Counts what an org stores, or frees when below zero. */
      add: (orgId: string, amounts: Amounts) => change(orgId, ({ unwritten }) => add(unwritten, amounts)),
      addBytes: (orgId: string, bytes: number) =>
        change(orgId, ({ unwritten }) => add(unwritten, { stored_bytes: bytes })),

      /** What the org has, or may have, beside `org_usage`. */
      beside: (orgId: string, column: Column) => {
        const usage = usages.get(orgId)
        return (usage?.unwritten[column] ?? 0) + (usage?.held[column] ?? 0)
      },
      /** The same for all bytes. */
      bytes: (orgId: string) => sumOfBytes(usages.get(orgId)?.unwritten) + sumOfBytes(usages.get(orgId)?.held),
      /** What holds of the org have become: a difference of two calls, if the caller had a hold all the time. */
      made: (orgId: string, column: Column) => usages.get(orgId)?.made[column] ?? 0,
      /** What the org may get by holds that began before this one. */
      heldBefore: (one: Hold, column: Column) => sumBefore(one, ({ amounts }) => amounts[column] ?? 0),
      /** All bytes beside `org_usage`, without those that began later. */
      bytesBefore: (one: Hold) =>
        sumOfBytes(usages.get(one.orgId)?.unwritten) +
        claimedBytes(one.orgId) +
        sumBefore(one, (other) => sumOfBytes(other.amounts)),

      /** Claims what is unwritten of up to `limit` orgs. */
      claimAll: (limit: number): ReadonlyArray<Hold> => {
        const claimed: Array<Hold> = []
        for (const [orgId, { holds, unwritten }] of [...usages]) {
          for (const one of holds) {
            if (nowMillis() - one.since < maxHoldMillis) break
            settle(one, one.amounts)
          }
          if (claimed.length < limit && columns.some((column) => unwritten[column])) claimed.push(claim(orgId, columns))
        }
        return claimed
      },

      /** The org of an owner, as far as it is known; else what the owner is known as. */
      orgOf: (owner: string) => orgOfOwner.get(owner) ?? owner,
      /** The org of an owner, if its rows were counted since the start of this process. */
      countedOrg: (column: Column, owner: string) => {
        const orgId = orgOfOwner.get(owner) ?? owner
        return counted.has(`${column} ${orgId}`) ? orgId : undefined
      },
      setOrgOf: (owner: string, orgId: string) => {
        if (owner !== orgId) orgOfOwner.set(owner, orgId)
      },
      setCounted: (column: Column, orgId: string) => void counted.set(`${column} ${orgId}`, true),

      /** Notes that an org may have new pending deliveries, which must be counted. */
      notePending: (orgId: string) => void pending.set(orgId, orgId),
      /** Removes and returns up to `limit` of the noted orgs. */
      takeWithPending: (limit: number): ReadonlyArray<string> =>
        Array.from({ length: Math.min(limit, pending.size) }, () => pending.pop()!),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
