import type { ClaimedDelivery } from "./DeliveryQueue.ts"
import type { Claim, LaneShare, OrgShare } from "./DeliveryQueue.ts"

/** Deliveries that a claim takes of a lane that sends in order: one claim at a time has deliveries of such a lane. */
export const orderedBatchSize = 20

/** The limits of one process. */
export interface SlotLimits {
  readonly slots: number
  /** Bytes of the bodies that are claimed at the same time. */
  readonly bytes: number
  /** Attempts in flight of one lane. */
  readonly laneCap: number
  /** Deliveries that one claim may take. */
  readonly claimBatchSize: number
}

/** A claimed delivery that waits for a slot, or for its time. */
export interface Prefetched {
  readonly delivery: ClaimedDelivery
  readonly claimedAt: number
  /** When it may be sent, in monotonic milliseconds; `null` in a lane without a limit per second. */
  readonly sendAt: number | null
}

export interface Lane {
  readonly orgId: string
  /** Whether it sends one delivery at a time, in order. */
  ordered: boolean
  /** When the lane may start its next timed attempt, in monotonic milliseconds; 0 if there is none. */
  turnAt: number
  /** Attempts in flight, and failed attempts that are not recorded. */
  inFlight: number
  /** Failed attempts that are not recorded. The lane begins no attempt while there is one. */
  unrecordedFailures: number
  /** Whether the last attempt succeeded. Such a lane keeps its slots when its org runs short of them. */
  lastSucceeded: boolean
  /** Whether the last recorded attempt failed. A claim takes one delivery of such a lane. */
  lastRecordFailed: boolean
  /** Deliveries that are claimed before a slot is free, so that the lane does not wait for the database. */
  prefetched: Array<Prefetched>
  /** Doubles when the lane runs low within `fastDrainMillis` of a claim. */
  prefetchLimit: number
  /** When a claim last took a delivery of this lane. */
  claimedAt: number
  /** Whether the last claim filled the lane, so that the queue may have more. */
  mayHaveMore: boolean
}

/** The deliveries that this process has claimed and not recorded, by lane and by org. */
export interface Slots {
  readonly limits: SlotLimits
  readonly lanes: Map<string, Lane>
  readonly orgs: Map<string, { count: number; bytes: number }>
  /** Deliveries that are claimed and not recorded. */
  total: number
  /** Slots in use. A delivered attempt that is not recorded takes memory, but no slot. */
  used: number
  usedBytes: number
  /** Deliveries whose release has not reached the database. */
  releasing: number
  /** Whether the queue may have due deliveries that the last claim did not take. */
  mayHaveMore: boolean
  /** Whether the last claim left deliveries because their org had no share. */
  leftForShare: boolean
}

/** How many slots must stay free after an org takes one more: this factor times the slots of the org. */
const reserve = 1 / 3
/** `reserve` while slots are scarce. */
const scarceReserve = 8

export const makeSlots = (limits: SlotLimits): Slots => ({
  limits,
  lanes: new Map(),
  orgs: new Map(),
  total: 0,
  used: 0,
  usedBytes: 0,
  releasing: 0,
  mayHaveMore: false,
  leftForShare: false,
})

export const newLane = (orgId: string, prefetchLimit: number): Lane => ({
  orgId,
  ordered: false,
  turnAt: 0,
  inFlight: 0,
  unrecordedFailures: 0,
  lastSucceeded: false,
  lastRecordFailed: false,
  prefetched: [],
  prefetchLimit,
  claimedAt: 0,
  mayHaveMore: false,
})

export const free = ({ limits, used, usedBytes }: Slots): OrgShare => ({
  count: limits.slots - used,
  bytes: limits.bytes - usedBytes,
})
/** Whether seven eighths of the slots are in use. Then many orgs have receivers that may hang. */
const isScarce = ({ limits, used }: Slots) => limits.slots - used < limits.slots / 8
export const reserveNow = (slots: Slots) => (isScarce(slots) ? scarceReserve : reserve)
/** The smallest claim to make, in deliveries. Every claim costs about the same, so a smaller one wastes a statement. */
export const minWorthwhileClaim = ({ limits }: Slots) => limits.slots / 16
/** The most deliveries that a process prefetches. */
export const maxPrefetched = ({ limits }: Slots) => Math.ceil(limits.slots / 2)

/** Adds the slot and the bytes of a delivery, or removes them with -1. */
export const occupy = (slots: Slots, { orgId, body }: ClaimedDelivery, sign: 1 | -1) => {
  const org = slots.orgs.get(orgId) ?? { count: 0, bytes: 0 }
  const bytes = sign * body.length
  slots.used += sign
  slots.usedBytes += bytes
  org.count += sign
  org.bytes += bytes
  if (org.count > 0) slots.orgs.set(orgId, org)
  else slots.orgs.delete(orgId)
}

/** A claim without its id and its times. */
export type ClaimRequest = Omit<Claim, "claimId" | "now" | "leaseUntil">

/** Starts a claim. Returns `undefined` while no slot is free. While slots are scarce, a claim takes half of the free ones. */
export const startClaim = (slots: Slots): ClaimRequest | undefined => {
  const { laneCap, claimBatchSize, slots: max } = slots.limits
  const unused = free(slots)
  const claimable = Math.min(isScarce(slots) ? Math.ceil(unused.count / 2) : unused.count, max - slots.total)
  if (claimable <= 0) return undefined
  slots.mayHaveMore = slots.releasing > 0
  const prefetches = slots.used < maxPrefetched(slots) - minWorthwhileClaim(slots)
  const lanes = new Map<string, LaneShare>()
  for (const [id, { inFlight, lastSucceeded, prefetched, prefetchLimit }] of slots.lanes) {
    const cap = prefetches ? laneCap + prefetchLimit : laneCap
    lanes.set(id, { count: inFlight + prefetched.length, cap, works: lastSucceeded })
  }
  return {
    limit: Math.min(claimBatchSize, claimable),
    laneCap: prefetches ? 2 * laneCap : laneCap,
    lanes,
    orgs: new Map(slots.orgs),
    free: unused,
    reserve: reserveNow(slots),
    minBacklog: Math.ceil(minWorthwhileClaim(slots)),
  }
}
