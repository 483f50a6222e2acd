import { createServer } from "node:net"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { memoryOf } from "../../support/cpu.ts"
import { startNeighbour } from "../../support/neighbour.ts"
import { folder, type Postgres, startPostgres } from "../../support/postgres.ts"
import { freePort } from "../../support/process.ts"
import { amount, atMost, figure, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { makeTenant, type Service, startService, times } from "../../support/service.ts"

/** A loopback address for each receiver, so that each is an origin of its own. */
const originOf = (port: number, n: number) => `http://127.1.${Math.floor(n / 200)}.${(n % 200) + 1}:${port}`

/** A port that accepts connections and never answers. */
const hanging = async (scope: Scope): Promise<number> => {
  const sockets = new Set<{ destroy: () => void }>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket
      .on("error", () => {})
      .on("close", () => sockets.delete(socket))
      .resume()
  })
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve))
  scope.defer(() => {
    server.close()
    sockets.forEach((socket) => socket.destroy())
  })
  return (server.address() as AddressInfo).port
}

const finish = async (service: Service, key: string, callback: object) => {
  const { job_id } = await service.call(key, "/v1/jobs/create", { workflow: "bench", ...callback })
  await service.call(key, "/v1/jobs/complete", { job_id })
}

interface Subject {
  readonly what: string
  readonly port: (scope: Scope) => Promise<number>
  readonly callbacks: boolean
}

const subjects: ReadonlyArray<Subject> = [
  { what: "endpoints that refuse", port: freePort, callbacks: false },
  { what: "endpoints that hang", port: hanging, callbacks: false },
  { what: "callbacks that refuse", port: freePort, callbacks: true },
  { what: "callbacks that hang", port: hanging, callbacks: true },
]

const measure = (postgres: Postgres, { callbacks, port, what }: Subject, count: number, seconds: number) =>
  scoped(async (scope) => {
    const url = await postgres.database(`db${String(Date.now())}`)
    const query = await postgres.connect(url)
    const service = await startService(scope, folder(scope), {
      DATABASE_URL: url,
      ADMIN_TOKEN: "",
      LIMIT_ENDPOINTS: String(count),
    })
    const { beside } = await startNeighbour(scope, service)
    const { key, orgId } = await makeTenant(service)
    const to = await port(scope)
    if (!callbacks) {
      await times(count, (n) => service.call(key, "/v1/webhooks/create", { url: originOf(to, n), signing_secret: "s" }))
    }
    const { times: alone } = await beside(() => sleep(10_000))
    const before = memoryOf(service.pid).now
    let memory = 0
    const look = setInterval(() => {
      memory = Math.max(memory, memoryOf(service.pid).now - before)
    }, 200)
    const { times: beside10 } = await beside(async () => {
      if (callbacks) {
        const callback = (n: number) => ({ callback_url: originOf(to, n), callback_secret: "s" })
        await times(count, (n) => finish(service, key, callback(n)))
      } else await times(10, () => finish(service, key, {}))
      await sleep(seconds * 1_000)
    }).finally(() => clearInterval(look))
    const [row] = await query(
      `SELECT coalesce(sum(attempts), 0)::int AS attempts FROM (
        SELECT org_id, attempts FROM deliveries UNION ALL SELECT org_id, attempts FROM pending_deliveries
      ) AS d WHERE org_id = $1`,
      [orgId],
    )
    return { what, alone, beside: beside10, memory, attempts: row!["attempts"] as number }
  })

/** Many receivers of one org that fail. */
export const receivers = (_: Scope, { quick, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const count = quick ? 1_000 : 3_000
    const postgres = await startPostgres(scope)
    const found = []
    for (const subject of subjects) {
      const one = await measure(postgres, subject, count, quick ? 20 : 40)
      found.push(one)
      say(
        `${one.what}: p99 ${figure(one.alone.p99)} → ${figure(one.beside.p99)} ms, ${figure(one.memory, " MiB")} more`,
      )
    }
    return {
      tables: [
        {
          title: `${amount(count)} receivers of one org`,
          columns: ["", "attempts", "p50 alone ms", "p50 ms", "p99 alone ms", "p99 ms", "at most ms", "MiB more"],
          rows: found.map(({ alone, attempts, beside, memory, what }) => [
            what,
            amount(attempts),
            figure(alone.p50),
            figure(beside.p50),
            figure(alone.p99),
            figure(beside.p99),
            figure(beside.max),
            figure(memory),
          ]),
        },
      ],
      bars: found.flatMap(({ alone, beside, memory, what }) => [
        atMost(`${what}: another org's p99 − alone`, 100, beside.p99 - alone.p99, " ms"),
        atMost(`${what}: memory`, 100, memory, " MiB"),
      ]),
      notes: ["Each has an address of its own. Of endpoints ten jobs are finished, of callbacks one for each."],
    }
  })
