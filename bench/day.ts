/* oxlint-disable no-console -- a program for the terminal */
import { execFileSync } from "node:child_process"
import { setTimeout as sleep } from "node:timers/promises"
import { DateTime, Duration, Effect, Layer, ManagedRuntime, Redacted } from "effect"
import { RetentionRepository } from "../src/domain/Retention.ts"
import { Database } from "../src/infrastructure/database/Database.ts"
import { idAt } from "../src/infrastructure/database/fragments.ts"
import * as RetentionSql from "../src/infrastructure/retention/retentionSql.ts"
import { startArrivals } from "./support/arrivals.ts"
import { busyness, commit } from "./support/machine.ts"
import { folder, startPostgres } from "./support/postgres.ts"
import { scoped } from "./support/scope.ts"
import { startService } from "./support/service.ts"
import { percentile } from "./support/stats.ts"

/**
 * Removes a day of 8.64 million events, each with a delivery, a tenth of them of a finished job, while 100 jobs a
 * second are created and completed and their events arrive: `node bench/day.ts`, with WARM=1 without emptying the cache
 * of files before. It needs 15 GB of disk. The figures are in docs/performance.md.
 */
const count = Number(process.env["EVENTS"] ?? 8_640_000)
const isWarm = process.env["WARM"] === "1"
const cyclesPerSecond = 100
const [secondsBefore, secondsAfter] = [10, 6]

await scoped(async (scope) => {
  console.log(`Gatehouse ${commit()}. ${busyness()}`)
  const postgres = await startPostgres(scope)
  const url = await postgres.database("day")
  const query = await postgres.connect(url)
  const set = async (settings: ReadonlyArray<string>) => {
    for (const setting of settings) await query(`ALTER SYSTEM ${setting}`)
    await query("SELECT pg_reload_conf()")
  }
  const filling = ["fsync = off", "full_page_writes = off", "autovacuum = off", "max_wal_size = '4GB'"]
  await set(filling.map((one) => `SET ${one}`))
  const service = await startService(scope, folder(scope), {
    DATABASE_URL: url,
    ADMIN_TOKEN: "",
    RETENTION_DAYS: "off",
  })
  const retention = ManagedRuntime.make(
    RetentionSql.layer.pipe(Layer.provide(Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }))),
  )
  scope.defer(() => retention.dispose())
  const day = Duration.days(1)
  const start = DateTime.startOf(DateTime.subtract(DateTime.nowUnsafe(), { days: 60 }), "day")
  const end = DateTime.addDuration(start, day)
  await retention.runPromise(
    Effect.flatMap(RetentionRepository, ({ prepare }) =>
      Effect.forEach([start, end], (at) => prepare("webhooks", at, day)),
    ),
  )

  const hours = Array.from({ length: 24 }, (_, hours) => {
    const at = DateTime.toEpochMillis(DateTime.add(start, { hours }))
    return { prefix: idAt(at), at: `'${new Date(at).toISOString()}'::timestamptz` }
  })
  const rows = `generate_series(1, ${Math.ceil(count / 24)}) AS n, lpad(n::text, 13, '0') AS id`
  const events = async () => {
    const sql = await postgres.connect(url)
    for (const { at, prefix } of hours) {
      await sql(`
        INSERT INTO events (id, org_id, job_id, type, body, created_at)
        SELECT '${prefix}000' || id, 'org' || n % 50, CASE WHEN n % 10 = 0 THEN '${prefix}000' || id END,
          'invoice.paid', repeat(md5(id), 10), ${at} FROM ${rows}`)
      await sql(`
        INSERT INTO finished_jobs (id, end_id, org_id, workflow, skip_callbacks, idempotency_key, priority,
          max_attempts, retry_delay_seconds, status, attempt, retried_attempts, result, created_at, finished_at)
        SELECT '${prefix}000' || id, '${prefix}000' || id, 'org' || n % 50, 'old', false, '${prefix}000' || id, 0,
          1, 0, 'completed', 1, '{}', repeat(md5(id), 10), ${at}, ${at} FROM ${rows} WHERE n % 10 = 0`)
      await sql(`
        INSERT INTO job_keys (org_id, key, job_id)
        SELECT 'org' || n % 50, '${prefix}000' || id, '${prefix}000' || id FROM ${rows} WHERE n % 10 = 0`)
    }
  }
  const deliveries = async () => {
    const sql = await postgres.connect(url)
    for (const { at, prefix } of hours) {
      await sql(`
        INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, attempt_started_at,
          attempt_duration_ms, attempt_status, attempt_body, created_at, updated_at)
        SELECT '${prefix}' || id || '000', 'org' || n % 50, '${prefix}000' || id, 'endpoint' || n % 50,
          'delivered', 1, ${at}, 10, 200, 'ok', ${at}, ${at} FROM ${rows}`)
      await sql(`
        INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status)
        SELECT '${prefix}' || id || '000', 'org' || n % 50, 1, ${at}, 10, 500 FROM ${rows} WHERE n % 20 = 0`)
    }
  }
  await Promise.all([events(), deliveries()])
  for (const table of ["events", "deliveries", "finished_jobs", "job_keys"]) await query(`VACUUM (ANALYZE) ${table}`)
  await set(filling.map((one) => `RESET ${one.split(" ")[0]}`))
  await query("CHECKPOINT")
  execFileSync("sync")
  const [place] = await query("SHOW data_directory")
  const files = ["-type", "f", "-exec", "dd", "if={}", "iflag=nocache", "count=0", "status=none", ";"]
  if (!isWarm) execFileSync("find", [String(place!["data_directory"]), ...files])
  const megabytes = async () =>
    Number((await query("SELECT pg_database_size(current_database()) / 1e6 AS size"))[0]!["size"])
  console.log(`Filled: ${(await megabytes()).toFixed(0)} MB`)

  const { orgId } = await service.manage("/api/v0/orgs", { name: "bench" })
  const key = (await service.manage(`/api/v0/orgs/${orgId as string}/keys`, { name: "bench" }))["key"] as string
  const { arrivals, url: receiver } = await startArrivals(scope)
  await service.call(key, "/v1/webhooks/create", { url: receiver, signing_secret: "s" })
  let [phase, since] = ["warm-up", performance.now()]
  const begin = (name: string) => ([phase, since] = [name, performance.now()])
  const times = new Map<string, Array<number>>()
  const timed = async (name: string, path: string, json: Record<string, unknown>) => {
    const [begun, of] = [performance.now(), `${phase}, ${name}`]
    const answer = await service.call(key, path, json)
    const took = performance.now() - begun
    times.set(of, [...(times.get(of) ?? []), took])
    if (took > 150)
      console.log(`${of} took ${took.toFixed(0)} ms, ${((begun - since) / 1000).toFixed(1)} s into its phase`)
    return answer
  }
  const cycle = async () => {
    const { job_id } = await timed("create", "/v1/jobs/create", { workflow: "bench" })
    const [begun, of] = [performance.now(), `${phase}, finish to receiver`]
    await timed("complete", "/v1/jobs/complete", { job_id, result: "x".repeat(400) })
    await timed("list", "/v1/jobs/list", { limit: 10 })
    while (!arrivals.has(job_id as string)) await sleep(5)
    times.set(of, [...(times.get(of) ?? []), arrivals.get(job_id as string)! - begun])
  }
  const load = (async () => {
    const cycles: Array<Promise<void>> = []
    const since = performance.now()
    for (let n = 0; ; n++) {
      if (phase === "over") break
      cycles.push(cycle())
      await sleep(Math.max(0, since + (n * 1000) / cyclesPerSecond - performance.now()))
    }
    await Promise.all(cycles)
  })()
  await sleep(8_000)
  begin("before")
  await sleep(secondsBefore * 1000)
  begin("beside the removal")
  const removed = await retention.runPromise(
    Effect.flatMap(RetentionRepository, ({ removeOldest }) => removeOldest("webhooks", end, Duration.zero)),
  )
  const seconds = (performance.now() - since) / 1000
  begin("after")
  console.log(`Removed ${removed} events in ${seconds.toFixed(1)} s; ${(await megabytes()).toFixed(0)} MB are left`)
  await sleep(secondsAfter * 1000)
  begin("over")
  await load
  for (const [name, all] of times) {
    const of = (p: number) => percentile(all, p).toFixed(1)
    console.log(`${name}: ${all.length}, p50 ${of(0.5)} ms, p99 ${of(0.99)} ms, at most ${of(1)} ms`)
  }
})
