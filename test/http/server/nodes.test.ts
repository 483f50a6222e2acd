import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { adminClient } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { proxied } from "../../support/proxy.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { type Environment, onNodes, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

/**
 * Promise (Nodes): While a node refuses connections, or is silent, 400 mixed requests of other orgs succeed. Its own
 * orgs get a 503, and are served when it is back.
 */

type Proxy = Effect.Success<ReturnType<typeof proxied>>

/** A database and two nodes, each behind a proxy, and a second replica. */
class Databases extends Context.Service<
  Databases,
  {
    readonly environment: Environment
    readonly other: TestServer["Service"]
    readonly urls: Readonly<Record<Place, string>>
    readonly proxies: Readonly<Record<Place, Proxy>>
  }
>()("test/Databases") {}
type Place = "platform" | "a" | "b"

const databases = Layer.effect(
  Databases,
  Effect.gen(function* () {
    const direct = yield* onNodes()
    const [a, b] = direct.NODES.split(" ").map((entry) => entry.slice(2))
    const urls = { platform: direct.DATABASE_URL, a: a!, b: b! }
    const proxies = yield* Effect.all({ platform: proxied(urls.platform), a: proxied(urls.a), b: proxied(urls.b) })
    const environment = {
      ...direct,
      DATABASE_URL: proxies.platform.url,
      NODES: `a=${proxies.a.url} b=${proxies.b.url}`,
      WEBHOOK_RETRY_DELAYS: "1s,1s,1s,1s",
    }
    const other = yield* Layer.build(Layer.fresh(TestServer.layer(environment)))
    return Databases.of({ environment, other: Context.get(other, TestServer), urls, proxies })
  }),
)
const environment = Effect.map(Databases, ({ environment }) => environment)

/** Runs statements in the database of a node, or of the platform. */
const inPlace = <A, E>(place: Place, use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.flatMap(Databases, ({ urls }) => Effect.flatMap(adminClient(urls[place]), use)).pipe(Effect.scoped)

/** Makes a database unreachable, or silent, while an effect runs. */
const whileDown = <A, E, R>(place: Place, how: "close" | "silence", effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Databases, ({ proxies }) =>
    Effect.acquireUseRelease(
      proxies[place][how],
      () => effect,
      // What was silent is dead: its connections end.
      () => Effect.andThen(proxies[place].heal, proxies[place].cut),
    ),
  )

/** A tenant on a node. */
const tenantOn = Effect.fnUntraced(function* (name: "a" | "b") {
  const { sql } = yield* TestServer
  while (true) {
    const tenant = yield* makeTenant()
    const [org] = yield* sql<{ node: string }>`SELECT node FROM orgs WHERE id = ${tenant.orgId}`
    if (org!.node === name) return tenant
  }
})

const count = (place: Place, table: string, orgId: string) =>
  inPlace(
    place,
    (sql) => sql<{ n: number }>`SELECT count(*)::int AS n FROM ${sql(table)} WHERE org_id = ${orgId}`,
  ).pipe(Effect.map(([row]) => row!.n))

const numbers = (n: number) => Array.from({ length: n }, (_, k) => k)

layer(TestServer.layer(environment).pipe(Layer.provideMerge(databases)), { excludeTestServices: true })(
  "nodes",
  (it) => {
    /**
     * Promise (Nodes): An operation of a tenant, its idempotency record and its audit entry are on the org's node
     * alone.
     */
    it.effect("the rows of an org are on its node alone, and its webhooks arrive", function* () {
      for (const [name, other] of [
        ["a", "b"],
        ["b", "a"],
      ] as const) {
        const tenant = yield* tenantOn(name)
        const receiver = yield* makeReceiver()
        yield* tenant.endpoint(receiver.url)
        yield* tenant.call("events/publish", { type: "invoice.paid", data: {} })
        const job = yield* tenant.finished()
        yield* receiver.arrived(2)
        yield* until("both deliveries to be recorded", tenant.deliveries({}), (found) =>
          found.every(({ state }) => state === "delivered"),
        )
        expect((yield* tenant.call("jobs/get", { job_id: job }))["status"]).toBe("completed")
        for (const [place, rows] of [
          [name, 1],
          [other, 0],
          ["platform", 0],
        ] as const)
          expect(yield* count(place, "finished_jobs", tenant.orgId), place).toBe(rows)
      }
    })

    it.effect("what the platform tells an org reaches the endpoints on its node", function* () {
      const { send } = yield* TestServer
      const tenant = yield* tenantOn("a")
      const receiver = yield* makeReceiver()
      // That of the tenant's first key.
      yield* until("no event on the platform", count("platform", "events", tenant.orgId), (n) => n === 0)
      yield* tenant.endpoint(receiver.url, { event_types: ["key.created"] })
      yield* must(send, "POST", `/api/v0/orgs/${tenant.orgId}/keys`, { json: { name: "told" } })
      yield* receiver.arrived(1)
      expect(JSON.parse(receiver.received[0]!.body.toString())).toMatchObject({ event: "key.created" })
      expect(yield* count("a", "events", tenant.orgId)).toBe(1)
      yield* until("the platform to forget the event", count("platform", "events", tenant.orgId), (n) => n === 0)
    })

    /** Promise (Nodes) */
    it.effect("the record of an idempotency key is beside what it made", function* () {
      const { send } = yield* TestServer
      const tenant = yield* tenantOn("b")
      const headers = { "idempotency-key": "once" }
      const ask = tenant.ask("jobs/create", { workflow: "w" }, { headers })
      const [first, second] = [yield* ask, yield* ask]
      expect(second.json).toEqual(first.json)
      expect(yield* count("b", "jobs", tenant.orgId)).toBe(1)
      const records = (place: Place) =>
        inPlace(place, (sql) => sql`SELECT 1 FROM idempotency_keys WHERE caller = ${tenant.keyId}`).pipe(
          Effect.map(({ length }) => length),
        )
      expect([yield* records("b"), yield* records("platform")]).toEqual([1, 0])
      const keys = send("POST", `/api/v0/orgs/${tenant.orgId}/keys`, { json: { name: "k" }, headers })
      expect((yield* keys).json).toEqual((yield* keys).json)
      expect(yield* count("platform", "api_keys", tenant.orgId)).toBe(2)
    })

    it.effect("usage, limits and the audit log are those of both databases", function* () {
      const { send } = yield* TestServer
      const tenant = yield* tenantOn("a")
      const org = `/api/v0/orgs/${tenant.orgId}`
      yield* tenant.endpoint("https://example.com")
      yield* tenant.call("jobs/create", { workflow: "w" })
      const { used } = (yield* must(send, "GET", org)) as unknown as { used: Record<string, number> }
      expect(used).toMatchObject({ keys: 1, endpoints: 1, unfinishedJobs: 1 })

      yield* must(send, "PATCH", org, { json: { limits: { unfinishedJobs: 1 } } })
      expect((yield* tenant.ask("jobs/create", { workflow: "w" })).status).toBe(409)

      const actions: Array<string> = []
      let cursor: string | null = null
      do {
        const path = `${org}/audit?limit=1${cursor === null ? "" : `&cursor=${cursor}`}`
        const page = (yield* must(send, "GET", path)) as unknown as {
          entries: Array<{ action: string }>
          nextCursor: string | null
        }
        actions.push(...page.entries.map(({ action }) => action))
        cursor = page.nextCursor
      } while (cursor !== null)
      expect(actions).toEqual(["org.update", "webhook_endpoint.create", "key.create", "org.create"])
    })

    it.effect("the erasure of an org erases its rows on the node", function* () {
      const { send } = yield* TestServer
      const tenant = yield* tenantOn("b")
      yield* tenant.ask("jobs/create", { workflow: "w" }, { headers: { "idempotency-key": "k" } })
      yield* must(send, "DELETE", `/api/v0/orgs/${tenant.orgId}`)
      yield* until("the jobs to go", count("b", "jobs", tenant.orgId), (n) => n === 0)
      const left = inPlace(
        "b",
        (sql) => sql`
            SELECT id FROM orgs WHERE id = ${tenant.orgId}
            UNION ALL SELECT key FROM idempotency_keys WHERE caller = ${tenant.keyId}`,
      )
      yield* until("the rest to go", left, (rows) => rows.length === 0)
    })

    /** Promise (Nodes): Of two replicas, each sees the jobs of the other, and each webhook is sent once. */
    it.effect(
      "replicas share nodes: a job of one is claimed at the other, and each webhook is sent once",
      function* () {
        const { send } = yield* TestServer
        const { other } = yield* Databases
        const tenant = yield* tenantOn("a")
        const receiver = yield* makeReceiver()
        yield* tenant.endpoint(receiver.url)
        const { job_id } = yield* tenant.call("jobs/create", { workflow: "w" })
        const { headers } = tenant
        const { jobs } = (yield* must(other.send, "POST", "/v1/jobs/claim", {
          json: { workflows: ["w"] },
          headers,
        })) as unknown as { jobs: Array<{ job_id: string }> }
        expect(jobs.map((job) => job.job_id)).toEqual([job_id])
        yield* Effect.forEach(
          numbers(40),
          (n) =>
            must(n % 2 === 0 ? send : other.send, "POST", "/v1/events/publish", {
              json: { type: "t.t", data: n },
              headers,
            }),
          { concurrency: 8 },
        )
        yield* receiver.arrived(40)
        yield* until("all to be recorded", tenant.deliveries({ state: "pending" }), (pending) => pending.length === 0)
        expect(receiver.received).toHaveLength(40)
      },
    )

    for (const how of ["close", "silence"] as const) {
      it.effect(
        `while a node is down (${how}), other orgs notice nothing, and its own get a 503 until it is back`,
        function* () {
          const [down, healthy] = [yield* tenantOn("a"), [yield* tenantOn("b"), yield* tenantOn("b")]]
          const receiver = yield* makeReceiver()
          for (const tenant of healthy) yield* tenant.endpoint(receiver.url)
          const ask = (tenant: Tenant, n: number) =>
            n % 2 === 0
              ? tenant.ask("events/publish", { type: "t.t", data: n })
              : tenant.ask("jobs/create", { workflow: "w" })
          const answers = yield* whileDown(
            "a",
            how,
            Effect.all(
              {
                others: Effect.forEach(numbers(400), (n) => ask(healthy[n % 4 < 2 ? 0 : 1]!, n), { concurrency: 16 }),
                own: Effect.forEach(numbers(40), (n) => ask(down, n), { concurrency: 40 }),
              },
              { concurrency: 2 },
            ),
          )
          expect(new Set(answers.others.map(({ status }) => status))).toEqual(new Set([200]))
          expect(new Set(answers.own.map(({ status }) => status))).toEqual(new Set([503]))
          yield* receiver.arrived(200)
          yield* until("the node's org to be served", ask(down, 1), ({ status }) => status === 200)
        },
      )
    }

    // Seen failing: a 503, whatever was looked for.
    it.effect("while a node is down, what is on other databases is found", function* () {
      const { send } = yield* TestServer
      const tenant = yield* tenantOn("b")
      const endpoint = yield* tenant.endpoint("https://127.0.0.1:9/", { description: tenant.orgId })
      for (const how of ["close", "silence"] as const) {
        const [{ found }, { orgs }] = yield* whileDown(
          "a",
          how,
          Effect.all([
            must(send, "GET", `/api/v0/find?text=${tenant.orgId}`),
            must(send, "GET", `/api/v0/orgs?owns=${endpoint}`),
          ]),
        )
        expect(found).toMatchObject([{ id: endpoint, orgId: tenant.orgId }])
        expect(orgs).toMatchObject([{ orgId: tenant.orgId }])
      }
    })

    it.effect("while a node is down, new orgs are placed on another one, and a replica starts", function* () {
      const { send, sql } = yield* TestServer
      const down = yield* tenantOn("a")
      const { environment } = yield* Databases
      const replica = yield* whileDown(
        "a",
        "close",
        Effect.gen(function* () {
          const made = yield* Effect.forEach(numbers(4), (n) =>
            must(send, "POST", "/api/v0/orgs", { json: { name: `o${n}` } }),
          )
          const nodes = yield* sql<{ node: string }>`
              SELECT node FROM orgs WHERE id = ANY(string_to_array(${made.map(({ orgId }) => orgId).join()}, ','))`
          expect(nodes.map(({ node }) => node)).toEqual(["b", "b", "b", "b"])
          const started = yield* Layer.build(Layer.fresh(TestServer.layer(environment, { lacksNode: true })))
          return Context.get(started, TestServer)
        }),
      )
      const ask = replica.send("POST", "/v1/jobs/create", { json: { workflow: "w" }, headers: down.headers })
      yield* until("the node's org to be served", ask, ({ status }) => status === 200)
    })

    /** Promise (Nodes) */
    it.effect("while the platform's database is down, nodes deliver", function* () {
      const tenant = yield* tenantOn("a")
      const receiver = yield* makeReceiver()
      receiver.behave({ status: 500 })
      yield* tenant.endpoint(receiver.url)
      yield* tenant.call("events/publish", { type: "t.t", data: null })
      yield* receiver.arrived(1)
      yield* whileDown("platform", "close", receiver.arrived(3))
    })
  },
)
