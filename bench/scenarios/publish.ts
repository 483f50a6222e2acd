import { join } from "node:path"
import { latencies, publishEvents, startArrivals } from "../support/arrivals.ts"
import { has } from "../support/load.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import * as Publishers from "../support/publishers.ts"
import { atLeast, atMost, figure, type RunOptions, type Scenario } from "../support/result.ts"
import type { Scope } from "../support/scope.ts"
import { makeTenant, startService } from "../support/service.ts"
import { median, percentile } from "../support/stats.ts"

/** The time from publish to receiver while nothing else is going on. */
const measureLatency = async (scope: Scope, { quick, rounds, say }: RunOptions) => {
  const home = folder(scope)
  const to = await startArrivals(scope)
  const databaseUrl = await (await startPostgres(scope)).database("idle")
  const places = {
    PostgreSQL: { DATABASE_URL: databaseUrl },
    "the embedded database": { DATA_DIR: join(home, "data") },
  }
  const found: Array<{ readonly name: string; readonly p50: number; readonly p99: number }> = []
  for (const [name, place] of Object.entries(places)) {
    const service = await startService(scope, home, { ...place, ADMIN_TOKEN: "" })
    const { key } = await makeTenant(service)
    await service.call(key, "/v1/webhooks/create", { url: to.url, signing_secret: "s" })
    const publish = publishEvents(service, key)
    await latencies(to.arrivals, 100, publish)
    const made: Array<ReadonlyArray<number>> = []
    for (let round = 1; round <= rounds; round++) made.push(await latencies(to.arrivals, quick ? 100 : 300, publish))
    const of = (p: number) => median(made.map((times) => percentile(times, p)))
    found.push({ name, p50: of(0.5), p99: of(0.99) })
    say(`${name}, idle: p50 ${of(0.5).toFixed(1)} ms, p99 ${of(0.99).toFixed(1)} ms`)
    await service.stop()
  }
  return found
}

/** Events published and delivered, beside queues behind a route of one's own. */
export const publish: Scenario = {
  name: "publish",
  title: "Publish events",
  about:
    `Events of about 570 bytes, published over ${Publishers.connections} connections by a loader of its own, and delivered to one endpoint that verifies the signature. ` +
    "The queues have a Fastify route that checks a key and inserts, and send from the same process, as the service does.",
  quick: { rounds: 2, seconds: 3 },
  run: async (scope, options) => {
    const { other, rounds, say, seconds, warmUp } = options
    const hasRedis = has("redis-server")
    const idle = await measureLatency(scope, options)
    const home = folder(scope)
    const subjects = await Publishers.startSubjects(scope, { hasRedis, other })
    const all = Object.entries(subjects)
    const found = new Map(all.map(([name]) => [name, [] as Array<Publishers.Published>]))
    for (const [, { publisher, steps }] of all) await Publishers.measure(home, publisher, steps, warmUp)
    for (let round = 1; round <= rounds; round++) {
      for (const [name, { publisher, steps }] of all) {
        const made = await Publishers.measure(home, publisher, steps, seconds)
        found.get(name)!.push(made)
        say(`round ${round}: ${name}: ${figure(made.delivered)} delivered a second`)
      }
    }
    const { batch, pair, single } = Publishers.ours
    const medians = new Map([...found].map(([name, made]) => [name, Publishers.summary(made)]))
    const of = (name: string) => medians.get(name)!
    const rate = (name: string) => of(name).delivered
    const cpu = (name: string) => of(name).cpu + of(name).databaseCpu
    const { before, pgBoss } = Publishers
    const [postgres] = idle
    return {
      tables: [
        {
          title: "Publish and deliver",
          columns: ["", "accepted a second", "delivered a second", `× ${single}`, "CPU ms", "database CPU ms"],
          rows: [...medians].map(([name, made]) => [
            name,
            figure(made.accepted),
            figure(made.delivered),
            figure(made.delivered / rate(single)),
            figure(made.cpu),
            figure(made.databaseCpu),
          ]),
        },
        {
          title: "From publish to the receiver, idle",
          columns: ["", "p50 ms", "p99 ms"],
          rows: idle.map(({ name, p50, p99 }) => [name, figure(p50), figure(p99)]),
        },
      ],
      bars: [
        ...(other === undefined
          ? []
          : [
              atLeast(`${single} ÷ ${before}`, 2, rate(single) / rate(before)),
              atLeast(`${pair} ÷ ${before}`, 1.5, rate(pair) / rate(before)),
              atMost(`CPU of ${single} ÷ of ${before}`, 0.5, cpu(single) / cpu(before)),
            ]),
        atLeast(`${single} ÷ ${pgBoss}`, 1.2, rate(single) / rate(pgBoss)),
        atLeast(`${batch} ÷ ${single}, accepted`, 5, of(batch).accepted / of(single).accepted),
        atMost("CPU of an event published and delivered, service and database", 2, cpu(single), " ms"),
        atMost("Publish to receiver on PostgreSQL, p50", 10, postgres!.p50, " ms"),
        atMost("Publish to receiver on PostgreSQL, p99", 40, postgres!.p99, " ms"),
      ],
      notes: [
        ...(other === undefined ? ["No other checkout was measured: --beside=<folder> names one."] : []),
        ...(hasRedis ? [] : ["BullMQ was skipped: redis-server is not installed."]),
      ],
    }
  },
}
