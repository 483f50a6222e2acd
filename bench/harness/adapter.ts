/* oxlint-disable no-console -- stderr is the log of an adapter */
import { spawn } from "node:child_process"
import { createServer } from "node:net"
import { createInterface } from "node:readline"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { Pool } from "undici"

/**
 * Gatehouse in the public harness for job queues on PostgreSQL: one replica of the service in a process of its own, and
 * here a producer and workers that use its HTTP interface as any program would. README.md says how it is run.
 *
 * The harness sets the environment, sends `ENQUEUE <n>` on standard input, and reads JSON lines from standard output.
 */
const { env } = process
const number = (name: string, otherwise: number) => Number(env[name] ?? otherwise)
const sampleMillis = number("SAMPLE_EVERY_S", 5) * 1000
const rate = number("PRODUCER_RATE", 800)
const batchSize = number("PRODUCER_BATCH_MAX", 128)
const workers = number("WORKER_COUNT", 32)
/** Jobs that are claimed and not yet completed. pg-boss has up to 16 for each worker here. */
const prefetch = 8 * workers
const workMillis = number("JOB_WORK_MS", 1)
const instance = number("BENCH_INSTANCE_ID", 0)
const padding = "x".repeat(Math.max(0, number("JOB_PAYLOAD_BYTES", 256) - 64))
const windowMillis = 30_000
const workflow = "long_horizon_bench"
const token = "bench-administrator-token"

const freePort = async () => {
  const server = createServer().listen(0, "127.0.0.1")
  await once(server, "listening")
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, "close")
  return port
}

const port = await freePort()
/** Ends with this process, also when the harness kills that. */
const service = spawn(
  "setpriv",
  ["--pdeathsig", "KILL", process.execPath, fileURLToPath(new URL("../../src/main.ts", import.meta.url))],
  {
    stdio: ["ignore", 2, 2],
    env: {
      ...env,
      PORT: `${port}`,
      ADMIN_TOKEN: token,
      ENCRYPTION_KEY: Buffer.alloc(32).toString("base64"),
      LOG_FORMAT: "json",
      LIMIT_UNFINISHED_JOBS: "999999999",
      LIMIT_STORED_BYTES: "1000TiB",
      // A depth-target run starts with more than one claim at a time.
      LIMIT_WAITING_CLAIMS: "1000",
    },
  },
)
const stopped = new AbortController()
const { signal } = stopped
service.once("exit", (code) => {
  if (signal.aborted) return
  console.error(`The service ended with ${code}`)
  process.exit(1)
})

const pool = new Pool(`http://127.0.0.1:${port}`, { connections: 64, headersTimeout: 60_000, bodyTimeout: 60_000 })
const sleep = (millis: number) => new Promise((resolve) => setTimeout(resolve, millis))

interface Answer {
  readonly status: number
  readonly json: Record<string, unknown>
}
const send = async (method: "GET" | "POST", path: string, headers: Record<string, string>, json?: object) => {
  const body = json === undefined ? null : JSON.stringify(json)
  const response = await pool.request({
    method,
    path,
    body,
    headers: { "content-type": "application/json", ...headers },
  })
  const text = await response.body.text()
  return { status: response.statusCode, json: text === "" ? {} : JSON.parse(text) } as Answer
}
/** Sends a request until it gets a 2xx: what is 5xx or unanswered is repeated, as the documentation says. */
const must = async (...request: Parameters<typeof send>): Promise<Record<string, unknown>> => {
  for (;;) {
    const answer = await send(...request).catch((error: Error) => ({ status: 0, json: { message: error.message } }))
    if (answer.status >= 200 && answer.status < 300) return answer.json
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) {
      throw new Error(`${request[1]}: ${answer.status} ${JSON.stringify(answer.json)}`)
    }
    await sleep(200)
  }
}

const administrator = { authorization: `Bearer ${token}` }
while (
  !(await send("GET", "/readyz", {}).then(
    ({ status }) => status === 200,
    () => false,
  ))
)
  await sleep(100)
// The same key at each replica: all of them get the same org.
const org = await must("POST", "/api/v0/orgs", { ...administrator, "idempotency-key": "bench" }, { name: "bench" })
const orgPath = `/api/v0/orgs/${String(org["orgId"])}`
const made = await must("POST", `${orgPath}/keys`, administrator, { name: `replica ${instance}` })
const key = { "x-api-key": String(made["key"]) }

const emit = (record: object) => process.stdout.write(`${JSON.stringify({ ...record, instance_id: instance })}\n`)
const system = "gatehouse"
emit({
  kind: "descriptor",
  system,
  event_tables: ["public.jobs", "public.events"],
  extensions: [],
  version: env["GATEHOUSE_COMMIT"] ?? "unknown",
  schema_version: "1",
  db_name: new URL(env["DATABASE_URL"]!).pathname.slice(1),
  started_at: new Date().toISOString(),
})

/** Latencies of the last half minute, at most 32,768 of them. */
const makeWindow = () => {
  let items: Array<readonly [at: number, millis: number]> = []
  return {
    add: (millis: number) => {
      items.push([performance.now(), millis])
      if (items.length > 65_536) items = items.slice(-32_768)
    },
    percentiles: () => {
      items = items.filter(([at]) => at > performance.now() - windowMillis)
      const sorted = items.map(([, millis]) => millis).toSorted((a, b) => a - b)
      const at = (part: number) => sorted[Math.round(part * (sorted.length - 1))] ?? 0
      return { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    },
  }
}
const latencies = { producer: makeWindow(), claim: makeWindow(), end_to_end: makeWindow() }
let enqueued = 0
let completed = 0
let running = 0

const create = async (jobs: number) => {
  const since = performance.now()
  const input = { enqueuedAt: Date.now(), padding }
  const batch = Array.from({ length: jobs }, () => ({ workflow, skip_callbacks: true, input }))
  await must("POST", "/v1/jobs/create-batch", key, { jobs: batch })
  enqueued += jobs
  latencies.producer.add((performance.now() - since) / jobs)
}
let creating = 0
/** Creates jobs in batches beside each other; what does not fit is still owed. */
let owed = 0
const proceed = () => {
  while (owed > 0 && creating < 4 * batchSize && !signal.aborted) {
    const jobs = Math.min(owed, batchSize)
    owed -= jobs
    creating += jobs
    void create(jobs).finally(() => {
      creating -= jobs
      proceed()
    })
  }
}
const owe = (jobs: number) => {
  owed += jobs
  proceed()
}

const depth = async () => {
  const { json } = await send("GET", orgPath, administrator)
  const { unfinishedJobs } = json["used"] as { unfinishedJobs: number }
  return Math.max(0, unfinishedJobs - running)
}
if (env["PRODUCER_MODE"] === "depth-target") {
  const target = number("TARGET_DEPTH", 1000)
  void (async () => {
    while (!signal.aborted) {
      const missing = target - (enqueued - completed - running) - owed - creating
      if (missing > 0) owe(Math.min(missing, batchSize))
      await sleep(number("PRODUCER_BATCH_MS", 10))
    }
  })()
} else if (env["PRODUCER_PACING"] === "harness") {
  createInterface(process.stdin).on("line", (line) => {
    const jobs = /^ENQUEUE (\d+)$/.exec(line)?.[1]
    if (jobs !== undefined) owe(Number(jobs))
  })
} else {
  void (async () => {
    let last = performance.now()
    let credit = 0
    while (!signal.aborted) {
      await sleep(number("PRODUCER_BATCH_MS", 10))
      const now = performance.now()
      credit += (rate * (now - last)) / 1000
      last = now
      owe(Math.floor(credit))
      credit -= Math.floor(credit)
    }
  })()
}

interface Claimed {
  readonly job_id: string
  readonly attempt: number
  readonly input: { readonly enqueuedAt: number }
}
/** Jobs that are done, and not yet completed: each request takes all of them along. */
let done: Array<Claimed> = []
let completing = 0
const complete = async () => {
  if (done.length === 0 || completing === 4) return
  completing++
  const batch = done
  done = []
  const results = batch.map(({ attempt, job_id }) => ({ job_id, attempt, result: null }))
  const { jobs } = (await must("POST", "/v1/jobs/complete-batch", key, { jobs: results })) as unknown as {
    readonly jobs: ReadonlyArray<{ readonly success: boolean; readonly message: string }>
  }
  for (const [n, { message, success }] of jobs.entries()) {
    running--
    // A job whose lease has ended belongs to another worker.
    if (!success) console.error(message)
    else {
      completed++
      latencies.end_to_end.add(Date.now() - batch[n]!.input.enqueuedAt)
    }
  }
  completing--
  void complete()
}
/** Claimed jobs that no worker has begun. */
const claimed: Array<Claimed> = []
let working = 0
/** Jobs that open claims ask for. */
let asked = 0
const work = () => {
  while (working < workers && claimed.length > 0) {
    const job = claimed.shift()!
    working++
    latencies.claim.add(Date.now() - job.input.enqueuedAt)
    void sleep(workMillis).then(() => {
      working--
      done.push(job)
      void complete()
      work()
    })
  }
}
/** Claims ahead of the workers: they have the next jobs while these are completed. */
const claimer = async () => {
  while (!signal.aborted) {
    const free = prefetch - running - asked
    if (free < prefetch / 4) {
      await sleep(1)
      continue
    }
    const limit = Math.min(100, free)
    asked += limit
    const request = { workflows: [workflow], limit, lease_seconds: 30, wait_seconds: 5 }
    const { jobs } = (await must("POST", "/v1/jobs/claim", key, request)) as unknown as { jobs: ReadonlyArray<Claimed> }
    asked -= limit
    running += jobs.length
    claimed.push(...jobs)
    work()
  }
}

const sampler = (async () => {
  await sleep(sampleMillis - (Date.now() % sampleMillis))
  let before = { enqueued, completed, at: performance.now() }
  while (!signal.aborted) {
    await sleep(sampleMillis - (Date.now() % sampleMillis))
    const seconds = (performance.now() - before.at) / 1000
    const t = new Date().toISOString()
    const metrics: Array<readonly [metric: string, value: number, window_s: number]> = [
      ["enqueue_rate", (enqueued - before.enqueued) / seconds, sampleMillis / 1000],
      ["completion_rate", (completed - before.completed) / seconds, sampleMillis / 1000],
    ]
    for (const [name, window] of Object.entries(latencies)) {
      for (const [part, value] of Object.entries(window.percentiles())) {
        metrics.push([`${name}_${part}_ms`, value, windowMillis / 1000])
        if (name === "claim") metrics.push([`subscriber_${part}_ms`, value, windowMillis / 1000])
      }
    }
    // What all replicas see, one of them tells.
    if (instance === 0) {
      const found = await depth().catch((error: Error) => console.error(error.message))
      if (found !== undefined) metrics.push(["queue_depth", found, 0])
      metrics.push(["producer_target_rate", rate, 0])
    }
    before = { enqueued, completed, at: performance.now() }
    for (const [metric, value, window_s] of metrics) {
      emit({ t, system, kind: "adapter", subject_kind: "adapter", subject: "", metric, value, window_s })
    }
  }
})()

const stop = () => {
  stopped.abort()
  service.kill("SIGTERM")
  setTimeout(() => process.exit(0), 4_000).unref()
  service.once("exit", () => process.exit(0))
}
process.on("SIGTERM", stop).on("SIGINT", stop)
await Promise.all([claimer(), claimer(), sampler])
