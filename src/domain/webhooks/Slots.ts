import type { Duration } from "effect"
import { alternateOrgs } from "../roundRobin.ts"
import {
  type AttemptRecord,
  type Claim,
  type Claimed,
  type ClaimedDelivery,
  type LaneShare,
  type OrgShare,
  receiverId,
} from "./DeliveryQueue.ts"

type Commands = Array<SlotCommand>

/** How long a delivery stays prefetched. After that its URL, its secret or its endpoint may have changed. */
const maxPrefetchMillis = 1_000
/** A lane that drains in this time doubles its prefetch limit. */
const fastDrainMillis = 100

/** Frees the slot of a delivery. Claims for an org that had used up its share, once its share is worth a claim. */
const freeSlot = (slots: Slots, delivery: ClaimedDelivery, commands: Commands) => {
  occupy(slots, delivery, -1)
  if (!slots.leftForShare) return
  const left = slotsLeft(free(slots), reserveNow(slots), slots.orgs.get(delivery.orgId))
  if (left < minWorthwhileClaim(slots)) return
  slots.leftForShare = false
  commands.push({ _tag: "Claim" })
}

const releasePrefetched = (slots: Slots, lane: Lane, commands: Commands) => {
  lane.prefetchLimit = slots.limits.laneCap
  if (lane.prefetched.length === 0) return
  slots.mayHaveMore = true
  slots.releasing += lane.prefetched.length
  commands.push({ _tag: "Release", deliveries: lane.prefetched.splice(0).map(({ delivery }) => delivery) })
}

/**
 * Assigns the times that have not passed to the first prefetched deliveries, so that they keep their order. Releases as
 * many of the last deliveries as times have passed: a late attempt would come together with those of other replicas.
 */
const skipLateTimes = (slots: Slots, lane: Lane, at: number, commands: Commands) => {
  const times = lane.prefetched.flatMap(({ sendAt }) =>
    sendAt === null || sendAt < at - maxThrottleLateMillis ? [] : [sendAt],
  )
  const withoutTime = lane.prefetched.splice(times.length)
  lane.prefetched = lane.prefetched.map((one, n) => ({ ...one, sendAt: times[n]! }))
  slots.mayHaveMore = true
  slots.releasing += withoutTime.length
  commands.push({ _tag: "Release", deliveries: withoutTime.map(({ delivery }) => delivery) })
}

/** Asks for a turn of the lane at the time of its next attempt, unless it has one before. */
const takeTurnAt = (lane: Lane, id: string, sendAt: number, at: number, commands: Commands) => {
  if (lane.turnAt > at && lane.turnAt <= sendAt) return
  lane.turnAt = sendAt
  commands.push({ _tag: "TakeTurnAt", lane: id, at: sendAt })
}

/** Starts the prefetched attempts that have a slot. A lane with an unrecorded failure releases them instead. */
const proceed = (slots: Slots, lane: Lane, at: number, commands: Commands) => {
  const { laneCap } = slots.limits
  if (lane.unrecordedFailures > 0) return releasePrefetched(slots, lane, commands)
  while (lane.inFlight < (lane.ordered ? 1 : laneCap + lane.batchMax) && lane.prefetched.length > 0) {
    const { claimedAt, delivery, sendAt } = lane.prefetched[0]!
    if (claimedAt < at - maxPrefetchMillis) return releasePrefetched(slots, lane, commands)
    if (sendAt !== null && sendAt > at) return takeTurnAt(lane, receiverId(delivery), sendAt, at, commands)
    if (sendAt !== null && sendAt < at - maxThrottleLateMillis) {
      skipLateTimes(slots, lane, at, commands)
      continue
    }
    lane.inFlight++
    commands.push({ _tag: "Attempt", delivery: lane.prefetched.shift()!.delivery })
  }
  // Claims at half of the prefetch limit: the rest keeps the lane busy during the claim.
  if (!lane.mayHaveMore || lane.prefetched.length > (lane.prefetchLimit - laneCap) / 2) return
  lane.mayHaveMore = false
  if (at - lane.claimedAt < fastDrainMillis) {
    lane.prefetchLimit = Math.min(2 * lane.prefetchLimit, Math.max(laneCap, maxPrefetched(slots) - laneCap))
  }
  commands.push({ _tag: "Claim" })
}

/** Adds claimed deliveries, and returns how many each lane got. */
const addClaimed = (slots: Slots, { deliveries }: Claimed, at: number) => {
  const taken = new Map<string, number>()
  for (const delivery of deliveries) {
    const id = receiverId(delivery)
    const lane = slots.lanes.get(id) ?? newLane(delivery.orgId, slots.limits.laneCap)
    slots.lanes.set(id, lane)
    const sendAt = delivery.delayMillis === null ? null : at + delivery.delayMillis
    lane.prefetched.push({ delivery, claimedAt: at, sendAt })
    lane.ordered = delivery.ordered
    lane.batchMax = delivery.batchMax ?? 0
    lane.claimedAt = at
    occupy(slots, delivery, 1)
    taken.set(id, (taken.get(id) ?? 0) + 1)
  }
  slots.total += deliveries.length
  return taken
}

const onClaimed = (slots: Slots, claim: Claim, claimed: Claimed, at: number, commands: Commands) => {
  const taken = addClaimed(slots, claimed, at)
  slots.leftForShare = claimed.short
  slots.mayHaveMore ||= claimed.deliveries.length >= claim.limit
  for (const [id, lane] of slots.lanes) {
    const { count, cap } = claim.lanes.get(id) ?? { count: 0, cap: claim.laneCap }
    lane.mayHaveMore = count + (taken.get(id) ?? 0) >= cap
    slots.mayHaveMore ||= lane.lastRecordFailed
    if (lane.inFlight + lane.prefetched.length > 0) continue
    slots.lanes.delete(id)
    // The lane was full when the claim began, and has no attempt left whose end would cause the next claim.
    if (lane.mayHaveMore) commands.push({ _tag: "Claim" })
  }
  const lanes = alternateOrgs([...taken.keys()], (id) => slots.lanes.get(id)!.orgId)
  if (lanes.length > 0) commands.push({ _tag: "TakeTurns", lanes })
}

/** A success frees its slot at once, and a failure when it is recorded. */
const onEnded = (slots: Slots, { delivery, decision }: AttemptRecord, at: number, commands: Commands) => {
  const lane = slots.lanes.get(receiverId(delivery))!
  lane.lastSucceeded = decision._tag === "Delivered"
  if (lane.lastSucceeded) {
    lane.inFlight--
    freeSlot(slots, delivery, commands)
  } else lane.unrecordedFailures++
  proceed(slots, lane, at, commands)
}

const onDied = (slots: Slots, delivery: ClaimedDelivery, at: number, commands: Commands) => {
  const lane = slots.lanes.get(receiverId(delivery))!
  slots.total--
  lane.inFlight--
  occupy(slots, delivery, -1)
  proceed(slots, lane, at, commands)
  commands.push({ _tag: "Claim" })
}

const onRecorded = (slots: Slots, records: ReadonlyArray<AttemptRecord>, at: number, commands: Commands) => {
  slots.total -= records.length
  let claims = slots.mayHaveMore
  for (const { delivery, decision } of records) {
    const lane = slots.lanes.get(receiverId(delivery))
    // After a failure a lane makes one attempt at a time: its next delivery waited for this record.
    claims ||= delivery.failures > 0 || delivery.failingSince !== null
    // A lane that sends in order is claimed again when all of its deliveries are recorded.
    claims ||= delivery.ordered && (lane === undefined || lane.inFlight + lane.prefetched.length === 0)
    if (delivery.ordered && decision._tag === "Retry") commands.push({ _tag: "ClaimAfter", wait: decision.wait })
    if (decision._tag === "Delivered") {
      if (lane !== undefined) lane.lastRecordFailed = false
      continue
    }
    claims = true
    freeSlot(slots, delivery, commands)
    lane!.inFlight--
    lane!.unrecordedFailures--
    lane!.lastRecordFailed = true
    proceed(slots, lane!, at, commands)
  }
  if (claims) commands.push({ _tag: "Claim" })
}

const onReleased = (slots: Slots, deliveries: ReadonlyArray<ClaimedDelivery>, commands: Commands) => {
  slots.total -= deliveries.length
  slots.releasing -= deliveries.length
  for (const delivery of deliveries) occupy(slots, delivery, -1)
  // Deliveries that a limit per second delayed were released without a time to be sent. A claim gives them one. They
  // may be all that is due in their lane: then no later attempt would ask for that claim.
  if (deliveries.some(({ delayMillis }) => delayMillis !== null)) commands.push({ _tag: "Claim" })
}

/**
 * Applies an event to the slots, and returns commands for the worker. Changes the slots in place: a copy of the lanes
 * for each attempt would cost more than the attempt.
 */
export const step = (slots: Slots, event: SlotEvent): ReadonlyArray<SlotCommand> => {
  const commands: Commands = []
  switch (event._tag) {
    case "Claimed":
      onClaimed(slots, event.claim, event.claimed, event.at, commands)
      break
    case "LaneTurn": {
      const lane = slots.lanes.get(event.lane)
      if (lane === undefined) break
      // A timer may be early: the lane then asks for another turn.
      lane.turnAt = 0
      proceed(slots, lane, event.at, commands)
      break
    }
    case "AttemptEnded":
      onEnded(slots, event.record, event.at, commands)
      break
    case "AttemptDied":
      onDied(slots, event.delivery, event.at, commands)
      break
    case "Recorded":
      onRecorded(slots, event.records, event.at, commands)
      break
    case "Released":
      onReleased(slots, event.deliveries, commands)
      break
    case "Stopping":
      for (const lane of slots.lanes.values()) releasePrefetched(slots, lane, commands)
  }
  return commands
}

/** Deliveries that a claim takes of a lane that sends in order: one claim at a time has deliveries of such a lane. */
export const orderedBatchSize = 20

/** The limits of one process. */
interface SlotLimits {
  readonly slots: number
  /** Bytes of the bodies that are claimed at the same time. */
  readonly bytes: number
  /** Attempts in flight of one lane. */
  readonly laneCap: number
  /** Deliveries that one claim may take. */
  readonly claimBatchSize: number
}

/** A claimed delivery that waits for a slot, or for its time. */
interface Prefetched {
  readonly delivery: ClaimedDelivery
  readonly claimedAt: number
  /** When it may be sent, in monotonic milliseconds; `null` in a lane without a limit per second. */
  readonly sendAt: number | null
}

interface Lane {
  readonly orgId: string
  /** Whether it sends one delivery at a time, in order. */
  ordered: boolean
  /** Deliveries that a request may have, which are in flight beside those of other requests; 0: one for each. */
  batchMax: number
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
interface Slots {
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

/**
 * The slots that an org with these deliveries may take so that `reserve` times its new total stays free; none when that
 * does not hold for the bytes. So one org alone gets 1 ÷ (1 + reserve) of the slots, several orgs get equal shares, and
 * the next org always finds free slots (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
 */
export const slotsLeft = (free: OrgShare, reserve: number, { bytes, count }: OrgShare = { bytes: 0, count: 0 }) =>
  free.bytes > reserve * bytes ? (free.count - reserve * count) / (1 + reserve) : 0

/** What stays free when an org takes more, as a multiple of what the org then has. */
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

const newLane = (orgId: string, prefetchLimit: number): Lane => ({
  orgId,
  ordered: false,
  batchMax: 0,
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

const free = ({ limits, used, usedBytes }: Slots): OrgShare => ({
  count: limits.slots - used,
  bytes: limits.bytes - usedBytes,
})
/** Whether seven eighths of the slots are in use. Then many orgs have receivers that may hang. */
const isScarce = ({ limits, used }: Slots) => limits.slots - used < limits.slots / 8
const reserveNow = (slots: Slots) => (isScarce(slots) ? scarceReserve : reserve)
/** The smallest claim to make, in deliveries. Every claim costs about the same, so a smaller one wastes a statement. */
const minWorthwhileClaim = ({ limits }: Slots) => limits.slots / 16
/** The most deliveries that a process prefetches. */
const maxPrefetched = ({ limits }: Slots) => Math.ceil(limits.slots / 2)

/** Adds the slot and the bytes of a delivery, or removes them with -1. */
const occupy = (slots: Slots, { orgId, bytes: size }: ClaimedDelivery, sign: 1 | -1) => {
  const org = slots.orgs.get(orgId) ?? { count: 0, bytes: 0 }
  const bytes = sign * size
  slots.used += sign
  slots.usedBytes += bytes
  org.count += sign
  org.bytes += bytes
  if (org.count > 0) slots.orgs.set(orgId, org)
  else slots.orgs.delete(orgId)
}

/** A claim without its id and its times. */
export type ClaimRequest = Omit<Claim, "claimId" | "now" | "leaseUntil">

/**
 * Starts a claim. Returns `undefined` while no slot is free. While slots are scarce, a claim takes half of the free
 * ones.
 */
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

/** An event of the worker. `at` is a monotonic time in milliseconds. */
export type SlotEvent =
  | { readonly _tag: "Claimed"; readonly claim: Claim; readonly claimed: Claimed; readonly at: number }
  | { readonly _tag: "LaneTurn"; readonly lane: string; readonly at: number }
  | { readonly _tag: "AttemptEnded"; readonly record: AttemptRecord; readonly at: number }
  | { readonly _tag: "AttemptDied"; readonly delivery: ClaimedDelivery; readonly at: number }
  | { readonly _tag: "Recorded"; readonly records: ReadonlyArray<AttemptRecord>; readonly at: number }
  | { readonly _tag: "Released"; readonly deliveries: ReadonlyArray<ClaimedDelivery> }
  | { readonly _tag: "Stopping" }

/** A command to the worker. */
export type SlotCommand =
  | { readonly _tag: "Attempt"; readonly delivery: ClaimedDelivery }
  /** Send a `LaneTurn` for each lane, one after the other. */
  | { readonly _tag: "TakeTurns"; readonly lanes: ReadonlyArray<string> }
  /** Send a `LaneTurn` for the lane at this monotonic time. */
  | { readonly _tag: "TakeTurnAt"; readonly lane: string; readonly at: number }
  /** Claim again after this time: a lane that sends in order waits for a retry. */
  | { readonly _tag: "ClaimAfter"; readonly wait: Duration.Duration }
  | { readonly _tag: "Release"; readonly deliveries: ReadonlyArray<ClaimedDelivery> }
  /** Claim: there may be due deliveries with a free slot. */
  | { readonly _tag: "Claim" }

/** How far ahead a claim assigns the times of attempts of an endpoint with a limit per second. */
export const throttleHorizonMillis = 500
/** How late an attempt may begin after its time. A time that is over by more is lost. */
export const maxThrottleLateMillis = 30
/**
 * How much longer than 1 / limit the time between two attempts is. With it, any second has at most the limit, also when
 * some attempts arrive up to 80 ms later than others: `maxThrottleLateMillis` before they begin, and the rest on their
 * way.
 */
export const throttleMargin = 1.08
