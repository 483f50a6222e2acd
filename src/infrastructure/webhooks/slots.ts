import type { ClaimedDelivery } from "../../domain/webhooks/Deliveries.ts"
import type { AttemptRecord, Claim, Claimed, LaneShare, OrgShare } from "../../domain/webhooks/DeliveryQueue.ts"
import { slotOf } from "../../domain/webhooks/DeliveryQueue.ts"

interface Lane {
  readonly orgId: string
  /** Attempts in flight, and failed ones that are not recorded: the database does not know of those yet. */
  inFlight: number
  /** Of those, the failed ones. */
  failed: number
  /** What the last attempt here showed: a lane that works keeps its slots when its org runs short of them. */
  works: boolean
  /** Whether the last attempt that was recorded failed: then a claim takes one delivery of it. */
  failing: boolean
  /** Prefetched deliveries, so that the lane does not stand still while the database is asked. */
  waiting: Array<{ readonly delivery: ClaimedDelivery; readonly since: number }>
  /** Prefetch limit; doubles when the lane drains within `drainMillis` of a claim. */
  prefetch: number
  /** When a claim took some of it last. */
  claimedAt: number
  /** Whether the queue may have more of it: the last claim left what had no room. */
  more: boolean
}

export interface SlotsOptions {
  /** Slots of this process. */
  readonly max: number
  /** Bytes of bodies that may be claimed at one time. */
  readonly maxBytes: number
  /** Attempts in flight of one lane. */
  readonly laneCap: number
  /** A monotonic time in milliseconds. */
  readonly now: () => number
  /** Makes an attempt; `ended` or `died` is called when it is over. */
  readonly begin: (delivery: ClaimedDelivery) => void
  /** Releases deliveries that are not attempted here; `removed` is called when they are the queue's again. */
  readonly release: (deliveries: ReadonlyArray<ClaimedDelivery>) => void
  /** Called when a lane of which the queue may have more runs low: it is time to claim. */
  readonly onLow: () => void
}

/** How long a delivery may be prefetched: after that its url, its secret or its endpoint may have changed. */
const maxPrefetchMillis = 1_000
/** What stays free when an org takes more, as a multiple of what it then has; more of it once slots are scarce. */
const normalReserve = 1 / 3
const scarceReserve = 8
/** A lane that drains within this time of a claim is prefetched twice as far. */
const drainMillis = 100

const sizeOf = ({ body }: ClaimedDelivery) => body.length

/**
 * The slots of a worker: the deliveries that are claimed and not recorded, by lane and org. An org may have three times as
 * many slots as stay free, and bytes likewise: alone it has three quarters of them, and as others come, all have equal
 * shares; there is always room for the next (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
 */
export const makeSlots = ({ max, maxBytes, laneCap, now, begin, release, onLow }: SlotsOptions) => {
  const lanes = new Map<string, Lane>()
  const orgs = new Map<string, { count: number; bytes: number }>()
  let total = 0
  /** Slots and bytes in use. What is delivered and not yet recorded takes memory, and no slot. */
  let used = 0
  let usedBytes = 0
  /** Deliveries on their way back to the queue. */
  let returning = 0
  /** Whether something that is due may have been left in the queue: there was no slot, or it was released. */
  let left = false
  /** Whether the last claim left something for which an org had no share. */
  let short = false
  const maxPrefetched = Math.ceil(max / 2)
  const maxPrefetch = Math.max(laneCap, maxPrefetched - laneCap)
  // Not for the last of them: a claim of a handful costs as much as one of many.
  const handful = max / 16

  const newLane = (orgId: string): Lane => ({
    orgId,
    inFlight: 0,
    failed: 0,
    works: false,
    failing: false,
    waiting: [],
    prefetch: laneCap,
    claimedAt: 0,
    more: false,
  })

  const occupy = (delivery: ClaimedDelivery, sign: 1 | -1) => {
    const org = orgs.get(delivery.orgId) ?? { count: 0, bytes: 0 }
    const bytes = sign * sizeOf(delivery)
    used += sign
    usedBytes += bytes
    org.count += sign
    org.bytes += bytes
    if (org.count > 0) orgs.set(delivery.orgId, org)
    else orgs.delete(delivery.orgId)
  }

  const free = (): OrgShare => ({ count: max - used, bytes: maxBytes - usedBytes })
  /** Whether seven eighths of the slots are in use: many orgs at once have what may hang. */
  const isScarce = () => max - used < max / 8
  const reserveNow = () => (isScarce() ? scarceReserve : normalReserve)
  /** Claims for what an org had no share for, once it has a share that is worth a claim. */
  const regain = (orgId: string) => {
    if (!short) return
    const { bytes, count } = orgs.get(orgId) ?? { count: 0, bytes: 0 }
    const reserve = reserveNow()
    if (free().count - reserve * count < (1 + reserve) * handful || free().bytes <= reserve * bytes) return
    short = false
    onLow()
  }

  /** Releases what a lane has prefetched. */
  const clear = (lane: Lane) => {
    lane.prefetch = laneCap
    if (lane.waiting.length === 0) return
    left = true
    returning += lane.waiting.length
    release(lane.waiting.splice(0).map(({ delivery }) => delivery))
  }

  /** Begins what is prefetched and has a slot; after a failure nothing more, for the lane has one attempt at a time then. */
  const proceed = (lane: Lane) => {
    if (lane.failed > 0) return clear(lane)
    const time = now()
    while (lane.inFlight < laneCap && lane.waiting.length > 0) {
      if (lane.waiting[0]!.since < time - maxPrefetchMillis) return clear(lane)
      lane.inFlight++
      begin(lane.waiting.shift()!.delivery)
    }
    // The other half keeps the lane going while the database is asked.
    if (!lane.more || lane.waiting.length > (lane.prefetch - laneCap) / 2) return
    lane.more = false
    if (time - lane.claimedAt < drainMillis) lane.prefetch = Math.min(2 * lane.prefetch, maxPrefetch)
    onLow()
  }

  return {
    total: () => total,

    /** What lanes and orgs have here, and may have, for a claim that now begins. */
    shares: (): Pick<Claim, "lanes" | "laneCap" | "orgs" | "free" | "reserve" | "minBacklog"> => {
      left = returning > 0
      const prefetches = used < maxPrefetched - handful
      const inUse = new Map<string, LaneShare>()
      for (const [id, { inFlight, prefetch, waiting, works }] of lanes) {
        inUse.set(id, { count: inFlight + waiting.length, cap: prefetches ? laneCap + prefetch : laneCap, works })
      }
      const reserve = reserveNow()
      return {
        laneCap: prefetches ? 2 * laneCap : laneCap,
        lanes: inUse,
        orgs: new Map(orgs),
        free: free(),
        reserve,
        minBacklog: Math.ceil(handful),
      }
    },

    /** How many may be claimed now: while slots are scarce, half of what is free. */
    claimable: () => Math.min(isScarce() ? Math.ceil((max - used) / 2) : max - used, max - total),

    /** Takes what a claim brought, and returns the lanes that have something to begin. */
    add: ({ deliveries, short: isShort }: Claimed, claim: Claim): Iterable<string> => {
      short = isShort
      left ||= deliveries.length >= claim.limit
      total += deliveries.length
      const since = now()
      const taken = new Map<string, number>()
      for (const delivery of deliveries) {
        const id = slotOf(delivery)
        const lane = lanes.get(id) ?? newLane(delivery.orgId)
        lanes.set(id, lane)
        lane.waiting.push({ delivery, since })
        occupy(delivery, 1)
        taken.set(id, (taken.get(id) ?? 0) + 1)
      }
      for (const [id, lane] of lanes) {
        const { count, cap } = claim.lanes.get(id) ?? { count: 0, cap: claim.laneCap }
        lane.more = count + (taken.get(id) ?? 0) >= cap
        if (taken.has(id)) lane.claimedAt = since
        left ||= lane.failing
        if (lane.inFlight + lane.waiting.length > 0) continue
        lanes.delete(id)
        // It was full when the claim began, and nothing is left of it that would ask for the next.
        if (lane.more) onLow()
      }
      return taken.keys()
    },

    /** Begins what a lane has room for. */
    begin: (id: string) => {
      const lane = lanes.get(id)
      if (lane !== undefined) proceed(lane)
    },

    /** An attempt is over: a success frees its slot at once, a failure when it is recorded. */
    ended: ({ delivery, verdict }: AttemptRecord) => {
      const lane = lanes.get(slotOf(delivery))!
      lane.works = verdict._tag === "Delivered"
      if (lane.works) {
        lane.inFlight--
        occupy(delivery, -1)
        regain(delivery.orgId)
      } else lane.failed++
      proceed(lane)
    },

    /** Attempts are recorded, or given up. Returns whether there may be more to claim for it. */
    recorded: (records: ReadonlyArray<AttemptRecord>) => {
      total -= records.length
      let isNews = left
      for (const { delivery, verdict } of records) {
        const lane = lanes.get(slotOf(delivery))
        // A lane that failed had one attempt at a time: what comes next waited for this one.
        isNews ||= delivery.failures > 0 || delivery.failingSince !== null
        if (verdict._tag === "Delivered") {
          if (lane !== undefined) lane.failing = false
          continue
        }
        isNews = true
        occupy(delivery, -1)
        regain(delivery.orgId)
        lane!.inFlight--
        lane!.failed--
        lane!.failing = true
        proceed(lane!)
      }
      return isNews
    },

    /** An attempt could not be made. */
    died: (delivery: ClaimedDelivery) => {
      total--
      occupy(delivery, -1)
      const lane = lanes.get(slotOf(delivery))!
      lane.inFlight--
      proceed(lane)
    },

    /** Released deliveries are the queue's again. */
    removed: (deliveries: ReadonlyArray<ClaimedDelivery>) => {
      total -= deliveries.length
      returning -= deliveries.length
      for (const delivery of deliveries) occupy(delivery, -1)
    },

    /** Releases all that is prefetched. */
    clear: () => lanes.forEach(clear),
  }
}
