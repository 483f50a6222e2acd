/* oxlint-disable no-console -- a program for the terminal */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { Pool } from "undici"
import { cpuOf } from "./support/cpu.ts"
import { folder, startPostgres } from "./support/postgres.ts"
import { scoped } from "./support/scope.ts"
import { type Service, startService, times } from "./support/service.ts"

/**
 * Compares a service without nodes and one with two, in turns: `node bench/nodes.ts`. All databases are on one server,
 * and count together with the service. The figures are in docs/scaling.md.
 */
const rounds = Number(process.env.ROUNDS ?? 9)
const events = Number(process.env.EVENTS ?? 1_600)
const connections = 16
const orgCount = 64
const keyedClients = 32

interface Subject {
  readonly name: string
  readonly service: Service
  readonly keys: ReadonlyArray<string>
  readonly pool: Pool
}

const medianOf = (all: ReadonlyArray<number>) => all.toSorted((a, b) => a - b)[all.length >> 1]!

await scoped(async (scope) => {
  const received = { count: 0 }
  const receiver = createServer((request, response) => {
    request.resume().on("end", () => {
      received.count++
      response.end()
    })
  })
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve))
  scope.defer(() => {
    receiver.close()
    receiver.closeAllConnections()
  })
  const { port } = receiver.address() as AddressInfo
  const postgres = await startPostgres(scope)
  const logs = folder(scope)

  const start = async (name: string, nodes: ReadonlyArray<string>): Promise<Subject> => {
    const DATABASE_URL = await postgres.database(name)
    const urls: Array<string> = []
    for (const node of nodes) urls.push(`${node}=${await postgres.database(`${name}_${node}`)}`)
    const service = await startService(scope, logs, {
      DATABASE_URL,
      // Open mode, whose endpoints may be on this machine without TLS.
      ADMIN_TOKEN: "",
      ...(urls.length > 0 ? { NODES: urls.join(" ") } : {}),
    })
    const sql = await postgres.connect(DATABASE_URL)
    for (const node of nodes) await sql("INSERT INTO open_nodes (name) VALUES ($1)", [node])
    const keys = await times(orgCount, async () => {
      const { orgId } = await service.manage("/api/v0/orgs", { name: "bench" })
      const { key } = await service.manage(`/api/v0/orgs/${orgId as string}/keys`, { name: "bench" })
      const url = `http://127.0.0.1:${port}/`
      await service.call(key as string, "/v1/webhooks/create", { url, signing_secret: "secret" })
      return key as string
    })
    return { name, service, keys, pool: new Pool(service.url, { connections: keyedClients, pipelining: 1 }) }
  }

  const ask = async ({ pool }: Subject, key: string, path: string, json: object, headers = {}) => {
    const response = await pool.request({
      method: "POST",
      path: `/v1/${path}`,
      headers: { "content-type": "application/json", "x-api-key": key, ...headers },
      body: JSON.stringify(json),
    })
    const body = await response.body.text()
    if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}: ${body}`)
    return JSON.parse(body) as Record<string, string>
  }

  /** Runs `one` this many times over clients; then waits for the webhooks. */
  const run = async (clients: number, count: number, one: (n: number) => Promise<unknown>) => {
    const wanted = received.count + count
    let n = 0
    const client = async () => {
      while (n < count) await one(n++)
    }
    await Promise.all(Array.from({ length: clients }, client))
    while (received.count < wanted) await sleep(5)
    // The records of the last attempts.
    await sleep(300)
  }

  const publish = (subject: Subject, orgs: number) => (n: number) =>
    ask(subject, subject.keys[n % orgs]!, "events/publish", {
      type: "invoice.paid",
      data: { n, text: "x".repeat(200) },
    })
  const job = (subject: Subject, orgs: number) => async (n: number) => {
    const key = subject.keys[n % orgs]!
    const { job_id } = await ask(subject, key, "jobs/create", { workflow: "w", input: { n } })
    await ask(subject, key, "jobs/complete", { job_id, result: { n } })
  }
  const costs = { publish, "create and complete": job }

  const subjects = [await start("plain", []), await start("nodes", ["a", "b"])]
  const cpu: Record<string, Array<number>> = {}
  const database: Record<string, Array<number>> = {}
  const waits: Record<string, Array<number>> = {}
  for (let round = -1; round < rounds; round++) {
    for (const [what, make] of Object.entries(costs)) {
      for (const orgs of [1, orgCount]) {
        for (const subject of round % 2 === 0 ? subjects : subjects.toReversed()) {
          const before = [cpuOf(subject.service.pid), postgres.cpu()]
          await run(connections, events, make(subject, orgs))
          const [own, shared] = [cpuOf(subject.service.pid) - before[0]!, postgres.cpu() - before[1]!]
          if (round < 0) continue
          const name = `${what}, ${orgs} orgs, ${subject.name}`
          ;(cpu[name] ??= []).push(((own + shared) / events) * 1000)
          ;(database[name] ??= []).push((shared / events) * 1000)
        }
      }
    }
    for (const orgs of [1, orgCount]) {
      for (const subject of round % 2 === 0 ? subjects : subjects.toReversed()) {
        const took: Array<number> = []
        await run(keyedClients, events, async (n) => {
          const since = performance.now()
          const headers = { "idempotency-key": `${round}-${orgs}-${n}` }
          await ask(subject, subject.keys[n % orgs]!, "events/publish", { type: "t.t", data: n }, headers)
          took.push(performance.now() - since)
        })
        if (round >= 0) (waits[`keyed publish, ${orgs} orgs, ${subject.name}`] ??= []).push(medianOf(took))
      }
    }
  }
  const show = (kind: string, all: Record<string, Array<number>>) => {
    for (const [name, own] of Object.entries(all)) {
      if (!name.endsWith("plain")) continue
      const other = all[name.replace(/plain$/, "nodes")]!
      const ratio = medianOf(other.map((value, at) => value / own[at]!))
      const [plain, nodes] = [medianOf(own).toFixed(2), medianOf(other).toFixed(2)]
      console.log(
        `${kind}: ${name.replace(", plain", "")}: ${plain} ms, on nodes ${nodes} ms, ratio ${ratio.toFixed(2)}`,
      )
    }
  }
  show("CPU of service and databases", cpu)
  show("CPU of the databases", database)
  show("p50", waits)
  for (const { pool } of subjects) await pool.close()
})
