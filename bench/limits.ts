/* oxlint-disable no-console -- a program for the terminal */
import { Pool } from "undici"
import { cpuOf } from "./support/cpu.ts"
import { folder, startPostgres } from "./support/postgres.ts"
import { scoped } from "./support/scope.ts"
import { startService } from "./support/service.ts"

/**
 * Compares claims of a workflow with limits and 10,000 keys, of one without, and of one of another commit, in turns:
 * `BEFORE=folder node bench/limits.ts`. The figures are in docs/performance.md.
 */
const rounds = Number(process.env.ROUNDS ?? 7)
const jobs = Number(process.env.JOBS ?? 6_000)
const keys = 10_000
const clients = 8
const sizes = [1, 10, 100]

interface Subject {
  readonly name: string
  readonly workflow: string
  readonly hasKeys: boolean
  readonly key: string
  readonly pool: Pool
}

const medianOf = (all: ReadonlyArray<number>) => all.toSorted((a, b) => a - b)[all.length >> 1]!

await scoped(async (scope) => {
  const postgres = await startPostgres(scope)
  const logs = folder(scope)
  const ask = async ({ key, pool }: Subject, path: string, json: object) => {
    const response = await pool.request({
      method: "POST",
      path: `/v1/${path}`,
      headers: { "content-type": "application/json", "x-api-key": key },
      body: JSON.stringify(json),
    })
    const body = await response.body.text()
    if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}: ${body}`)
    return JSON.parse(body) as { readonly jobs: ReadonlyArray<{ readonly job_id: string; readonly attempt: number }> }
  }
  const services: Array<number> = []
  const start = async (name: string, checkout?: string) => {
    const DATABASE_URL = await postgres.database(name)
    const service = await startService(scope, logs, { DATABASE_URL, ADMIN_TOKEN: "" }, checkout)
    services.push(service.pid)
    const { orgId } = await service.manage("/api/v0/orgs", { name: "bench" })
    const { key } = await service.manage(`/api/v0/orgs/${orgId as string}/keys`, { name: "bench" })
    return { key: key as string, pool: new Pool(service.url, { connections: clients, pipelining: 1 }) }
  }
  const here = await start("here")
  const other = process.env.BEFORE === undefined ? [] : [await start("before", process.env.BEFORE)]
  const subjects: ReadonlyArray<Subject> = [
    ...other.map((one) => ({ ...one, name: "another commit", workflow: "free", hasKeys: false })),
    { ...here, name: "without limits", workflow: "free", hasKeys: false },
    { ...here, name: "limits and 10,000 keys", workflow: "limited", hasKeys: true },
  ]
  const rate = { limit: 1_000_000, window_seconds: 60 }
  const limits = { workflow: "limited", concurrency: 1_000, concurrency_per_key: 1, rate }
  await ask(subjects.at(-1)!, "workflows/set", limits)

  /** Claims all jobs, and completes them; returns jobs a second of claims, and the CPU of a job in µs. */
  const measure = async (subject: Subject, limit: number, round: number) => {
    const { hasKeys, workflow } = subject
    const count = limit === 1 ? jobs / 4 : jobs
    for (let n = 0; n < count; n += 1_000) {
      const some = Array.from({ length: Math.min(1_000, count - n) }, (_, m) => ({
        workflow,
        skip_callbacks: true,
        ...(hasKeys ? { concurrency_key: `customer ${(round * jobs + n + m) % keys}` } : {}),
      }))
      await ask(subject, "jobs/create-batch", { jobs: some })
    }
    let [claimed, millis] = [0, 0]
    const used = () => services.reduce((sum, pid) => sum + cpuOf(pid), postgres.cpu())
    const before = used()
    await Promise.all(
      Array.from({ length: clients }, async () => {
        while (claimed < count) {
          const begun = performance.now()
          const found = await ask(subject, "jobs/claim", { workflow, limit })
          millis += performance.now() - begun
          claimed += found.jobs.length
          if (found.jobs.length === 0) continue
          await ask(subject, "jobs/complete-batch", {
            jobs: found.jobs.map(({ attempt, job_id }) => ({ attempt, job_id })),
          })
        }
      }),
    )
    return { claims: (1000 * clients * count) / millis, cpu: (1e6 * (used() - before)) / count }
  }

  for (const limit of sizes) {
    const results = new Map<string, Array<{ readonly claims: number; readonly cpu: number }>>()
    for (let round = 0; round <= rounds; round++) {
      for (const subject of round % 2 === 0 ? subjects : subjects.toReversed()) {
        const result = await measure(subject, limit, round)
        // The first round warms up.
        if (round > 0) results.set(subject.name, [...(results.get(subject.name) ?? []), result])
      }
    }
    const plain = results.get("without limits")!
    for (const [name, all] of results) {
      const ratios = all.map(({ claims }, n) => claims / plain[n]!.claims)
      const cpu = all.map((one, n) => one.cpu / plain[n]!.cpu)
      console.log(
        `${limit} a claim, ${name}: ${medianOf(all.map(({ claims }) => claims)).toFixed(0)} jobs a second of claims, ` +
          `× ${medianOf(ratios).toFixed(2)} (CPU × ${medianOf(cpu).toFixed(2)})`,
      )
    }
  }
})
