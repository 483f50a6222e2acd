import { setTimeout as sleep } from "node:timers/promises"
import { request } from "undici"
import { startArrivals } from "../../support/arrivals.ts"
import type { Scope } from "../../support/scope.ts"
import { makeTenant, type Service } from "../../support/service.ts"
import { percentile } from "../../support/stats.ts"
import { named, type Statuses } from "./client.ts"

/** The figures of another org: milliseconds at the 99th percentile, and statuses. */
export interface Noticed {
  readonly validate: number
  readonly create: number
  readonly event: number
  /** The longest time. */
  readonly health: number
  readonly statuses: Statuses
}

const interval = 50
/** An event that has not arrived by then counts as this late. */
const longestWait = 15_000

/** An org that validates a key and finishes a job every 50 ms, while somebody reads the health at the same interval. */
export const startOther = async (scope: Scope, service: Service) => {
  const { arrivals, url } = await startArrivals(scope)
  const { key } = await makeTenant(service)
  await service.call(key, "/v1/webhooks/create", { url, signing_secret: "s" })

  const watch = async (during: () => Promise<unknown>): Promise<Noticed> => {
    const statuses: Statuses = {}
    const took = { validate: [] as Array<number>, create: [] as Array<number>, health: [] as Array<number> }
    const completed = new Map<string, number>()
    const ask = async (path: string, json?: object) => {
      const response = await request(service.url + path, {
        method: json === undefined ? "GET" : "POST",
        headers: { "content-type": "application/json", "x-api-key": key },
        ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      }).catch(() => undefined)
      const status =
        response === undefined ? "connection ended" : named(response.statusCode, response.headers["retry-after"])
      statuses[status] = (statuses[status] ?? 0) + 1
      const text = await response?.body.text().catch(() => undefined)
      return status === "200" ? text : undefined
    }
    const timed = async (name: keyof typeof took, asking: () => Promise<string | undefined>) => {
      const since = performance.now()
      const text = await asking()
      took[name].push(performance.now() - since)
      return text
    }
    const job = async () => {
      const made = await timed("create", () => ask("/v1/jobs/create", { workflow: "bench" }))
      if (made === undefined) return
      const { job_id } = JSON.parse(made) as { job_id: string }
      const since = performance.now()
      if ((await ask("/v1/jobs/complete", { job_id })) !== undefined) completed.set(job_id, since)
    }
    const asking: Array<Promise<unknown>> = []
    const state = { ended: false }
    const repeat = async () => {
      for (let next = performance.now(); !state.ended; next += interval) {
        asking.push(
          timed("validate", () => ask("/api/v0/keys/validate", { key })),
          timed("health", () => ask("/healthz")),
          job(),
        )
        await sleep(Math.max(0, next + interval - performance.now()))
      }
      await Promise.all(asking)
    }
    await Promise.all([during().finally(() => (state.ended = true)), repeat()])
    const missing = () => [...completed.keys()].some((id) => !arrivals.has(id))
    for (let n = 0; n < longestWait / interval && missing(); n++) await sleep(interval)
    const events = [...completed].map(([id, since]) => (arrivals.get(id) ?? since + longestWait) - since)
    return {
      validate: percentile(took.validate, 0.99),
      create: percentile(took.create, 0.99),
      event: percentile(events, 0.99),
      health: Math.max(...took.health),
      statuses,
    }
  }
  return { watch }
}
