import { join } from "node:path"
import { finishJobs, latencies, startArrivals } from "../support/arrivals.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { atMost, figure, type Scenario } from "../support/result.ts"
import { makeTenant, startService } from "../support/service.ts"
import { median, percentile } from "../support/stats.ts"

/** How soon an event reaches its receiver while the service is idle otherwise. */
export const latency: Scenario = {
  name: "latency",
  title: "From a finished job to its receiver",
  about:
    "From the request that finishes a job to the arrival of its event, one job every 20 ms, on an otherwise idle " +
    "service. In open mode, which takes the receiver's http url.",
  quick: { rounds: 2 },
  run: async (scope, { quick, rounds, say }) => {
    const count = quick ? 100 : 300
    const home = folder(scope)
    const to = await startArrivals(scope)
    const postgres = await startPostgres(scope)
    const places = {
      PostgreSQL: { DATABASE_URL: await postgres.database("gatehouse") },
      "the embedded database": { DATA_DIR: join(home, "data") },
    }
    const subjects = await Promise.all(
      Object.entries(places).map(async ([name, place]) => {
        const service = await startService(scope, home, { ...place, ADMIN_TOKEN: "" })
        const { key } = await makeTenant(service)
        await service.call(key, "/v1/webhooks/create", { url: to.url, signing_secret: "s" })
        await latencies(to.arrivals, 100, finishJobs(service, key))
        return { name, service, key, p50: [] as Array<number>, p99: [] as Array<number> }
      }),
    )
    for (let round = 1; round <= rounds; round++) {
      for (const { key, name, p50, p99, service } of subjects) {
        const times = await latencies(to.arrivals, count, finishJobs(service, key))
        p50.push(percentile(times, 0.5))
        p99.push(percentile(times, 0.99))
        say(`round ${round}: ${name}: p50 ${p50.at(-1)!.toFixed(1)} ms, p99 ${p99.at(-1)!.toFixed(1)} ms`)
      }
    }
    return {
      tables: [
        {
          title: `Latency, ${count} events a round`,
          columns: ["", "p50 ms", "p99 ms"],
          rows: subjects.map(({ name, p50, p99 }) => [name, figure(median(p50)), figure(median(p99))]),
        },
      ],
      bars: subjects.flatMap(({ name, p50, p99 }) => [
        atMost(`Event to receiver on ${name}, p50`, 10, median(p50), " ms"),
        atMost(`Event to receiver on ${name}, p99`, 50, median(p99), " ms"),
      ]),
      notes: [],
    }
  },
}
