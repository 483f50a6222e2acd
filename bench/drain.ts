/* oxlint-disable no-console -- a program for the terminal */
import { NodeRuntime } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { fork, spawnSync } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { restartablePostgres } from "../test/faults/postgres.ts"
import { startService } from "../test/support/process.ts"

/**
 * How fast deliveries that are due are made and recorded by the service as it is run: `node bench/drain.ts <what> [count]`.
 * - `one`: to one endpoint, whose cap on attempts in flight is lifted to 128
 * - `hundred`: to 100 endpoints with the normal cap of 10
 *
 * PostgreSQL has its default settings; where there are two cores the service has one, and PostgreSQL and the receiver the
 * other. CPU is per delivery. `NODE_OPTIONS_SERVICE` goes to the service's Node, for a profile.
 */
const [what = "one", amount = "40000", rounds = "3"] = process.argv.slice(2)
const endpoints = what === "one" ? 1 : 100
const total = Number(amount)

const pin = (pid: number, core: number) => spawnSync("taskset", ["-a", "-c", "-p", String(core), String(pid)])

/** CPU seconds of a process so far, and its memory in MiB. */
const usage = (pid: number) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ")
  const rss = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0
  const [parent, ...ticks] = [fields[1], fields[11], fields[12], fields[13], fields[14]].map(Number)
  return { parent, own: (ticks[0]! + ticks[1]!) / 100, ended: (ticks[2]! + ticks[3]!) / 100, rss: Number(rss) / 1024 }
}

/** CPU seconds of a PostgreSQL server: its processes, and those that have ended. */
const serverCpu = (postmaster: number) => {
  const { own, ended } = usage(postmaster)
  let sum = own + ended
  for (const name of readdirSync("/proc")) {
    try {
      const one = /^\d+$/.test(name) ? usage(Number(name)) : undefined
      if (one?.parent === postmaster) sum += one.own
    } catch {
      // Ended since.
    }
  }
  return sum
}

const receiver = Effect.acquireRelease(
  Effect.promise(async () => {
    const child = fork(new URL("receiver.ts", import.meta.url))
    const [{ port }] = (await once(child, "message")) as [{ port: number }]
    const ask = (what: "count" | "forget") =>
      Effect.promise(async () => {
        child.send(what)
        const [answer] = (await once(child, "message")) as [{ count: number; first: number }]
        return answer
      })
    return { child, ask, url: `http://127.0.0.1:${port}` }
  }),
  ({ child }) => Effect.sync(() => child.kill()),
)

const run = Effect.gen(function* () {
  const { url } = yield* restartablePostgres
  const sql = yield* PgClient.make({ url: Redacted.make(url), maxConnections: 1 }).pipe(
    Effect.provide(Reactivity.layer),
  )
  const [{ data_directory }] = (yield* sql`SHOW data_directory`) as unknown as [{ data_directory: string }]
  const postmaster = Number(readFileSync(join(data_directory, "postmaster.pid"), "utf8").split("\n")[0])
  pin(postmaster, 1)
  const to = yield* receiver
  pin(to.child.pid!, 1)
  const service = yield* startService({
    DATABASE_URL: url,
    ENCRYPTION_KEY: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ...(what === "one" ? { WEBHOOK_ENDPOINT_CONCURRENCY: "128" } : {}),
    NODE_OPTIONS: process.env["NODE_OPTIONS_SERVICE"] ?? "",
  })
  pin(service.pid, 0)

  const post = (path: string, json: object, key?: string) =>
    Effect.map(
      service.send("POST", path, { json, ...(key === undefined ? {} : { headers: { "x-api-key": key } }) }),
      (answer) => answer.json as Record<string, string>,
    )
  const { orgId } = yield* post("/api/v0/orgs", { name: "bench" })
  const { projectId } = yield* post("/api/v0/projects", { name: "bench", orgId })
  const { key } = yield* post("/api/v0/keys", { name: "bench", projectId })
  for (let n = 0; n < endpoints; n++) {
    const endpoint = { url: `${to.url}/${n}`, signing_secret: "whsec_Z2F0ZWhvdXNl", description: "", active: true }
    yield* post("/v1/webhooks/create", endpoint, key)
  }

  /** Deliveries that are due, of as many events as it takes. */
  const fill = Effect.fnUntraced(function* (deliveries: number) {
    const events = deliveries / endpoints
    const body = JSON.stringify({ event: "job.completed", job_id: "j", result: "x".repeat(500) })
    const prefix = String(Date.now())
    yield* sql`INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
      SELECT ${prefix} || n, ${orgId}, 'w', false, 'completed', now(), now() FROM generate_series(1, ${events}::int) n`
    yield* sql`INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT ${prefix} || n, ${orgId}, ${prefix} || n, 'job.completed', ${body}, now() FROM generate_series(1, ${events}::int) n`
    yield* sql`INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
      SELECT ${prefix} || n || w.id, ${orgId}, ${prefix} || n, ${prefix} || n, w.id, w.id, 'pending', now(), now()
      FROM generate_series(1, ${events}::int) n, webhook_endpoints w ORDER BY n, w.id`
    yield* sql`INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked)
      SELECT lane, id, event_id, 0, 0, created_at, true FROM deliveries WHERE id LIKE ${prefix + "%"} ORDER BY id`
  })
  const pending = sql`SELECT lane FROM pending_deliveries LIMIT 1`
  const round = Effect.fnUntraced(function* (deliveries: number) {
    yield* to.ask("forget")
    yield* sql`VACUUM (ANALYZE)`
    yield* sql`CHECKPOINT`
    yield* fill(deliveries)
    const cpu = () => [usage(service.pid).own, serverCpu(postmaster), usage(to.child.pid!).own] as const
    const before = cpu()
    let memory = 0
    let state = yield* to.ask("count")
    while (state.count < deliveries) {
      yield* Effect.sleep("20 millis")
      memory = Math.max(memory, usage(service.pid).rss)
      state = yield* to.ask("count")
    }
    while ((yield* pending).length > 0) yield* Effect.sleep("5 millis")
    const seconds = (Date.now() - state.first) / 1000
    const spent = cpu().map((at, n) => (((at - before[n]!) / deliveries) * 1e6).toFixed(1))
    return `${(deliveries / seconds).toFixed(0)}/s, CPU µs: service ${spent[0]}, PostgreSQL ${spent[1]}, receiver ${spent[2]}; ${memory.toFixed(0)} MiB`
  })
  yield* round(Math.min(total, 10_000))
  for (let n = 0; n < Number(rounds); n++) console.log(what, yield* round(total))
  yield* service.end("SIGTERM")
})

NodeRuntime.runMain(Effect.scoped(run))
