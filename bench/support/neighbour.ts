import { setTimeout as sleep } from "node:timers/promises"
import { startArrivals } from "./arrivals.ts"
import type { Scope } from "./scope.ts"
import { makeTenant, type Service } from "./service.ts"
import { percentile } from "./stats.ts"

/** Milliseconds from the requests that finish jobs to the arrivals of their events. */
export interface Times {
  readonly count: number
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** An org that finishes a job every 50 ms, with a receiver that works. */
export const startNeighbour = async (scope: Scope, service: Service) => {
  const { arrivals, url } = await startArrivals(scope)
  const { key } = await makeTenant(service)
  await service.call(key, "/v1/webhooks/create", { url, signing_secret: "s" })

  /** Finishes jobs while `work` runs; fails when an event has not arrived 30 seconds later. */
  const beside = async <A>(work: () => Promise<A>): Promise<{ readonly found: A; readonly times: Times }> => {
    const begun = new Map<string, number>()
    const finish = async () => {
      const { job_id } = await service.call(key, "/v1/jobs/create", { workflow: "bench" })
      begun.set(job_id as string, performance.now())
      await service.call(key, "/v1/jobs/complete", { job_id })
    }
    const finishing: Array<Promise<void>> = []
    const state = { ended: false }
    const finishMany = async () => {
      while (!state.ended) {
        finishing.push(finish())
        await sleep(50)
      }
      await Promise.all(finishing)
    }
    const [found] = await Promise.all([work().finally(() => (state.ended = true)), finishMany()])
    const missing = () => [...begun.keys()].filter((id) => !arrivals.has(id)).length
    for (let n = 0; n < 600 && missing() > 0; n++) await sleep(50)
    if (missing() > 0) throw new Error(`${missing()} of ${begun.size} events of another org did not come`)
    const all = [...begun].map(([id, at]) => arrivals.get(id)! - at)
    return {
      found,
      times: { count: all.length, p50: percentile(all, 0.5), p99: percentile(all, 0.99), max: Math.max(...all) },
    }
  }
  return { beside }
}
