import { expect } from "@effect/vitest"
import { Context, DateTime, Duration, Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { moveOrg } from "#src/infrastructure/database/manageNodes.ts"
import { placementChannel } from "#src/infrastructure/database/Nodes.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import { adminClient } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { type Environment, onNodes, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { untilWaiting } from "../../contract/meet.ts"
import { makeTenant } from "../tenants.ts"

/** A database with two nodes, and a second replica. */
class Databases extends Context.Service<
  Databases,
  {
    readonly environment: Environment
    readonly other: TestServer["Service"]
    readonly urls: Record<Place, string>
    /** What an operator has: the databases, without a service. */
    readonly operator: Context.Context<SweepRepository | SqlClient.SqlClient>
  }
>()("test/Databases") {}
type Place = "platform" | "a" | "b"

const databases = Layer.effect(
  Databases,
  Effect.gen(function* () {
    const environment = yield* onNodes()
    const [a, b] = environment.NODES.split(" ").map((entry) => entry.slice(2))
    const other = yield* Layer.build(Layer.fresh(TestServer.layer(environment)))
    const urls = { platform: environment.DATABASE_URL, a: a!, b: b! }
    const redacted = (url: string) => Redacted.make(url)
    const nodes = new Map([
      ["a", redacted(urls.a)],
      ["b", redacted(urls.b)],
    ])
    const operator = yield* Layer.build(
      Layer.provideMerge(
        SweepsSql.layer.pipe(Layer.provide(JobsSql.layer), Layer.provide(crypto.layer)),
        Database.layer({ databaseUrl: redacted(urls.platform), nodes, dataDir: "unused" }),
      ),
    )
    return Databases.of({ environment, other: Context.get(other, TestServer), urls, operator })
  }),
)
const environment = Effect.map(Databases, ({ environment }) => environment)

/** Moves an org; returns when it is there. */
const move = Effect.fnUntraced(function* (orgId: string, to: Place) {
  const { sql } = yield* TestServer
  const { operator } = yield* Databases
  yield* Effect.provide(Effect.flatten(moveOrg(orgId, to)), operator)
  return Effect.gen(function* () {
    const [sweep] = yield* until(
      "the switch",
      sql<{
        id: string
        done: string
      }>`SELECT id, done_to AS done FROM sweeps WHERE org_id = ${orgId} AND kind = 'move'`,
      ([sweep]) => sweep!.done.startsWith("left"),
    )
    const later = DateTime.add(yield* DateTime.now, { minutes: 2 })
    const { advance } = Context.get(operator, SweepRepository)
    yield* until("the erasure", advance(sweep!.id, later, 2_000), (swept) => swept?.isDone === true)
  })
})

const inPlace = <A, E>(place: Place, use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.flatMap(Databases, ({ urls }) => Effect.flatMap(adminClient(urls[place]), use)).pipe(Effect.scoped)

layer(TestServer.layer(environment).pipe(Layer.provideMerge(databases)), { excludeTestServices: true })(
  "moves",
  (it) => {
    it.effect("an org moves with all that it has, and works at the new database", function* () {
      const { sql } = yield* TestServer
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url)
      const [org] = yield* sql<{ node: Place }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
      const to = org!.node === "a" ? "b" : "a"
      yield* tenant.call("events/publish", { type: "t.t", data: 1 })
      const { job_id } = yield* tenant.call("jobs/create", { workflow: "w" })
      yield* receiver.arrived(1)
      const settled = yield* move(tenant.orgId, to)
      yield* tenant.call("events/publish", { type: "t.t", data: 2 })
      yield* tenant.call("jobs/complete", { job_id })
      yield* receiver.arrived(3)
      expect((yield* tenant.deliveries({})).length).toBe(3)
      yield* settled
    })

    // Seen failing when the switch did not wait for claims: the attempt was lost, and was made again.
    /** Promise (Moving an org) */
    it.effect.each([200, 500])(
      "a move waits for the attempt in flight, which ends with %i, and its delivery goes on at the new database",
      function* (status) {
        const { sql } = yield* TestServer
        const tenant = yield* makeTenant()
        const receiver = yield* makeReceiver()
        yield* tenant.endpoint(receiver.url, { retry_delays: [1] })
        const [org] = yield* sql<{ node: "a" | "b" }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
        receiver.behave("hang")
        yield* tenant.call("events/publish", { type: "t.t", data: 1 })
        yield* receiver.arrived(1)
        const moving = yield* Effect.forkChild(move(tenant.orgId, org!.node === "a" ? "b" : "a"))
        const state = (there: SqlClient.SqlClient) => there`
          SELECT FROM org_moves WHERE org_id = ${tenant.orgId} AND state = 'draining'`
        yield* until("a move that waits", inPlace(org!.node, state), (rows) => rows.length === 1)
        receiver.behave({ status: 200 })
        // No claim takes it before the switch.
        yield* tenant.call("events/publish", { type: "t.t", data: 2 })
        const [inFlight] = receiver.received
        inFlight!.socket.end(`HTTP/1.1 ${status} Whatever\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`)
        const settled = yield* Fiber.join(moving)
        const all = yield* until("the deliveries", tenant.deliveries({}), (rows) =>
          rows.every((one) => one.state === "delivered"),
        )
        expect(all.map(({ attempts }) => attempts)).toEqual([1, status === 200 ? 1 : 2])
        expect(receiver.received.length).toBe(status === 200 ? 2 : 3)
        yield* settled
      },
    )

    // Seen failing when the error of a keyed operation did not pass its idempotency record.
    /** Promise (Moving an org) */
    it.effect.each(["keyed", "plain"])(
      "a %s request that meets the switch runs once, at the new database",
      function* (kind) {
        const { sql } = yield* TestServer
        const tenant = yield* makeTenant()
        const [org] = yield* sql<{ node: "a" | "b" }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
        const to = org!.node === "a" ? "b" : "a"
        const trigger = (there: SqlClient.SqlClient) =>
          there.unsafe(`CREATE TRIGGER "moves_${tenant.orgId}_new" BEFORE INSERT ON jobs FOR EACH ROW
            WHEN (new.org_id = '${tenant.orgId}') EXECUTE FUNCTION note_moving('${tenant.orgId}', jobs, id)`)
        yield* inPlace(org!.node, (there) =>
          Effect.andThen(
            trigger(there),
            there`INSERT INTO org_moves (org_id, id, state) VALUES (${tenant.orgId}, 'm', 'frozen')`,
          ),
        )
        yield* inPlace(
          to,
          (there) => there`INSERT INTO orgs (id, name, created_at) VALUES (${tenant.orgId}, 'o', now())`,
        )
        const headers = kind === "keyed" ? { "idempotency-key": "once" } : {}
        const create = tenant.ask("jobs/create", { workflow: "w" }, { headers })
        const waiting = yield* Effect.forkChild(create)
        yield* Effect.sleep("300 millis")
        yield* sql`UPDATE orgs SET node = ${to} WHERE id = ${tenant.orgId}`
        yield* sql`SELECT pg_notify(${placementChannel}, ${tenant.orgId})`
        const made = yield* Fiber.join(waiting)
        expect(made.status).toBe(200)
        if (kind === "keyed") expect((yield* create).json).toEqual(made.json)
        const jobs = (place: Place) =>
          inPlace(place, (there) => there<{ id: string }>`SELECT id FROM jobs WHERE org_id = ${tenant.orgId}`)
        expect(yield* jobs(org!.node)).toEqual([])
        expect((yield* jobs(to)).map(({ id }) => id)).toEqual([(made.json as { job_id: string }).job_id])
      },
    )

    // Seen failing when memory was asked for the node after the wait.
    it.effect("a change of an org that waits for the switch reaches its new node", function* () {
      const { send, sql } = yield* TestServer
      const tenant = yield* makeTenant()
      const [org] = yield* sql<{ node: "a" | "b" }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
      const to = org!.node === "a" ? "b" : "a"
      const changed = yield* inPlace("platform", (there) =>
        Effect.gen(function* () {
          yield* there`UPDATE orgs SET node = ${to} WHERE id = ${tenant.orgId}`
          const json = { limits: { unfinishedJobs: 7 }, strictEvents: true }
          const change = yield* Effect.forkDetach(send("PATCH", `/api/v0/orgs/${tenant.orgId}`, { json }))
          yield* untilWaiting(1).pipe(Effect.provideService(SqlClient.SqlClient, there))
          return change
        }).pipe(there.withTransaction),
      )
      expect((yield* Fiber.join(changed)).status).toBe(200)
      const copies = yield* inPlace(
        to,
        (there) => there`
            SELECT limits, strict_events IS NOT NULL AS strict FROM orgs WHERE id = ${tenant.orgId}`,
      )
      expect(copies).toEqual([{ limits: { unfinishedJobs: 7 }, strict: true }])
    })

    /**
     * Promise (Moving an org): Moves of an org under load lose no answered row, and deliver and run nothing twice; a
     * keyed request that is repeated across a move has its first answer.
     */
    it.effect("moves under load lose nothing, and deliver and run nothing twice", function* () {
      const { sql } = yield* TestServer
      const { other } = yield* Databases
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url)
      const statuses = new Map<string, number>()
      const published = new Set<string>()
      const created = new Set<string>()
      const completed = new Set<string>()
      let [slowest, writes] = [0, 0]
      const timed = <A, E, R>(name: string, effect: Effect.Effect<A & { status: number }, E, R>) =>
        Effect.map(Effect.timed(effect), ([took, answer]) => {
          if (name !== "claim") slowest = Math.max(slowest, Duration.toMillis(took))
          writes++
          const key = `${name} ${answer.status}`
          statuses.set(key, (statuses.get(key) ?? 0) + 1)
          return answer
        })
      const at = (n: number) => (n % 2 === 0 ? tenant : { ...tenant, ask: askOther })
      const askOther: typeof tenant.ask = (path, json, request = {}) =>
        other.send("POST", `/v1/${path}`, { json, ...request, headers: { ...tenant.headers, ...request.headers } })
      const one = Effect.fnUntraced(function* (n: number) {
        const { ask } = at(n)
        if (n % 4 === 0) {
          const made = yield* timed("publish", ask("events/publish", { type: "t.t", data: n }))
          if (made.status === 200) published.add((made.json as { event_id: string }).event_id)
        } else if (n % 4 === 1) {
          const headers = { "idempotency-key": `k${n}` }
          const again = () => timed("keyed", ask("events/publish", { type: "t.t", data: n }, { headers }))
          const made = yield* again()
          const second = yield* again()
          if (made.status === 200) published.add((made.json as { event_id: string }).event_id)
          if (second.status === 200) published.add((second.json as { event_id: string }).event_id)
          if (made.status === 200 && second.status === 200) expect(second.json).toEqual(made.json)
        } else if (n % 4 === 2) {
          const made = yield* timed("create", ask("jobs/create", { workflow: "w", skip_callbacks: true }))
          if (made.status === 200) created.add((made.json as { job_id: string }).job_id)
        } else {
          const { json, status } = yield* timed("claim", ask("jobs/claim", { workflows: ["w"], limit: 2 }))
          if (status !== 200) return
          for (const { job_id } of (json as { jobs: Array<{ job_id: string }> }).jobs) {
            const done = yield* timed("complete", ask("jobs/complete", { job_id }))
            if (done.status !== 200) continue
            expect(completed.has(job_id)).toBe(false)
            completed.add(job_id)
          }
        }
      })
      const clients = Number(process.env["MOVE_CLIENTS"] ?? 4)
      const pause = Number(process.env["MOVE_PAUSE"] ?? 100)
      let n = 0
      const load = yield* Effect.forkChild(
        Effect.forEach(
          Array.from({ length: clients }),
          () =>
            Effect.forever(
              Effect.suspend(() => one(n++)).pipe(Effect.andThen(Effect.sleep(pause * (0.5 + Math.random())))),
            ),
          { concurrency: "unbounded" },
        ),
      )
      const stalls: Array<number> = []
      const [org] = yield* sql<{ node: Place }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
      const began = Date.now()
      const places: ReadonlyArray<Place> = org!.node === "a" ? ["b", "platform", "a"] : ["a", "platform", "b"]
      for (let k = 0; k < Number(process.env["MOVES"] ?? 2); k++) {
        slowest = 0
        const settled = yield* move(tenant.orgId, places[k % 3]!)
        yield* Effect.sleep("300 millis")
        yield* settled
        stalls.push(Math.round(slowest))
      }
      yield* Effect.logInfo(
        "writes/s",
        (writes * 1000) / (Date.now() - began),
        "slowest write of each move, ms",
        stalls.join(" "),
        statuses,
      )
      yield* Fiber.interrupt(load)
      expect([...statuses.keys()].filter((key) => !key.endsWith(" 200"))).toEqual([])
      yield* until("the deliveries", tenant.deliveries({ state: "pending" }), (rows) => rows.length === 0)
      yield* until(
        "deliveries",
        Effect.sync(() => receiver.received.length),
        (count) => count >= published.size,
      )
      const counts = Map.groupBy(
        receiver.received,
        ({ body }) => (JSON.parse(body.toString()) as { event_id: string }).event_id,
      )
      expect([...published].filter((id) => !counts.has(id))).toEqual([])
      expect([...counts].filter(([, all]) => all.length > 1).map(([id]) => id)).toEqual([])
      const node = places[(Number(process.env["MOVES"] ?? 2) - 1) % 3]!
      const jobs = yield* inPlace(
        node,
        (sql) =>
          sql<{
            id: string
            status: string
            attempt: number
          }>`SELECT id, status, attempt FROM jobs WHERE org_id = ${tenant.orgId}
                UNION ALL SELECT id, status, attempt FROM finished_jobs WHERE org_id = ${tenant.orgId}`,
      )
      const byId = new Map(jobs.map((job) => [job.id, job]))
      expect([...created].filter((id) => !byId.has(id))).toEqual([])
      expect([...completed].filter((id) => byId.get(id)?.status !== "completed")).toEqual([])
      const events = yield* inPlace(
        node,
        (sql) => sql<{ id: string }>`SELECT id FROM events WHERE org_id = ${tenant.orgId}`,
      )
      const ids = new Set(events.map(({ id }) => id))
      expect([...published].filter((id) => !ids.has(id))).toEqual([])
    })
  },
)
