import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"

interface Lane {
  /** Attempts under way, and failed ones that are not recorded: the database does not know of those yet. */
  flying: number
  /** Of those, the failed ones. */
  failed: number
  /** Claimed ahead, so that the lane does not stand still while the database is asked. */
  waiting: Array<{ readonly delivery: ClaimedDelivery; readonly since: number }>
}

export interface InHandOptions {
  /** How many deliveries there may be in all. */
  readonly max: number
  /** How many attempts a lane may have under way. */
  readonly laneCap: number
  /** The current time in milliseconds. */
  readonly now: () => number
  /** Makes an attempt; `ended` or `died` is called when it is over. */
  readonly begin: (delivery: ClaimedDelivery) => void
  /** Takes deliveries that are not attempted here; `removed` is called when they are the queue's again. */
  readonly giveBack: (deliveries: ReadonlyArray<ClaimedDelivery>) => void
  /** Called when a lane has begun the last that waited: it is time to claim more. */
  readonly onDrained: () => void
}

/** How long a delivery may wait here, in milliseconds: then its url, its secret or its endpoint may have changed. */
const maxWait = 1_000

/** What a worker has in hand: the deliveries that are claimed and not recorded, by lane. */
export const makeInHand = ({ max, laneCap, now, begin, giveBack, onDrained }: InHandOptions) => {
  const lanes = new Map<string, Lane>()
  let total = 0

  /** Ends what a lane has waiting. */
  const clear = (lane: Lane) => {
    if (lane.waiting.length > 0) giveBack(lane.waiting.splice(0).map(({ delivery }) => delivery))
  }

  /** Begins what waits and has room; after a failure nothing more, for the endpoint has one attempt at a time then. */
  const proceed = (id: string, lane: Lane, isNew = false) => {
    if (lane.failed > 0) return clear(lane)
    const tooOld = now() - maxWait
    const waited = !isNew && lane.waiting.length > 0
    while (lane.flying < laneCap && lane.waiting.length > 0) {
      if (lane.waiting[0]!.since < tooOld) return clear(lane)
      lane.flying++
      begin(lane.waiting.shift()!.delivery)
    }
    if (lane.waiting.length > 0) return
    if (waited) onDrained()
    if (lane.flying === 0) lanes.delete(id)
  }

  return {
    total: () => total,

    /** How many deliveries each lane has here, for which it has no room elsewhere. */
    counts: () => new Map([...lanes].map(([id, { flying, waiting }]) => [id, flying + waiting.length])),

    /**
     * How many may be claimed now, and up to how many for a lane. With few in hand, a lane's attempts and as many ahead;
     * once three quarters of all are taken, one: endpoints that begin to hang, however many at once, leave the rest to
     * others.
     */
    appetite: () => {
      const [few, half, most] = [1, 2, 3].map((quarters) => Math.ceil((max * quarters) / 4)) as [number, number, number]
      if (total < few) return { limit: half - total, laneCap: 2 * laneCap }
      // Not for the last of them: a claim of a handful costs as much as one of many.
      if (total < most - max / 16) return { limit: most - total, laneCap }
      return { limit: max - total, laneCap: 1 }
    },

    /** Takes what was claimed, and begins what has room. */
    add: (deliveries: ReadonlyArray<ClaimedDelivery>) => {
      total += deliveries.length
      const since = now()
      const touched = new Set<string>()
      for (const delivery of deliveries) {
        const lane = lanes.get(delivery.lane) ?? { flying: 0, failed: 0, waiting: [] }
        lanes.set(delivery.lane, lane)
        lane.waiting.push({ delivery, since })
        touched.add(delivery.lane)
      }
      for (const id of touched) proceed(id, lanes.get(id)!, true)
    },

    /** An attempt is over: a success makes room at once, a failure of an endpoint when it is recorded. */
    ended: ({ delivery, verdict }: AttemptRecord) => {
      const lane = lanes.get(delivery.lane)!
      if (verdict._tag === "Delivered") lane.flying--
      else if (delivery.endpointId !== null) lane.failed++
      proceed(delivery.lane, lane)
    },

    /** Attempts are recorded, or given up. */
    recorded: (records: ReadonlyArray<AttemptRecord>) => {
      total -= records.length
      for (const { delivery, verdict } of records) {
        if (verdict._tag === "Delivered") continue
        const lane = lanes.get(delivery.lane)!
        lane.flying--
        if (delivery.endpointId !== null) lane.failed--
        proceed(delivery.lane, lane)
      }
    },

    /** An attempt could not be made. */
    died: (delivery: ClaimedDelivery) => {
      total--
      const lane = lanes.get(delivery.lane)!
      lane.flying--
      proceed(delivery.lane, lane)
    },

    /** Deliveries are the queue's again. */
    removed: (deliveries: ReadonlyArray<ClaimedDelivery>) => {
      total -= deliveries.length
    },

    /** Gives back all that waits. */
    clear: () => lanes.forEach(clear),
  }
}
