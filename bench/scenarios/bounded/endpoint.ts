import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { addDeliveries, countSweeps } from "../../support/fill.ts"
import { startNeighbour, type Times } from "../../support/neighbour.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { amount, atMost, figure, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { makeTenant, startService } from "../../support/service.ts"
import { median } from "../../support/stats.ts"

/** A receiver that does not answer, or answers 410. */
const startReceiver = async (scope: Scope) => {
  const state = { isGone: false, goneAt: Number.NaN }
  const server = createServer((_, response) => {
    if (!state.isGone) return
    if (Number.isNaN(state.goneAt)) state.goneAt = performance.now()
    response.writeHead(410).end()
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  scope.defer(() => void server.close().closeAllConnections())
  return { state, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

interface Change {
  /** Milliseconds until the response, or until the change is visible. */
  readonly answered: number
  /** Seconds until all rows are up to date. */
  readonly settled: number
  readonly times: Times
}

/** One endpoint with very many pending deliveries, and the operations that end it or resend them. */
export const endpoint = (_: Scope, { quick, rounds, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const count = quick ? 100_000 : 1_000_000
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const url = await postgres.database("gatehouse")
    const query = await postgres.connect(url)
    const service = await startService(scope, home, { DATABASE_URL: url, ADMIN_TOKEN: "", WEBHOOK_TIMEOUT: "2s" })
    const { beside } = await startNeighbour(scope, service)
    const { key, orgId } = await makeTenant(service)
    const receiver = await startReceiver(scope)
    const call = (path: string, json: object) => service.call(key, `/v1/webhooks/${path}`, { ...json })
    await call("create", { url: receiver.url, signing_secret: "s" })
    const [row] = await query("SELECT id FROM webhook_endpoints WHERE org_id = $1", [orgId])
    const id = row!["id"] as string
    await addDeliveries(query, orgId, count, "failed")
    say(`${amount(count)} deliveries are there`)
    const alone = (await beside(() => sleep(10_000))).times

    const found = new Map<string, Array<Change>>()
    const change = async (what: string, make: () => Promise<number>, seen: "pending" | "canceled") => {
      const { found: made, times } = await beside(async () => {
        const answered = await make()
        const other = seen === "pending" ? "canceled" : "pending"
        const { deliveries } = await call("deliveries/list", { webhook_endpoint_id: id, state: other, limit: 10 })
        if ((deliveries as ReadonlyArray<unknown>).length > 0) throw new Error(`${what}: some are ${other} still`)
        const since = performance.now()
        while ((await countSweeps(query)) > 0) await sleep(100)
        return { answered, settled: (performance.now() - since) / 1000 }
      })
      found.set(what, [...(found.get(what) ?? []), { ...made, times }])
      say(
        `${what}: ${figure(made.answered, " ms")}, settled in ${figure(made.settled, " s")}, p99 ${figure(times.p99, " ms")}`,
      )
    }
    const timed = (path: string, json: object) => async () => {
      const since = performance.now()
      await call(path, json)
      return performance.now() - since
    }
    const gone = async () => {
      receiver.state.goneAt = Number.NaN
      receiver.state.isGone = true
      while ((await call("get", { id }))["active"] === true) await sleep(20)
      receiver.state.isGone = false
      return performance.now() - receiver.state.goneAt
    }
    const recover = () =>
      change(
        "recover",
        timed("deliveries/recover", { webhook_endpoint_id: id, since: "2026-01-01T00:00:00Z" }),
        "pending",
      )
    const activate = () => call("update", { id, active: true })
    for (let round = 1; round <= rounds; round++) {
      await recover()
      await change("deactivate", timed("update", { id, active: false }), "canceled")
      await activate()
      await recover()
      await change("410", gone, "canceled")
      await activate()
    }
    await recover()
    await change("delete", timed("delete", { id }), "canceled")
    const [left] = await query("SELECT count(*)::int AS pending FROM pending_deliveries WHERE org_id = $1", [orgId])
    if (left!["pending"] !== 0) throw new Error(`${String(left!["pending"])} deliveries are pending still`)

    const medians = [...found].map(([what, changes]) => ({
      what,
      answered: median(changes.map((one) => one.answered)),
      settled: median(changes.map((one) => one.settled)),
      p99: median(changes.map(({ times }) => times.p99)),
      max: Math.max(...changes.map(({ times }) => times.max)),
      times: changes.length,
    }))
    return {
      tables: [
        {
          title: `${amount(count)} deliveries of one endpoint`,
          columns: ["", "times", "answered ms", "settled s", "another org's p99 ms", "× alone", "at most ms"],
          rows: [
            ["alone", "1", "", "", figure(alone.p99), "1", figure(alone.max)],
            ...medians.map(({ answered, max, p99, settled, times, what }) => [
              what,
              amount(times),
              figure(answered),
              figure(settled),
              figure(p99),
              figure(p99 / alone.p99),
              figure(max),
            ]),
          ],
        },
      ],
      bars: medians.flatMap(({ answered, p99, settled, what }) => [
        atMost(`${what}: answered`, 1_000, answered, " ms"),
        atMost(`${what}: rows settled`, 180, settled, " s"),
        atMost(`${what}: another org's p99 ÷ alone`, 3, p99 / alone.p99),
      ]),
      notes: ["410 is counted from the response of the receiver to when the endpoint is seen as inactive."],
    }
  })
