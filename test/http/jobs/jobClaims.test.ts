import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until, within } from "../../support/wait.ts"
import { claim, events, get, make, status } from "./jobCalls.ts"
import { keysOf, must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("claims of jobs", (it) => {
  it.effect(
    "claims take the oldest jobs first, of one workflow on request, and concurrent claims never share a job",
    function* () {
      const tenant = yield* makeTenant()
      const ids: Array<string> = []
      for (let n = 0; n < 12; n++) ids.push(yield* make(tenant, { workflow: n < 2 ? "first" : "second" }))
      const of = (jobs: ReadonlyArray<{ job_id: string }>) => jobs.map(({ job_id }) => job_id)
      expect(of(yield* claim(tenant, { workflow: "second" }))).toEqual([ids[2]])
      expect(of(yield* claim(tenant, { limit: 3 }))).toEqual([ids[0], ids[1], ids[3]])
      const rest = yield* Effect.replicateEffect(claim(tenant, { limit: 3 }), 8, { concurrency: "unbounded" })
      expect(rest.flatMap(of).toSorted()).toEqual(ids.slice(4))
      expect(yield* claim(tenant, { limit: 100 })).toEqual([])
      expect(yield* claim(tenant, { workflow: "none", wait_seconds: 0 })).toEqual([])
    },
  )

  it.effect("a claim whose client has left takes no job", function* () {
    const { routed, unanswered } = yield* TestServer
    const tenant = yield* makeTenant()
    const before = routed()
    const gone = yield* Effect.forkChild(claim(tenant, { wait_seconds: 30 }))
    yield* until("the claim to arrive", Effect.sync(routed), (requests) => requests > before)
    yield* Fiber.interrupt(gone)
    yield* until("the claim to end", Effect.sync(unanswered), (requests) => requests === 0)
    const id = yield* make(tenant)
    // A statement that had begun may take the job, and returns it.
    expect(yield* claim(tenant, { wait_seconds: 10 })).toMatchObject([{ job_id: id, attempt: 1 }])
  })

  it.effect("a claim whose key ends while it waits takes no job, and is a 401", function* () {
    const { routed, send } = yield* TestServer
    const tenant = yield* makeTenant()
    const keys = `/api/v0/orgs/${tenant.orgId}/keys`
    const leaving = yield* must(send, "POST", keys, { json: { name: "leaving" } })
    const before = routed()
    const headers = { "x-api-key": leaving.key! }
    const waiting = yield* Effect.forkChild(tenant.ask("jobs/claim", { wait_seconds: 30 }, { headers }))
    yield* until("the claim to arrive", Effect.sync(routed), (requests) => requests > before)
    yield* must(send, "DELETE", `${keys}/${leaving.id}`)
    const id = yield* make(tenant)
    expect((yield* within("the claim", Fiber.join(waiting))).status).toBe(401)
    expect(yield* claim(tenant, { wait_seconds: 10 })).toMatchObject([{ job_id: id, attempt: 1 }])
  })

  it.effect(
    "an expired lease queues the job again, a heartbeat extends the lease, and the third expired lease is the last",
    function* () {
      const { advance, sql } = yield* TestServer
      const tenant = yield* makeTenant()
      const [kept, lost] = [yield* make(tenant), yield* make(tenant)]
      const last = yield* make(tenant, { workflow: "last" })
      yield* sql`UPDATE jobs SET attempt = 2 WHERE id = ${last}`
      yield* claim(tenant, { lease_seconds: 60, limit: 3 })
      const beat = yield* tenant.ask("jobs/heartbeat", { job_id: kept, lease_seconds: 3600 })
      expect([beat.status, String(keysOf(beat.json))]).toEqual([200, "message,success"])
      yield* advance("61 seconds")
      const nothing = yield* Effect.forkChild(claim(tenant, { workflow: "none", wait_seconds: 1 }))
      expect(yield* claim(tenant, { wait_seconds: 10 })).toMatchObject([{ job_id: lost, attempt: 2 }])
      expect(yield* get(tenant, kept)).toMatchObject({ status: "running", attempt: 1 })
      expect(yield* get(tenant, last)).toMatchObject({ status: "failed", error: "lease expired", attempt: 3 })
      expect(yield* events(tenant, last)).toHaveLength(1)
      // A late worker with the same job can still complete it.
      expect(yield* status(tenant, "jobs/complete", { job_id: kept })).toBe(200)
      expect(yield* status(tenant, "jobs/complete", { job_id: last })).toBe(409)
      expect(yield* status(tenant, "jobs/heartbeat", { job_id: yield* make(tenant) })).toBe(409)
      expect(yield* Fiber.join(nothing)).toEqual([])
    },
  )
})

// With sleeps that never end, a claim looks for jobs once, and then only when it is notified.
layer(TestServer.layer({}, { endlessSleeps: true }), { excludeTestServices: true })("a claim that waits", (it) => {
  // Seen failing without the notification of waiting claims: they sleep.
  it.effect("is answered as soon as a job exists", function* () {
    const tenant = yield* makeTenant()
    for (let n = 0; n < 3; n++) {
      const waiting = yield* Effect.forkChild(claim(tenant, { wait_seconds: 30 }))
      // Leaves time for its first look. A job created before that would be found without the notification.
      yield* Effect.sleep("150 millis")
      const id = yield* make(tenant)
      expect(yield* within("the claim", Fiber.join(waiting))).toMatchObject([{ job_id: id, attempt: 1 }])
    }
  })
})
