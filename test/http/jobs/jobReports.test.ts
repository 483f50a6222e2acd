import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { claim, events, get, make, status } from "./jobCalls.ts"
import { makeTenant } from "../tenants.ts"

/**
 * Promise (Retries and batches of jobs): A report of an attempt that is not the running one changes nothing and is a
 * 409.
 */

const ids = (jobs: ReadonlyArray<{ job_id: string }>) => jobs.map(({ job_id }) => job_id)

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("reports about jobs", (it) => {
  it.effect(
    "a worker whose lease expired gets a 409 with its attempt, and the result of the last claim stays",
    function* () {
      const { advance } = yield* TestServer
      const tenant = yield* makeTenant()
      const job_id = yield* make(tenant)
      yield* claim(tenant, { lease_seconds: 1 })
      yield* advance("2 seconds")
      expect(yield* claim(tenant, { wait_seconds: 10, lease_seconds: 3600 })).toMatchObject([{ job_id, attempt: 2 }])
      for (const [path, fields] of [
        ["jobs/heartbeat", {}],
        ["jobs/complete", { result: "late" }],
        ["jobs/fail", { error: "late" }],
        ["jobs/fail", { error: "late", retry: true }],
      ] as const) {
        expect(yield* status(tenant, path, { job_id, attempt: 1, ...fields }), path).toBe(409)
      }
      expect(yield* status(tenant, "jobs/complete", { job_id, attempt: 2, result: "kept" })).toBe(200)
      expect(yield* status(tenant, "jobs/complete", { job_id, attempt: 2, result: "again" })).toBe(200)
      expect(yield* status(tenant, "jobs/complete", { job_id, attempt: 1, result: "late" })).toBe(409)
      expect(yield* get(tenant, job_id)).toMatchObject({ status: "completed", result: "kept", attempt: 2 })
      expect(yield* events(tenant, job_id)).toHaveLength(1)
    },
  )

  it.effect("the answer says what the report changed", function* () {
    const tenant = yield* makeTenant()
    const say = (path: string, fields: object) =>
      Effect.map(tenant.call(`jobs/${path}`, fields), ({ message }) => message)
    const done = yield* make(tenant)
    expect(yield* say("complete", { job_id: done, result: 1 })).toBe("The job is completed.")
    expect(yield* say("complete", { job_id: done, result: 2 })).toMatch(/completed before; nothing changed/)
    expect(yield* get(tenant, done)).toMatchObject({ result: 1 })

    const job_id = yield* make(tenant, { max_attempts: 2, retry_delay_seconds: 1 })
    yield* claim(tenant)
    const failed = { job_id, error: "boom", retry: true }
    expect(yield* say("fail", { ...failed, attempt: 1 })).toBe("The job is queued again.")
    expect(yield* say("fail", { ...failed, attempt: 1 })).toMatch(/before; nothing changed/)
    const { advance } = yield* TestServer
    yield* advance("2 seconds")
    expect(yield* claim(tenant, { wait_seconds: 10 })).toMatchObject([{ job_id, attempt: 2 }])
    expect(yield* say("fail", failed)).toBe(
      "The job is failed: it has no attempt to retry, or a newer job has its unique key.",
    )
    expect(yield* say("fail", failed)).toMatch(/before; nothing changed/)
    expect(yield* say("fail", { job_id: yield* make(tenant), error: "boom" })).toBe("The job is failed.")
  })

  it.effect(
    "a failure with a retry queues the job again after its delay, and the last failure creates the event",
    function* () {
      const { advance } = yield* TestServer
      const tenant = yield* makeTenant()
      const job_id = yield* make(tenant, { max_attempts: 2, retry_delay_seconds: 600 })
      yield* claim(tenant)
      const failed = { job_id, attempt: 1, error: "boom", retry: true }
      expect(yield* status(tenant, "jobs/fail", failed)).toBe(200)
      const queued = yield* get(tenant, job_id)
      expect(queued).toMatchObject({ status: "queued", attempt: 1, error: "boom", finished_at: null })
      expect(Date.parse(queued.run_at!) - Date.parse(queued.updated_at)).toBe(600_000)
      expect(yield* claim(tenant)).toEqual([])
      yield* advance("601 seconds")
      expect(yield* claim(tenant, { wait_seconds: 10, lease_seconds: 3600 })).toMatchObject([{ job_id, attempt: 2 }])
      expect(yield* status(tenant, "jobs/fail", failed)).toBe(200)
      expect(yield* events(tenant, job_id)).toHaveLength(0)
      expect(yield* status(tenant, "jobs/fail", { ...failed, attempt: 2 })).toBe(200)
      expect(yield* get(tenant, job_id)).toMatchObject({ status: "failed", error: "boom" })
      expect(yield* events(tenant, job_id)).toHaveLength(1)
    },
  )

  it.effect(
    "claims take the highest priority first, from several workflows, and delayed jobs at their time",
    function* () {
      const { advance } = yield* TestServer
      const tenant = yield* makeTenant()
      const [low, high, other] = [
        yield* make(tenant, { workflow: "a", priority: -100 }),
        yield* make(tenant, { workflow: "b", priority: 100 }),
        yield* make(tenant, { workflow: "c" }),
      ]
      const later = new Date(Date.now() + 3_600_000).toISOString()
      const delayed = yield* make(tenant, { workflow: "d", run_at: later })
      const past = yield* make(tenant, { workflow: "e", run_at: "2020-01-01T00:00:00Z" })
      expect((yield* get(tenant, delayed)).run_at).toBe(later)
      expect((yield* get(tenant, past)).run_at).toBeNull()
      expect(ids(yield* claim(tenant, { workflows: ["a", "b", "none"], limit: 9 }))).toEqual([high, low])
      expect(ids(yield* claim(tenant, { limit: 9 }))).toEqual([other, past])
      const waiting = yield* Effect.forkChild(claim(tenant, { workflows: ["d", "x"], wait_seconds: 30 }))
      yield* advance("3601 seconds")
      expect(ids(yield* Fiber.join(waiting))).toEqual([delayed])
    },
  )

  it.effect("a canceled job has no event, and its worker gets a 409", function* () {
    const tenant = yield* makeTenant()
    const job_id = yield* make(tenant)
    yield* claim(tenant)
    const beat = { job_id, attempt: 1, progress: 0.5, note: "half" }
    expect(yield* status(tenant, "jobs/heartbeat", beat)).toBe(200)
    expect(yield* get(tenant, job_id)).toMatchObject({ progress: 0.5, note: "half" })
    expect(yield* status(tenant, "jobs/cancel", { job_id })).toBe(200)
    expect(yield* status(tenant, "jobs/cancel", { job_id })).toBe(200)
    for (const path of ["jobs/heartbeat", "jobs/complete"]) {
      expect(yield* status(tenant, path, { job_id, attempt: 1 }), path).toBe(409)
    }
    expect(yield* status(tenant, "jobs/fail", { job_id, error: "x" })).toBe(409)
    expect(yield* get(tenant, job_id)).toMatchObject({ status: "canceled", result: null })
    expect(yield* events(tenant, job_id)).toHaveLength(0)
    const { jobs } = yield* tenant.call("jobs/list", { status: "canceled" })
    expect(jobs).toHaveLength(1)
    const done = yield* make(tenant)
    yield* tenant.call("jobs/complete", { job_id: done })
    expect(yield* status(tenant, "jobs/cancel", { job_id: done })).toBe(409)
  })

  it.effect("a field out of range is refused by its name", function* () {
    const tenant = yield* makeTenant()
    const job_id = yield* make(tenant)
    const inTwoYears = new Date(Date.now() + 2 * 366 * 86_400_000).toISOString()
    for (const [path, fields, name] of [
      ["jobs/create", { workflow: "w", priority: 101 }, "priority"],
      ["jobs/create", { workflow: "w", priority: 0.5 }, "priority"],
      ["jobs/create", { workflow: "w", max_attempts: 0 }, "max_attempts"],
      ["jobs/create", { workflow: "w", max_attempts: 21 }, "max_attempts"],
      ["jobs/create", { workflow: "w", retry_delay_seconds: 0 }, "retry_delay_seconds"],
      ["jobs/create", { workflow: "w", retry_delay_seconds: 86_401 }, "retry_delay_seconds"],
      ["jobs/create", { workflow: "w", run_at: "tomorrow" }, "run_at"],
      ["jobs/create", { workflow: "w", run_at: inTwoYears }, "run_at"],
      ["jobs/create", { workflow: "w", run_at: null }, "run_at"],
      ["jobs/claim", { workflows: [] }, "workflows"],
      ["jobs/claim", { workflows: Array.from({ length: 21 }, String) }, "workflows"],
      ["jobs/claim", { workflow: "w", workflows: ["w"] }, "workflow and workflows"],
      ["jobs/heartbeat", { job_id, progress: 1.01 }, "progress"],
      ["jobs/heartbeat", { job_id, note: "x".repeat(1001) }, "note"],
      ["jobs/heartbeat", { job_id, attempt: 0 }, "attempt"],
      ["jobs/complete", { job_id, attempt: "1" }, "attempt"],
      ["jobs/fail", { job_id, error: "x", retry: null }, "retry"],
    ] as const) {
      const answer = yield* tenant.ask(path, fields)
      expect([answer.status, answer.text.includes(`"${name} `)], `${path} ${answer.text}`).toEqual([400, true])
    }
  })
})
