import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until, within } from "../../support/wait.ts"
import { claim, make } from "../jobs/jobCalls.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

/** The number of answers by status. */
const counted = (answers: ReadonlyArray<{ readonly status: number }>) => {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

/** Sends the same request many times at once. */
const crowd = (size: number, tenant: Tenant, path: string, json: object) =>
  Effect.replicateEffect(tenant.ask(path, json), size, { concurrency: "unbounded" })

layer(TestServer.layer(onPostgres({ LIMIT_WAITING_CLAIMS: "1000" })), {
  excludeTestServices: true,
  timeout: "5 minutes",
})("a crowd of one org's requests", (it) => {
  // Seen failing without the limit: 148 connections.
  it.effect("600 tests of endpoints at once open a few connections to their receiver", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    receiver.behave("slow")
    const ids = yield* Effect.forEach(Array.from({ length: 6 }), () => tenant.endpoint(receiver.url))
    const answers = yield* Effect.forEach(ids, (id) => crowd(100, tenant, "webhooks/test", { id }), {
      concurrency: "unbounded",
    })
    const counts = counted(answers.flat())
    expect(Object.keys(counts).filter((status) => !["200", "409", "503"].includes(status))).toEqual([])
    expect(counts[200]).toBeGreaterThan(0)
    expect(receiver.received).toHaveLength(counts[200]!)
    expect(receiver.connections().accepted).toBeLessThanOrEqual(40)
  })

  it.effect(
    "400 claims that wait do not delay another org's creations, and each of its jobs goes to one of its claims",
    function* () {
      const { routed } = yield* TestServer
      const [tenant, other] = [yield* makeTenant(), yield* makeTenant()]
      const before = routed()
      const waiting = yield* Effect.forkChild(crowd(400, tenant, "jobs/claim", { wait_seconds: 10 }))
      yield* until("the claims to arrive", Effect.sync(routed), (requests) => requests >= before + 400)
      for (let n = 0; n < 50; n++) {
        yield* make(tenant)
        yield* make(other)
      }
      expect(yield* claim(other, { limit: 100 })).toHaveLength(50)
      const answers = yield* within("the claims", Fiber.join(waiting))
      expect(counted(answers)).toEqual({ 200: 400 })
      const got = answers.flatMap(({ json }) => (json as { jobs: ReadonlyArray<{ job_id: string }> }).jobs)
      expect(new Set(got.map(({ job_id }) => job_id)).size).toBe(50)
      expect(got).toHaveLength(50)
    },
  )

  // Seen failing without the shares of connections: 34 lists for each creation; with them 1.
  it.effect(
    "40 clients of an expensive list: another org's creation waits for a few of the lists, not for all",
    function* () {
      const { sql } = yield* TestServer
      const [tenant, other] = [yield* makeTenant(), yield* makeTenant()]
      // Each page has a megabyte.
      yield* sql`INSERT INTO jobs (id, org_id, workflow, input, skip_callbacks, status, created_at, updated_at)
        SELECT 'crowd' || n, ${tenant.orgId}, 'w', to_json(repeat('x', 10000))::text, false, 'queued', now(), now()
        FROM generate_series(1, 100) n`
      let lists = 0
      const client = tenant
        .ask("jobs/list", { limit: 100 })
        .pipe(Effect.tap(({ status }) => Effect.sync(() => void (status === 200 && lists++))))
      const clients = yield* Effect.forkChild(
        Effect.replicateEffect(Effect.forever(client), 40, { concurrency: "unbounded" }),
      )
      yield* until(
        "the first lists",
        Effect.sync(() => lists),
        (answered) => answered >= 40,
      )
      const before = lists
      const creates = 15
      for (let n = 0; n < creates; n++) yield* make(other)
      // In the order of arrival, each would wait for about 40.
      expect((lists - before) / creates).toBeLessThan(15)
      yield* Fiber.interrupt(clients)
    },
  )
})
