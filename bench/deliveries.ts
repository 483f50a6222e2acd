/* oxlint-disable no-console -- a program for the terminal */
import { NodeRuntime } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Effect, Fiber, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { restartablePostgres } from "../test/faults/postgres.ts"
import { startService } from "../test/support/process.ts"

/**
 * Measures the delivery worker of the service as it is run: `node bench/deliveries.ts <what> [embedded]`.
 * - `latency`: from the request that finishes a job to the receipt, on an idle system
 * - `hang`: the latency beside an endpoint that hangs, as 10,000 deliveries to it come due at once and from then on
 */
const [what = "latency", ...rest] = process.argv.slice(2)
const embedded = rest.includes("embedded")
const encryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

const sleep = (millis: number) => Effect.sleep(millis)
const percentile = (times: ReadonlyArray<number>, p: number) =>
  times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * p))]!
const summary = (times: ReadonlyArray<number>) =>
  `p50 ${percentile(times, 0.5).toFixed(1)} ms, p99 ${percentile(times, 0.99).toFixed(1)} ms (${times.length})`

/** Answers 200 at once, but never at /hang; tells when each job's event came at /well. */
const receiver = Effect.promise(async () => {
  const state = { count: 0, arrivals: new Map<string, number>(), hanging: 0 }
  const server = createServer((request, response) => {
    if (request.url === "/hang") {
      state.hanging++
      request.resume()
      return
    }
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      state.count++
      if (request.url === "/well") {
        const { job_id } = JSON.parse(Buffer.concat(chunks).toString()) as { job_id: string }
        state.arrivals.set(job_id, performance.now())
      }
      response.end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  return Object.assign(state, { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
})

const run = Effect.gen(function* () {
  const url = embedded ? undefined : (yield* restartablePostgres).url
  const dataDir = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "gatehouse-bench-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true })),
  )
  const service = yield* startService({
    ...(url === undefined ? { DATA_DIR: dataDir } : { DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }),
  })
  const to = yield* receiver
  yield* Effect.addFinalizer(() => Effect.sync(() => to.server.close().closeAllConnections()))
  const post = (path: string, json: object, key?: string) =>
    Effect.map(
      service.send("POST", path, { json, ...(key === undefined ? {} : { headers: { "x-api-key": key } }) }),
      (answer) => answer.json as Record<string, string>,
    )
  const tenant = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
    const { orgId } = yield* post("/api/v0/orgs", { name: "bench" })
    const { projectId } = yield* post("/api/v0/projects", { name: "bench", orgId })
    const { key } = yield* post("/api/v0/keys", { name: "bench", projectId })
    for (const path of paths) {
      const endpoint = { url: to.url + path, signing_secret: "whsec_Z2F0ZWhvdXNl", description: "", active: true }
      yield* post("/v1/webhooks/create", endpoint, key!)
    }
    return { orgId: orgId!, key: key! }
  })
  /** Deliveries that are due, of so many events, to all endpoints of the tenant. */
  const fill = Effect.fnUntraced(function* (orgId: string, events: number) {
    if (url === undefined) throw new Error("Only on PostgreSQL")
    const sql = yield* PgClient.make({ url: Redacted.make(url), maxConnections: 1 }).pipe(
      Effect.provide(Reactivity.layer),
    )
    const body = JSON.stringify({ event: "job.completed", job_id: "j", result: "x".repeat(500) })
    const prefix = `${Date.now()}`
    yield* sql`INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
      SELECT ${prefix} || n, ${orgId}, 'w', false, 'completed', now(), now() FROM generate_series(1, ${events}::int) n`
    yield* sql`INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT ${prefix} || n, ${orgId}, ${prefix} || n, 'job.completed', ${body}, now() FROM generate_series(1, ${events}::int) n`
    yield* sql`INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
      SELECT ${prefix} || n || w.id, ${orgId}, ${prefix} || n, ${prefix} || n, w.id, w.id, 'pending', now(), now()
      FROM generate_series(1, ${events}::int) n, webhook_endpoints w WHERE w.org_id = ${orgId}`
    yield* sql`INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked)
      SELECT lane, id, event_id, 0, 0, created_at, false FROM deliveries
      WHERE org_id = ${orgId} AND event_id LIKE ${`${prefix}%`}`
    yield* sql`ANALYZE`
    return sql
  })
  /** One after the other, or at a steady rate: how long from the request that finishes a job to the receipt. */
  const latencies = Effect.fnUntraced(function* (key: string, count: number, everyMillis: number) {
    const begun = new Map<string, number>()
    const one = Effect.gen(function* () {
      const { job_id } = yield* post("/v1/jobs/create", { workflow: "w" }, key)
      begun.set(job_id!, performance.now())
      yield* post("/v1/jobs/complete", { job_id, result: "x".repeat(400) }, key)
    })
    const fibers: Array<Fiber.Fiber<void, unknown>> = []
    for (let n = 0; n < count; n++) {
      fibers.push(yield* Effect.forkChild(one))
      yield* sleep(everyMillis)
    }
    for (const fiber of fibers) yield* Fiber.join(fiber)
    for (let n = 0; n < 200 && [...begun.keys()].some((id) => !to.arrivals.has(id)); n++) yield* sleep(50)
    return [...begun].map(([id, at]) => (to.arrivals.get(id) ?? Number.NaN) - at)
  })

  if (what === "latency") {
    const { key } = yield* tenant(["/well"])
    yield* latencies(key, 100, 10)
    console.log(embedded ? "embedded" : "postgres", summary(yield* latencies(key, 300, 20)))
  }

  if (what === "hang") {
    const well = yield* tenant(["/well"])
    const bad = yield* tenant(["/hang"])
    yield* latencies(well.key, 200, 10)
    const without: Array<number> = []
    const onset: Array<number> = []
    const beside: Array<number> = []
    for (let round = 0; round < 4; round++) {
      without.push(...(yield* latencies(well.key, 500, 10)))
      const sql = yield* fill(bad.orgId, 10_000)
      onset.push(...(yield* latencies(well.key, 200, 10)))
      beside.push(...(yield* latencies(well.key, 500, 10)))
      const bad_ = sql`SELECT id FROM webhook_endpoints WHERE url LIKE '%/hang'`
      yield* sql`DELETE FROM pending_deliveries WHERE lane IN (${bad_})`
      yield* sql`UPDATE deliveries SET state = 'canceled' WHERE lane IN (${bad_})`
      yield* sql`UPDATE webhook_endpoints SET failing_since = NULL`
      yield* sql`VACUUM ANALYZE`
      yield* sleep(3_000)
    }
    console.log(`${to.hanging} attempts hung`)
    console.log("as it comes", summary(onset))
    console.log("without", summary(without))
    console.log("with it", summary(beside))
  }
  yield* service.end("SIGTERM")
})

NodeRuntime.runMain(Effect.scoped(run))
