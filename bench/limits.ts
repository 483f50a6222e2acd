/* oxlint-disable no-console -- a program for the terminal */
import { PgBoss } from "pg-boss"
import { Pool } from "undici"
import { cpuOf } from "./support/cpu.ts"
import { busyness, commit } from "./support/machine.ts"
import { folder, startPostgres } from "./support/postgres.ts"
import { scoped } from "./support/scope.ts"
import { startService } from "./support/service.ts"

/**
 * Compares claims with limits and 10,000 keys with claims without, in turns: those of a workflow here, those of pg-boss
 * in this process, with its `groupConcurrency`, and those without limits of another commit: `BEFORE=folder node
 * bench/limits.ts`. The figures are in docs/performance.md.
 */
const rounds = Number(process.env.ROUNDS ?? 7)
const jobs = Number(process.env.JOBS ?? 6_000)
const keys = 10_000
const clients = 8
const sizes = [1, 10, 100]

interface Subject {
  readonly name: string
  /** The subject whose figures are 1; itself, when it has no limits. */
  readonly base: string
  /** Creates so many jobs with these keys. */
  readonly create: (keys: ReadonlyArray<string>) => Promise<unknown>
  /** Claims up to a limit; returns what completes the jobs, and their number. */
  readonly claim: (limit: number) => Promise<readonly [count: number, complete: () => Promise<unknown>]>
}

const medianOf = (all: ReadonlyArray<number>) => all.toSorted((a, b) => a - b)[all.length >> 1]!

await scoped(async (scope) => {
  console.log(`Gatehouse ${commit()}. ${busyness()}`)
  const postgres = await startPostgres(scope)
  const logs = folder(scope)
  const services = [process.pid]
  const start = async (name: string, checkout?: string) => {
    const DATABASE_URL = await postgres.database(name)
    const service = await startService(scope, logs, { DATABASE_URL, ADMIN_TOKEN: "" }, checkout)
    services.push(service.pid)
    const { orgId } = await service.manage("/api/v0/orgs", { name: "bench" })
    const { key } = await service.manage(`/api/v0/orgs/${orgId as string}/keys`, { name: "bench" })
    const pool = new Pool(service.url, { connections: clients, pipelining: 1 })
    return async (path: string, json: object) => {
      const response = await pool.request({
        method: "POST",
        path: `/v1/${path}`,
        headers: { "content-type": "application/json", "x-api-key": key as string },
        body: JSON.stringify(json),
      })
      const body = await response.body.text()
      if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}: ${body}`)
      return JSON.parse(body) as { readonly jobs: ReadonlyArray<{ readonly job_id: string; readonly attempt: number }> }
    }
  }
  const ofWorkflow = (ask: Awaited<ReturnType<typeof start>>, workflow: string): Omit<Subject, "name" | "base"> => ({
    create: (keys) => {
      const isKeyed = workflow === "limited"
      const job = (key: string) => ({ workflow, skip_callbacks: true, ...(isKeyed ? { concurrency_key: key } : {}) })
      return ask("jobs/create-batch", { jobs: keys.map(job) })
    },
    claim: async (limit) => {
      const { jobs } = await ask("jobs/claim", { workflow, limit })
      const ended = jobs.map(({ attempt, job_id }) => ({ attempt, job_id }))
      return [jobs.length, () => ask("jobs/complete-batch", { jobs: ended })]
    },
  })
  const boss = new PgBoss({ connectionString: await postgres.database("boss"), max: clients, supervise: false })
  await boss.start()
  scope.defer(() => boss.stop({ graceful: false }))
  const ofBoss = async (queue: string): Promise<Omit<Subject, "name" | "base">> => {
    await boss.createQueue(queue)
    const limits = queue === "limited" ? { groupConcurrency: 1 } : {}
    return {
      create: (keys) =>
        boss.insert(
          queue,
          keys.map((id) => ({ ...(queue === "limited" ? { group: { id } } : {}) })),
        ),
      claim: async (batchSize) => {
        const found = await boss.fetch(queue, { batchSize, ...limits })
        return [
          found.length,
          () =>
            boss.complete(
              queue,
              found.map(({ id }) => id),
            ),
        ]
      },
    }
  }
  const here = await start("here")
  const before = process.env.BEFORE === undefined ? [] : [await start("before", process.env.BEFORE)]
  const rate = { limit: 1_000_000, window_seconds: 60 }
  await here("workflows/set", { workflow: "limited", concurrency: 1_000, concurrency_per_key: 1, rate })
  const [plain, plainBoss] = ["without limits", "pg-boss"]
  const subjects: ReadonlyArray<Subject> = [
    ...before.map((ask) => ({ name: "another commit", base: plain, ...ofWorkflow(ask, "free") })),
    { name: plain, base: plain, ...ofWorkflow(here, "free") },
    { name: "limits and 10,000 keys", base: plain, ...ofWorkflow(here, "limited") },
    { name: plainBoss, base: plainBoss, ...(await ofBoss("free")) },
    { name: "pg-boss, groupConcurrency and 10,000 groups", base: plainBoss, ...(await ofBoss("limited")) },
  ]

  /** Claims all jobs, and completes them; returns jobs a second, those of claims alone, and the CPU of a job in µs. */
  const measure = async ({ claim, create }: Subject, limit: number, round: number) => {
    const count = limit === 1 ? jobs / 4 : jobs
    for (let n = 0; n < count; n += 1_000) {
      const some = Array.from({ length: Math.min(1_000, count - n) }, (_, m) => `${(round * jobs + n + m) % keys}`)
      await create(some)
    }
    let [claimed, millis] = [0, 0]
    const used = () => services.reduce((sum, pid) => sum + cpuOf(pid), postgres.cpu())
    const [before, since] = [used(), performance.now()]
    await Promise.all(
      Array.from({ length: clients }, async () => {
        while (claimed < count) {
          const begun = performance.now()
          const [found, complete] = await claim(limit)
          millis += performance.now() - begun
          claimed += found
          if (found > 0) await complete()
        }
      }),
    )
    return {
      jobs: (1000 * count) / (performance.now() - since),
      claims: (1000 * clients * count) / millis,
      cpu: (1e6 * (used() - before)) / count,
    }
  }

  for (const limit of sizes) {
    const results = new Map<string, Array<Awaited<ReturnType<typeof measure>>>>()
    for (let round = 0; round <= rounds; round++) {
      for (const subject of round % 2 === 0 ? subjects : subjects.toReversed()) {
        const result = await measure(subject, limit, round)
        // The first round warms up.
        if (round > 0) results.set(subject.name, [...(results.get(subject.name) ?? []), result])
      }
    }
    for (const { base, name } of subjects) {
      const [all, plain] = [results.get(name)!, results.get(base)!]
      const ratio = (of: "jobs" | "claims" | "cpu") => medianOf(all.map((one, n) => one[of] / plain[n]![of])).toFixed(2)
      console.log(
        `${limit} a claim, ${name}: ${medianOf(all.map(({ jobs }) => jobs)).toFixed(0)} jobs a second, ` +
          `× ${ratio("jobs")}; claims alone × ${ratio("claims")}; CPU × ${ratio("cpu")}`,
      )
    }
  }
})
