import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { AttemptRecord, Claim, LaneInHand } from "../../domain/DeliveryQueue.ts"

interface Lane {
  /** Attempts under way, and failed ones that are not recorded: the database does not know of those yet. */
  flying: number
  /** Of those, the failed ones. */
  failed: number
  /** Whether the last attempt that was recorded failed: then a claim leaves what is due, but for one. */
  failing: boolean
  /** Claimed ahead, so that the lane does not stand still while the database is asked. */
  waiting: Array<{ readonly delivery: ClaimedDelivery; readonly since: number }>
  /** How many may wait: twice as many whenever they run low within a moment of a claim. */
  ahead: number
  /** When a claim gave some of it for the last time. */
  claimedAt: number
  /** Whether the queue may have more of it: the last claim left what had no room. */
  more: boolean
}

export interface InHandOptions {
  /** How many deliveries there may be in all. */
  readonly max: number
  /** How many attempts a lane may have under way. */
  readonly laneCap: number
  /** A monotonic time in milliseconds. */
  readonly now: () => number
  /** Makes an attempt; `ended` or `died` is called when it is over. */
  readonly begin: (delivery: ClaimedDelivery) => void
  /** Takes deliveries that are not attempted here; `removed` is called when they are the queue's again. */
  readonly giveBack: (deliveries: ReadonlyArray<ClaimedDelivery>) => void
  /** Called when a lane of which the queue may have more runs low: it is time to claim. */
  readonly onLow: () => void
}

/** How long a delivery may wait here, in milliseconds: then its url, its secret or its endpoint may have changed. */
const maxWait = 1_000
/** How soon a lane runs low, in milliseconds, that may have more waiting. */
const moment = 100

/** What a worker has in hand: the deliveries that are claimed and not recorded, by lane. */
export const makeInHand = ({ max, laneCap, now, begin, giveBack, onLow }: InHandOptions) => {
  const lanes = new Map<string, Lane>()
  let total = 0
  /** Of those, the ones that are delivered and only to be recorded: they take nothing from the others but memory. */
  let delivered = 0
  /** Of those, the ones on their way back to the queue. */
  let returning = 0
  /** Whether something that is due may have been left in the queue: there was no room in all, or it was given back. */
  let left = false
  const few = Math.ceil(max / 2)
  const maxAhead = Math.max(laneCap, few - laneCap)
  const most = Math.ceil((max * 3) / 4)
  // Not for the last of them: a claim of a handful costs as much as one of many.
  const handful = max / 16

  const newLane = (): Lane => ({
    flying: 0,
    failed: 0,
    failing: false,
    waiting: [],
    ahead: laneCap,
    claimedAt: 0,
    more: false,
  })

  const open = () => total - delivered

  /**
   * How many places there are, and how many of them a lane may have: with few taken, attempts and some ahead; then attempts
   * alone; once three quarters are taken, one: endpoints that begin to hang, however many at once, leave the rest to others.
   */
  const room = () => {
    if (open() < few - handful) return { places: few, capOf: (ahead: number) => laneCap + ahead }
    if (open() < most - handful) return { places: most, capOf: () => laneCap }
    return { places: max, capOf: () => 1 }
  }

  /** Ends what a lane has waiting. */
  const clear = (lane: Lane) => {
    lane.ahead = laneCap
    if (lane.waiting.length === 0) return
    left = true
    returning += lane.waiting.length
    giveBack(lane.waiting.splice(0).map(({ delivery }) => delivery))
  }

  /** Begins what waits and has room; after a failure nothing more, for the endpoint has one attempt at a time then. */
  const proceed = (lane: Lane) => {
    if (lane.failed > 0) return clear(lane)
    const time = now()
    while (lane.flying < laneCap && lane.waiting.length > 0) {
      if (lane.waiting[0]!.since < time - maxWait) return clear(lane)
      lane.flying++
      begin(lane.waiting.shift()!.delivery)
    }
    // The other half keeps the lane going while the database is asked.
    if (!lane.more || lane.waiting.length > (lane.ahead - laneCap) / 2) return
    lane.more = false
    if (time - lane.claimedAt < moment) lane.ahead = Math.min(2 * lane.ahead, maxAhead)
    onLow()
  }

  return {
    total: () => total,

    /** How many deliveries the lanes have here, and may have, for a claim that now begins. */
    lanes: () => {
      left = returning > 0
      const { capOf } = room()
      const inHand = new Map<string, LaneInHand>()
      for (const [id, { flying, waiting, ahead }] of lanes) {
        inHand.set(id, { count: flying + waiting.length, cap: capOf(ahead) })
      }
      return { laneCap: capOf(laneCap), inHand }
    },

    /** How many may be claimed now. */
    appetite: () => Math.min(room().places - open(), max - total),

    /** Takes what a claim gave, and gives the lanes that have something to begin. */
    add: (deliveries: ReadonlyArray<ClaimedDelivery>, claim: Claim): Iterable<string> => {
      left ||= deliveries.length >= claim.limit
      total += deliveries.length
      const since = now()
      const taken = new Map<string, number>()
      for (const delivery of deliveries) {
        const lane = lanes.get(delivery.lane) ?? newLane()
        lanes.set(delivery.lane, lane)
        lane.waiting.push({ delivery, since })
        taken.set(delivery.lane, (taken.get(delivery.lane) ?? 0) + 1)
      }
      for (const [id, lane] of lanes) {
        const { count, cap } = claim.inHand.get(id) ?? { count: 0, cap: claim.laneCap }
        lane.more = count + (taken.get(id) ?? 0) >= cap
        if (taken.has(id)) lane.claimedAt = since
        left ||= lane.failing
        if (lane.flying + lane.waiting.length > 0) continue
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

    /** An attempt is over: a success makes room at once, a failure of an endpoint when it is recorded. */
    ended: ({ delivery, verdict }: AttemptRecord) => {
      const lane = lanes.get(delivery.lane)!
      if (verdict._tag === "Delivered") {
        lane.flying--
        delivered++
      } else if (delivery.endpointId !== null) lane.failed++
      proceed(lane)
    },

    /** Attempts are recorded, or given up. Gives whether there may be more to claim for it. */
    recorded: (records: ReadonlyArray<AttemptRecord>) => {
      total -= records.length
      let isNews = left
      for (const { delivery, verdict } of records) {
        // An endpoint that fails has one attempt at a time: what comes next waits for this one.
        isNews ||= verdict._tag !== "Delivered" || delivery.failingSince !== null
        if (verdict._tag === "Delivered") {
          delivered--
          const lane = lanes.get(delivery.lane)
          if (lane !== undefined) lane.failing = false
          continue
        }
        const lane = lanes.get(delivery.lane)!
        lane.flying--
        if (delivery.endpointId !== null) {
          lane.failed--
          lane.failing = true
        }
        proceed(lane)
      }
      return isNews
    },

    /** An attempt could not be made. */
    died: (delivery: ClaimedDelivery) => {
      total--
      const lane = lanes.get(delivery.lane)!
      lane.flying--
      proceed(lane)
    },

    /** Deliveries are the queue's again. */
    removed: (deliveries: ReadonlyArray<ClaimedDelivery>) => {
      total -= deliveries.length
      returning -= deliveries.length
    },

    /** Gives back all that waits. */
    clear: () => lanes.forEach(clear),
  }
}
