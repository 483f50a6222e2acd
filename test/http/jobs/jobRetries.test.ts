import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { claim, events, get, make, status } from "./jobCalls.ts"
import { makeTenant } from "../tenants.ts"

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("retries of failed jobs", (it) => {
  it.effect(
    "a failed job is retried with another input, keeps its history, and its next end is another event",
    function* () {
      const tenant = yield* makeTenant()
      yield* tenant.endpoint("https://localhost:9/")
      const job_id = yield* make(tenant, { max_attempts: 1, input: { to: "nobody" } })
      expect(yield* status(tenant, "jobs/retry", { job_id })).toBe(409)
      yield* claim(tenant)
      yield* tenant.call("jobs/heartbeat", { job_id, attempt: 1, note: "row 7" })
      yield* tenant.call("jobs/fail", { job_id, attempt: 1, error: "no such address" })
      expect(yield* tenant.call("jobs/retry", { job_id, input: { to: "ada@example.com" } })).toEqual({
        success: true,
        message: "The job is queued again.",
      })
      expect(yield* claim(tenant)).toMatchObject([{ job_id, attempt: 2, input: { to: "ada@example.com" } }])
      expect(yield* status(tenant, "jobs/complete", { job_id, attempt: 1 })).toBe(409)
      yield* tenant.call("jobs/complete", { job_id, attempt: 2, result: "sent" })
      expect(yield* get(tenant, job_id)).toMatchObject({
        status: "completed",
        attempt: 2,
        max_attempts: 2,
        attempt_log: [
          { attempt: 1, note: "row 7", error: "no such address" },
          { attempt: 2, note: null, error: null },
        ],
      })
      expect(yield* events(tenant, job_id)).toHaveLength(2)
      expect(yield* status(tenant, "jobs/retry", { job_id })).toBe(409)
    },
  )

  it.effect(
    "what a filter selects is counted, retried and canceled in the background, and the audit log says so",
    function* () {
      const { send } = yield* TestServer
      const tenant = yield* makeTenant()
      const fail = Effect.fnUntraced(function* (workflow: string, error: string) {
        const job_id = yield* make(tenant, { workflow })
        yield* tenant.call("jobs/fail", { job_id, error })
        return job_id
      })
      const [one, two, other] = [
        yield* fail("mail", "connect ECONNREFUSED 10.0.0.1"),
        yield* fail("mail", "connect ECONNREFUSED 10.0.0.2"),
        yield* fail("mail", "timeout"),
      ]
      const filter = { workflow: "mail", error: "connect ECONNREFUSED" }
      expect(yield* tenant.call("jobs/list", { status: "failed", ...filter })).toMatchObject({
        jobs: [{ job_id: two }, { job_id: one }],
      })
      expect(yield* tenant.call("jobs/causes", {})).toMatchObject({ causes: [{ jobs: 1 }, { jobs: 1 }, { jobs: 1 }] })
      const counted = yield* tenant.call("jobs/retry", { filter, dry_run: true })
      expect(counted).toMatchObject({
        count: 2,
        is_all: true,
        sweep_id: null,
        message: "2 jobs would be queued again.",
      })
      expect(yield* get(tenant, one)).toMatchObject({ status: "failed" })
      const started = yield* tenant.call("jobs/retry", { filter })
      expect(started).toMatchObject({ count: 2, sweep_id: expect.any(String), message: "2 jobs are queued again." })
      const statusOf = (job_id: string) => Effect.map(get(tenant, job_id), (job) => job.status)
      yield* until("the retry", statusOf(two), (now) => now === "queued")
      expect([yield* statusOf(one), yield* statusOf(other)]).toEqual(["queued", "failed"])
      const canceled = yield* tenant.call("jobs/cancel", { filter: { workflow: "mail" } })
      expect(canceled).toMatchObject({ count: 2, message: "2 jobs are canceled." })
      yield* until("the cancellation", statusOf(two), (now) => now === "canceled")
      const log = yield* send("GET", `/api/v0/orgs/${tenant.orgId}/audit`)
      const entries = (log.json as { entries: ReadonlyArray<{ action: string; details: object }> }).entries
      const failed = yield* fail("mail", "timeout")
      yield* tenant.call("jobs/retry", { job_id: failed, input: { to: "ada@example.com" } })
      const retried = yield* send("GET", `/api/v0/orgs/${tenant.orgId}/audit?limit=1`)
      expect(retried.json).toMatchObject({
        entries: [{ action: "job.retry", target: failed, details: { inputChanged: true } }],
      })
      expect(entries.slice(0, 2)).toMatchObject([
        { action: "job_sweep.start", details: { kind: "cancel", count: 2 } },
        { action: "job_sweep.start", details: { kind: "retry", filter, count: 2 } },
      ])
    },
  )

  it.effect(
    "a request that names a job and a filter, or neither, is refused, and so is a field of the other",
    function* () {
      const tenant = yield* makeTenant()
      const job_id = yield* make(tenant)
      for (const [path, body, fault] of [
        ["jobs/retry", {}, "job_id or filter is missing"],
        ["jobs/cancel", { job_id, filter: {} }, "must not be sent together"],
        ["jobs/retry", { filter: {}, input: 1 }, "input must be sent with job_id"],
        ["jobs/cancel", { job_id, dry_run: true }, "dry_run must be sent with filter"],
        ["jobs/retry", { filter: { status: "completed" } }, "filter.status"],
        ["jobs/cancel", { filter: { status: "failed" } }, "filter.status"],
        ["jobs/list", { status: "queued", error: "x" }, "error selects failed jobs"],
        ["jobs/list", { error: "x".repeat(201) }, "error"],
        ["jobs/causes", { error: "x" }, "error"],
      ] as const) {
        const refused = yield* tenant.ask(path, body)
        expect([refused.status, refused.text], path).toEqual([400, expect.stringContaining(fault)])
      }
      expect(yield* get(tenant, job_id)).toMatchObject({ status: "queued" })
    },
  )
})
