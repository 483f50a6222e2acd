import type { AttemptRecord, Claim, Claimed, ClaimedDelivery } from "./DeliveryQueue.ts"
import { alternateOrgs } from "../orgs/Turns.ts"
import { laneId } from "./lanes.ts"
import { maxPaceLateMillis } from "./pace.ts"
import type { SlotCommand, SlotEvent } from "./slotEvents.ts"
import {
  free,
  type Lane,
  maxPrefetched,
  minWorthwhileClaim,
  newLane,
  occupy,
  reserveNow,
  type Slots,
} from "./slotState.ts"

type Commands = Array<SlotCommand>

/** How long a delivery stays prefetched. After that its URL, its secret or its endpoint may have changed. */
const maxPrefetchMillis = 1_000
/** A lane that drains in this time doubles its prefetch limit. */
const fastDrainMillis = 100

/** Frees the slot of a delivery. Claims for an org that had used up its share, once its share is worth a claim. */
const freeSlot = (slots: Slots, delivery: ClaimedDelivery, commands: Commands) => {
  occupy(slots, delivery, -1)
  if (!slots.leftForShare) return
  const { bytes, count } = slots.orgs.get(delivery.orgId) ?? { count: 0, bytes: 0 }
  const reserve = reserveNow(slots)
  const unused = free(slots)
  const minSlots = (1 + reserve) * minWorthwhileClaim(slots)
  if (unused.count - reserve * count < minSlots || unused.bytes <= reserve * bytes) return
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
 * Gives the times that are not over to the first prefetched deliveries, which keeps their order, and releases as many of the
 * last as times were over. A late attempt would meet those of other replicas.
 */
const skipLateTimes = (slots: Slots, lane: Lane, at: number, commands: Commands) => {
  const times = lane.prefetched.flatMap(({ sendAt }) =>
    sendAt === null || sendAt < at - maxPaceLateMillis ? [] : [sendAt],
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
  while (lane.inFlight < (lane.ordered ? 1 : laneCap) && lane.prefetched.length > 0) {
    const { claimedAt, delivery, sendAt } = lane.prefetched[0]!
    if (claimedAt < at - maxPrefetchMillis) return releasePrefetched(slots, lane, commands)
    if (sendAt !== null && sendAt > at) return takeTurnAt(lane, laneId(delivery), sendAt, at, commands)
    if (sendAt !== null && sendAt < at - maxPaceLateMillis) {
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
const addClaimed = (slots: Slots, { deliveries }: Claimed, startedAt: number, at: number) => {
  const taken = new Map<string, number>()
  for (const delivery of deliveries) {
    const id = laneId(delivery)
    const lane = slots.lanes.get(id) ?? newLane(delivery.orgId, slots.limits.laneCap)
    slots.lanes.set(id, lane)
    const sendAt = delivery.delayMillis === null ? null : startedAt + delivery.delayMillis
    lane.prefetched.push({ delivery, claimedAt: at, sendAt })
    lane.ordered = delivery.ordered
    lane.claimedAt = at
    occupy(slots, delivery, 1)
    taken.set(id, (taken.get(id) ?? 0) + 1)
  }
  slots.total += deliveries.length
  return taken
}

const onClaimed = (slots: Slots, claim: Claim, claimed: Claimed, startedAt: number, at: number, commands: Commands) => {
  const taken = addClaimed(slots, claimed, startedAt, at)
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
  const lane = slots.lanes.get(laneId(delivery))!
  lane.lastSucceeded = decision._tag === "Delivered"
  if (lane.lastSucceeded) {
    lane.inFlight--
    freeSlot(slots, delivery, commands)
  } else lane.unrecordedFailures++
  proceed(slots, lane, at, commands)
}

const onDied = (slots: Slots, delivery: ClaimedDelivery, at: number, commands: Commands) => {
  const lane = slots.lanes.get(laneId(delivery))!
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
    const lane = slots.lanes.get(laneId(delivery))
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
  // Those that were left without a time of their limit get another one. No attempt of their lane may be left to claim after it.
  if (deliveries.some(({ delayMillis }) => delayMillis !== null)) commands.push({ _tag: "Claim" })
}

/**
 * Applies an event to the slots, and returns commands for the worker. An org may have three times as many slots as stay
 * free, and the same holds for bytes. So one org alone gets three quarters, several orgs get equal shares, and the next
 * org always finds free slots (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
 *
 * Changes the slots in place: a copy of the lanes for each attempt would cost more than the attempt.
 */
export const step = (slots: Slots, event: SlotEvent): ReadonlyArray<SlotCommand> => {
  const commands: Commands = []
  switch (event._tag) {
    case "Claimed":
      onClaimed(slots, event.claim, event.claimed, event.startedAt, event.at, commands)
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
