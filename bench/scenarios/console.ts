import { get, type IncomingMessage } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { request } from "undici"
import { cpuOf, memoryOf } from "../support/cpu.ts"
import { addFailures, addFullBacklog } from "../support/fillConsole.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { amount, atMost, figure, type Scenario } from "../support/result.ts"
import { asAdministrator, makeTenant, post, type Service, startService } from "../support/service.ts"
import { median } from "../support/stats.ts"

const readers = 200
const orgs = 100

/** Milliseconds of the first request, and the median of the further ones. */
const timed = async (service: Service, path: string) => {
  const times: Array<number> = []
  for (let n = 0; n < 21; n++) {
    const since = performance.now()
    const { body, statusCode } = await request(service.url + path, { headers: asAdministrator })
    await body.text()
    if (statusCode !== 200) throw new Error(`${path} answered ${statusCode}`)
    times.push(performance.now() - since)
  }
  return { path, first: times[0]!, warm: median(times.slice(1)) }
}

/** Follows what changes, and counts the bytes. */
const openReader = (service: Service) =>
  new Promise<{ readonly response: IncomingMessage; readonly bytes: () => number }>((resolve, reject) => {
    get(`${service.url}/api/v0/live`, { headers: asAdministrator }, (response) => {
      let bytes = 0
      response.on("data", (piece: Buffer) => void (bytes += piece.length)).on("error", () => {})
      resolve({ response, bytes: () => bytes })
    }).on("error", reject)
  })

/** The part of a core that the service uses in so many seconds, while something happens beside it. */
const cpuShare = async (service: Service, seconds: number, beside: () => Promise<unknown>) => {
  const [before, since] = [cpuOf(service.pid), performance.now()]
  while (performance.now() - since < seconds * 1_000) await Promise.all([beside(), sleep(1_000)])
  return (cpuOf(service.pid) - before) / ((performance.now() - since) / 1_000)
}

/** What the console asks for, and what it costs to leave it open. */
export const console: Scenario = {
  name: "console",
  title: "The console",
  about:
    "Overview and failing endpoints over a million due deliveries to 10,000 endpoints of 100 orgs that have failed in each of " +
    "24 hours; then 200 readers of what changes, while a job is created and completed each second.",
  quick: { rounds: 1 },
  run: async (scope, { quick, say, seconds }) => {
    const [endpoints, deliveries] = quick ? [1_000, 100_000] : [10_000, 1_000_000]
    const postgres = await startPostgres(scope)
    const url = await postgres.database("gatehouse")
    const query = await postgres.connect(url)
    const idle = await startService(scope, folder(scope), { DATABASE_URL: url })
    await idle.stop()
    await addFullBacklog(query, { orgs, endpoints, deliveries })
    await addFailures(query, { orgs, endpoints })
    say(`${amount(deliveries)} deliveries to ${amount(endpoints)} endpoints are there`)
    await query("VACUUM ANALYZE")
    const service = await startService(scope, folder(scope), { DATABASE_URL: url, WEBHOOK_TIMEOUT: "1s" })
    const asked: Array<Awaited<ReturnType<typeof timed>>> = []
    for (const path of [
      "/api/v0/overview?every=minute",
      "/api/v0/overview?every=hour",
      `/api/v0/overview?every=hour&orgId=${"org".padEnd(25, "0")}1`,
      "/api/v0/endpoints/failing?limit=20",
    ]) {
      const one = await timed(service, path)
      say(`${path}: first ${figure(one.first, " ms")}, warm ${figure(one.warm, " ms")}`)
      asked.push(one)
    }
    await service.stop()
    await query("TRUNCATE pending_deliveries")

    const live = await startService(scope, folder(scope), { DATABASE_URL: url })
    const tenant = await makeTenant(live)
    const change = async () => {
      const job = await live.call(tenant.key, "/v1/jobs/create", { workflow: "bench" })
      await post(`${live.url}/v1/jobs/complete`, { "x-api-key": tenant.key }, { job_id: job["job_id"] })
    }
    const span = Math.max(10, seconds * 2)
    await cpuShare(live, quick ? 5 : 20, change)
    const alone = await cpuShare(live, span, change)
    const memoryAlone = memoryOf(live.pid).now
    const opened = await Promise.all(Array.from({ length: readers }, () => openReader(live)))
    await sleep(1_000)
    const open = await cpuShare(live, span, change)
    const memoryOpen = memoryOf(live.pid).now
    const bytes = opened.map((one) => one.bytes())
    if (Math.min(...bytes) < 1_000) throw new Error("A reader did not get what changes")
    for (const { response } of opened) response.destroy()
    // Other replicas believe for 30 seconds that somebody watches.
    await sleep(31_000)
    const closed = await cpuShare(live, span, change)
    const [more, rest] = [(open - alone) * 100, (closed - alone) * 100]
    say(`${readers} readers: ${figure(more, " %")} of a core, ${figure(memoryOpen - memoryAlone, " MiB")}`)
    return {
      tables: [
        {
          title: `Over ${amount(deliveries)} due deliveries and ${amount(endpoints)} endpoints`,
          columns: ["", "first ms", "median of 20 ms"],
          rows: asked.map(({ first, path, warm }) => [path, figure(first), figure(warm)]),
        },
        {
          title: `${readers} readers, one job a second`,
          columns: ["", "% of a core", "MiB"],
          rows: [
            ["nobody watches", figure(alone * 100), figure(memoryAlone)],
            ["with readers", figure(open * 100), figure(memoryOpen)],
            ["after they left", figure(closed * 100), figure(memoryOf(live.pid).now)],
          ],
        },
      ],
      bars: [
        ...asked.map(({ path, warm }) => atMost(path.replace(/\?.*orgId.*/, " of an org"), 300, warm, " ms")),
        atMost(`${readers} readers: of a core`, 5, more, " %"),
        atMost(`${readers} readers: memory`, 50, memoryOpen - memoryAlone, " MiB"),
        atMost("after they left: of a core", 1, rest, " %"),
      ],
      notes: ["The failures are vacuumed. The first request also opens connections and reads from the disk's cache."],
    }
  },
}
