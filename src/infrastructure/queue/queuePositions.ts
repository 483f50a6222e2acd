import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { LRUCache } from "lru-cache"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { slotsLeft } from "../../domain/webhooks/Slots.ts"
import { receiverOf } from "./lanes.ts"

/**
 * How far before a position, or before now, claims begin to read at the latest, in milliseconds: another replica's
 * transaction may commit a little later than its time. What commits later still is found by a look.
 */
const marginMillis = 500
/** Lanes with a backlog, and positions of lanes, that a process remembers. Beyond that, each org may have a few. */
const maxLanes = 10_000
/** Orgs with a backlog that get a turn in one claim. */
const maxOrgsPerClaim = 32
/** Lanes with a backlog that one claim reads, of all orgs together. */
const maxLanesPerClaim = 512
/** Lanes of each org that one claim may read, however many orgs there are. */
const minLanesPerOrg = 64
/** Rows that a claim reads at the head of the queue, at least. */
const minHeadSize = 512
/**
 * Rows that a claim reads at the head of the queue, at most: the number doubles while a claim moves most of them to the
 * backlog.
 */
export const maxHeadSize = 4_096
/**
 * Deliveries in flight here, of all or of a lane, beside which claims begin at the position: their rows are at the head
 * of the queue, or of the lane's backlog.
 */
const maxInFlightToRead = 64
/** A look that takes longer than this, in milliseconds of the database, has read many dead entries. */
const slowMillis = 0.5
/** A look that takes longer than this does not delay a claim. */
const tooSlowMillis = 50
/** The shortest wait between two looks. */
const minWaitMillis = 1_000
/** The wait between two looks, as a multiple of the time of one: looks use a twentieth of a connection. */
const waitFactor = 20
/** The longest wait: what one org has left in an index must not make the deliveries of others wait. */
const maxWaitMillis = 4_000

/** The backlog of a lane: its org, the lane, and, if known, the `due_at` of its first delivery in JSON. */
export type LaneHead = readonly [orgId: string, lane: string, first: string | null]

/** SQL: the lanes of the backlogged rows of a CTE (org_id, lane, due_at, backlogged), as `LaneHead`s in JSON. */
export const laneHeads = (sql: SqlClient.SqlClient, rows: string) =>
  sql.literal(`(
    SELECT json_agg(json_build_array(org_id, lane, first)) FROM (
      SELECT org_id, lane, min(due_at) AS first FROM ${rows} WHERE backlogged GROUP BY org_id, lane
    ) AS heads
  )`)

/** A place in the backlog of a lane: the `due_at` of a delivery in microseconds, and its id. */
export interface Place {
  readonly micros: number
  readonly id: string
}

/** What a claim reads. */
export interface Reads {
  /** The `due_at` from which the head of the queue is read; `null` from the beginning. */
  readonly headSince: DateTime.Utc | null
  readonly headSize: number
  /** Orgs in turn, with the most deliveries that the claim may take from the backlog of each. */
  readonly orgs: ReadonlyArray<{ readonly orgId: string; readonly share: number; readonly isCut: boolean }>
  /** Lanes of these orgs in turn, each with the place from which it is read; `null` from the beginning. */
  readonly lanes: ReadonlyArray<{ readonly orgId: string; readonly lane: string; readonly since: Place | null }>
  /** Whether lanes or orgs are left to the next claim. */
  readonly more: boolean
  /** Whether an org has a backlog and no share. */
  readonly short: boolean
}

/** What a claim found. */
export interface Found {
  /** The first `due_at` at the head of the queue. */
  readonly head: Date | null
  /** For each lane in the order of `Reads`: how many deliveries fitted, and where the next claim begins. */
  readonly lanes: ReadonlyArray<readonly [count: number, next: Place | null]>
  /** How many deliveries of the head it backlogged, and their lanes. */
  readonly backlogged: number
  readonly backloggedLanes: ReadonlyArray<LaneHead>
}

/** What a look found. */
interface Look {
  /** When it began. */
  readonly at: DateTime.Utc
  /** The first `due_at` at the head of the queue. */
  readonly head: Date | null
  /** Lanes with a backlog, in the order of the index. */
  readonly lanes: ReadonlyArray<LaneHead>
  readonly tookMillis: number
}

const dateOf = (position: number | undefined) =>
  position === undefined ? null : DateTime.makeUnsafe(position - marginMillis)

/** Whether a place comes before another one. */
export const isBefore = (a: Place, b: Place) => a.micros < b.micros || (a.micros === b.micros && a.id < b.id)

/** The first of two places, or the one that is known. */
const firstOf = (a: Place | undefined, b: Place | undefined) =>
  a === undefined || (b !== undefined && isBefore(b, a)) ? b : a

/** The place a little before all that is due at a time in milliseconds. */
export const placeBefore = (millis: number): Place => ({ micros: 1000 * (millis - marginMillis), id: "" })

/** Where a claim begins to read a lane: not after what may be committed a little later than its time. */
const startOf = (position: Place | undefined, now: DateTime.Utc) =>
  position === undefined ? null : firstOf(position, placeBefore(now.epochMilliseconds))!

/** The free slots of an org's share; 0 when its share is too small to claim from its backlog. */
const slotsOf = ({ free, minBacklog, orgs, reserve }: Claim, orgId: string) => {
  const slots = Math.ceil(slotsLeft(free, reserve, orgs.get(orgId)))
  return slots >= Math.min(minBacklog, orgs.get(orgId)?.count ?? 0) ? Math.max(0, slots) : 0
}

/**
 * Where the queue of deliveries begins, as far as this process knows (ADR 30). Delivered deliveries leave dead index
 * entries, which stay while any old transaction is open. So claims do not read an index from its beginning: they read
 * the head of the queue from the first delivery that the last claim found there, and each lane from the first that it
 * left, and they know the lanes that have a backlog.
 *
 * What this process queues before a position moves the position back. What others left there, such as expired leases,
 * is found by a look, which reads from the beginning, beside the claims.
 *
 * A look that takes less than 0.5 ms has met no dead entries. After such a look, claims read from the beginning, unless
 * they would read many deliveries that are in flight here.
 */
export const makeQueuePositions = () => {
  /** The orgs with a backlog, and their lanes. Both are in turn: the next ones first. */
  const orgs = new Map<string, Set<string>>()
  const positions = new LRUCache<string, Place>({ max: maxLanes })
  let head: number | undefined
  /** The earliest delivery at the head that this process queued since the last claim began, which may not see it. */
  let queuedSince = Infinity
  let headSize = minHeadSize
  let lookMillis = 0
  /** When a look last read all lanes: those that it did not find have no earlier delivery. */
  let lookedAt: Place | undefined
  let lanes = 0
  /** Whether lanes may have a backlog that this process does not know. */
  let isLookDue = true
  /** Where the next look begins: after this lane. */
  let after: readonly [orgId: string, lane: string] = ["", ""]
  /** Lanes that wait for a retry, with its time. */
  const waiting = new LRUCache<string, { readonly orgId: string; readonly until: DateTime.Utc }>({ max: maxLanes })
  /** Lanes that got deliveries since the claim in flight began, with the first place that is known of one. */
  const changed = new Map<string, Place | undefined>()

  const positionOf = (lane: string) => positions.get(lane) ?? lookedAt

  /** Adds a lane with a backlog; returns whether it is new. */
  const add = ([orgId, lane, first]: LaneHead) => {
    const place = first === null ? undefined : placeBefore(Date.parse(first))
    changed.set(lane, firstOf(changed.get(lane), place))
    if (place !== undefined) positions.set(lane, firstOf(positionOf(lane), place)!)
    const known = orgs.get(orgId)
    if (known?.has(lane) || (lanes >= maxLanes && (known?.size ?? 0) >= minLanesPerOrg)) return false
    lanes++
    if (known === undefined) orgs.set(orgId, new Set([lane]))
    else known.add(lane)
    return true
  }

  /** Moves a lane to the end of its org's turns, or removes it. */
  const move = (orgId: string, lane: string, stays: boolean) => {
    const known = orgs.get(orgId)
    if (!known?.delete(lane)) return
    if (stays) known.add(lane)
    else if (known.size === 0) orgs.delete(orgId)
    if (!stays) lanes--
  }

  const moveHeadBack = (at: number) => {
    queuedSince = Math.min(queuedSince, at)
    if (head !== undefined && at < head) head = at
  }

  return {
    /** What a claim reads: orgs in turn, and within each its lanes in turn. */
    reads: (claim: Claim): Reads => {
      changed.clear()
      queuedSince = Infinity
      for (const [lane, { orgId, until }] of waiting) {
        if (DateTime.isGreaterThan(until, claim.now)) continue
        waiting.delete(lane)
        add([orgId, lane, null])
      }
      // After the clock was set back.
      if (head !== undefined && head - marginMillis > claim.now.epochMilliseconds) head = undefined
      const inFlight = [...claim.orgs.values()].reduce((sum, { count }) => sum + count, 0)
      const open: Array<{ readonly orgId: string; readonly slots: number }> = []
      let [more, short] = [false, false]
      for (const orgId of orgs.keys()) {
        const slots = slotsOf(claim, orgId)
        if (slots === 0) short = true
        else if (open.length === maxOrgsPerClaim) more = true
        else open.push({ orgId, slots })
      }
      const turnShare = Math.ceil(claim.limit / open.length)
      const asked: Array<Reads["lanes"][number]> = []
      for (const { orgId, slots } of open) {
        const share = Math.min(slots, turnShare)
        const max = Math.max(minLanesPerOrg, Math.min(share, Math.floor(maxLanesPerClaim / open.length)))
        let left = max
        for (const lane of orgs.get(orgId)!) {
          const here = claim.lanes.get(receiverOf(lane))
          if (here !== undefined && here.count >= here.cap) continue
          if (left-- === 0) {
            more = true
            break
          }
          const begins = lookMillis > slowMillis || (here?.count ?? 0) > maxInFlightToRead
          asked.push({ orgId, lane, since: begins ? startOf(positionOf(lane), claim.now) : null })
        }
      }
      return {
        headSince: lookMillis > slowMillis || inFlight > maxInFlightToRead ? dateOf(head) : null,
        headSize,
        orgs: open.map(({ orgId, slots }) => ({
          orgId,
          share: Math.min(slots, turnShare),
          isCut: turnShare < slots,
        })),
        lanes: asked,
        more,
        short,
      }
    },

    /** Remembers what a claim found; returns whether an org used up its turn, so that the next claim may find more. */
    claimed: (claim: Claim, reads: Reads, found: Found) => {
      if (found.head !== null) head = Math.min(found.head.getTime(), queuedSince)
      headSize = found.backlogged > headSize / 2 ? Math.min(2 * headSize, maxHeadSize) : minHeadSize
      const left = new Map(reads.orgs.map(({ orgId, share }) => [orgId, share]))
      for (const [n, { lane, orgId }] of reads.lanes.entries()) {
        const share = left.get(orgId)!
        // The claim did not come to this lane: it keeps its turn.
        if (share <= 0) continue
        const [count, next] = found.lanes[n]!
        left.set(orgId, share - count)
        // What was queued meanwhile may come before it.
        if (next !== null) positions.set(lane, firstOf(next, changed.get(lane))!)
        // An empty lane has no backlog, unless its deliveries in flight keep it closed.
        move(orgId, lane, count > 0 || claim.lanes.has(receiverOf(lane)) || changed.has(lane))
      }
      for (const { orgId } of reads.orgs) {
        const known = orgs.get(orgId)
        if (known !== undefined && orgs.delete(orgId)) orgs.set(orgId, known)
      }
      found.backloggedLanes.forEach(add)
      return reads.orgs.some(({ isCut, orgId }) => isCut && left.get(orgId)! <= 0)
    },

    /** Adds lanes in which this process queued deliveries. */
    backlogged: (heads: ReadonlyArray<LaneHead> | null) => heads?.forEach(add),

    /** A retry of a lane that sends in order waits until this time. */
    waits: (orgId: string, lane: string, until: DateTime.Utc) => void waiting.set(lane, { orgId, until }),

    /** This process queued deliveries at the head, due at this time in milliseconds. */
    queued: moveHeadBack,

    /** This process queued deliveries in lanes that it does not name. */
    changed: () => {
      isLookDue = true
    },

    /** The `due_at` from which the head of the queue is read for the next due time. */
    headSince: () => (lookMillis > slowMillis ? dateOf(head) : null),

    /** Whether the next claim waits for a look. A slow look runs beside the claims. */
    needsLook: () => isLookDue && lookMillis <= tooSlowMillis,

    /** Where a look begins. */
    startLook: () => {
      isLookDue = false
      return after
    },

    /** Remembers what a look found; returns whether a claim may find more now, and the wait before the next look. */
    looked: ({ at, head: first, lanes: heads, tookMillis }: Look, limit: number) => {
      lookMillis = tookMillis
      head = Math.min(head ?? Infinity, first?.getTime() ?? at.epochMilliseconds)
      if (after[0] === "" && heads.length < limit) lookedAt = placeBefore(at.epochMilliseconds)
      const added = heads.filter(add)
      const last = heads.at(-1)
      // Full: the next claim waits for the next lanes.
      isLookDue ||= heads.length === limit
      after = heads.length === limit ? [last![0], last![1]] : ["", ""]
      return {
        found: first !== null || added.length > 0,
        waitMillis: Math.min(Math.max(minWaitMillis, waitFactor * tookMillis), maxWaitMillis),
      }
    },
  }
}

type QueuePositions = ReturnType<typeof makeQueuePositions>

const all = new WeakMap<SqlClient.SqlClient, QueuePositions>()

/** The positions of this process in the queue of a database. */
export const queuePositions = (sql: SqlClient.SqlClient): QueuePositions => {
  const known = all.get(sql) ?? makeQueuePositions()
  all.set(sql, known)
  return known
}

/** Says, after the commit, that this process queued deliveries in lanes that it does not name. */
export const changedLanes = (sql: SqlClient.SqlClient) => sql.afterCommit(Effect.sync(queuePositions(sql).changed))
