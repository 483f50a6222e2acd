import { type Delivery, shownState } from "../deliveries/delivery.ts"

const millisOf = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const
type Every = keyof typeof millisOf

export interface HealthInterval {
  readonly at: string
  delivered: number
  pending: number
  retrying: number
  failed: number
  unsent: number
}

/** Columns of a chart at most, so that each can be seen. */
const maxIntervals = 48
const minIntervals = 24

const nameOf = (delivery: Delivery) => {
  const state = shownState(delivery)
  return state === "canceled" || state === "skipped" ? "unsent" : state
}

/** Counts deliveries by the time of their creation, until now: by minute, hour or day, as fits in a chart. */
export const intervalsOf = (deliveries: ReadonlyArray<Delivery>, now: number) => {
  const times = deliveries.map(({ created_at }) => Date.parse(created_at))
  const first = Math.min(now, ...times)
  const every: Every =
    (["minute", "hour", "day"] as const).find((every) => (now - first) / millisOf[every] < maxIntervals) ?? "day"
  const length = millisOf[every]
  const end = Math.floor(Math.max(now, ...times) / length)
  const count = Math.min(maxIntervals, Math.max(minIntervals, end - Math.floor(first / length) + 1))
  const intervals: Array<HealthInterval> = Array.from({ length: count }, (_, i) => ({
    at: new Date((end - count + 1 + i) * length).toISOString(),
    ...{ delivered: 0, pending: 0, retrying: 0, failed: 0, unsent: 0 },
  }))
  for (const [i, delivery] of deliveries.entries()) {
    const interval = intervals[count - 1 - (end - Math.floor(times[i]! / length))]
    if (interval !== undefined) interval[nameOf(delivery)]++
  }
  return { every, intervals }
}
