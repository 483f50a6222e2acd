import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { makeTenant } from "../tenants.ts"
import { claim, events, get, make } from "./jobCalls.ts"

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("workflows", (it) => {
  it.effect("settings that break a rule are a 400 that names the field, and unknown workflows a 404", function* () {
    const tenant = yield* makeTenant()
    for (const [settings, fault] of [
      [{}, "at least one of concurrency"],
      [{ concurrency: 0 }, "concurrency"],
      [{ concurrency: 1_001 }, "concurrency"],
      [{ concurrency_per_key: 0 }, "concurrency_per_key"],
      [{ concurrency_per_key: 1.5 }, "concurrency_per_key"],
      [{ rate: { limit: 0, window_seconds: 1 } }, "rate.limit"],
      [{ rate: { limit: 1, window_seconds: 86_401 } }, "rate.window_seconds"],
      [{ rate: { limit: 1 } }, "rate.window_seconds"],
      [{ retry: { attempts: 0 } }, "retry.attempts"],
      [{ retry: { attempts: 21 } }, "retry.attempts"],
      [{ retry: { attempts: 2, delays: [] } }, "retry.delays"],
      [{ retry: { attempts: 2, delays: [0] } }, "retry.delays"],
      [{ retry: { attempts: 2, delays: [1], base_seconds: 1 } }, "attempts with delays, or with base_seconds"],
      [{ retry: { attempts: 2, max_seconds: 1 } }, "attempts with delays, or with base_seconds"],
      [{ expires_in_seconds: 0 }, "expires_in_seconds"],
      [{ concurency: 1 }, "concurency is not a field of this operation (did you mean concurrency?)"],
    ] as const) {
      const refused = yield* tenant.ask("workflows/set", { workflow: "w", ...settings })
      expect([refused.status, refused.text], JSON.stringify(settings)).toEqual([400, expect.stringContaining(fault)])
    }
    expect((yield* tenant.ask("workflows/set", { workflow: "", concurrency: 1 })).status).toBe(400)
    expect(yield* tenant.call("workflows/list", {})).toEqual({ workflows: [] })
    for (const operation of ["workflows/get", "workflows/delete"]) {
      expect((yield* tenant.ask(operation, { workflow: "w" })).status).toBe(404)
    }
    const key = { workflow: "w", concurrency_key: "k".repeat(201) }
    for (const job of [key, { ...key, concurrency_key: "" }, { workflow: "w", expires_in_seconds: 0 }]) {
      expect((yield* tenant.ask("jobs/create", job)).status).toBe(400)
      const batch = yield* tenant.ask("jobs/create-batch", { jobs: [{ workflow: "w" }, job] })
      expect([batch.status, batch.text]).toEqual([400, expect.stringMatching(/jobs\.1\.(concurrency_key|expires_in)/)])
    }
    expect(yield* claim(tenant, {})).toEqual([])
  })

  it.effect("are set, shown, listed and deleted", function* () {
    const tenant = yield* makeTenant()
    const settings = {
      concurrency: 20,
      concurrency_per_key: 1,
      rate: { limit: 100, window_seconds: 60 },
      retry: { attempts: 5, base_seconds: 10, max_seconds: 60 },
      expires_in_seconds: 3600,
    }
    yield* tenant.call("workflows/set", { workflow: "mail", ...settings })
    const shown = yield* tenant.call("workflows/get", { workflow: "mail" })
    expect(shown).toMatchObject({ workflow: "mail", ...settings })
    expect(yield* tenant.call("workflows/list", {})).toEqual({ workflows: [shown] })
    yield* tenant.call("workflows/set", { workflow: "mail", concurrency: 2 })
    expect(yield* tenant.call("workflows/get", { workflow: "mail" })).toMatchObject({
      concurrency: 2,
      concurrency_per_key: null,
      rate: null,
      retry: null,
      expires_in_seconds: null,
    })
    yield* tenant.call("workflows/delete", { workflow: "mail" })
    expect(yield* tenant.call("workflows/list", {})).toEqual({ workflows: [] })
  })

  it.effect("a claim that waits gets a job as soon as one of its key has ended", function* () {
    const tenant = yield* makeTenant()
    yield* tenant.call("workflows/set", { workflow: "mail", concurrency_per_key: 1 })
    const mail = { workflow: "mail", concurrency_key: "ada" }
    const ids = [yield* make(tenant, mail), yield* make(tenant, mail)]
    expect(yield* claim(tenant, { workflow: "mail", limit: 9 })).toMatchObject([{ job_id: ids[0] }])
    expect(yield* claim(tenant, { workflow: "mail" })).toEqual([])
    const waiting = yield* Effect.forkChild(claim(tenant, { workflow: "mail", wait_seconds: 30 }))
    yield* tenant.call("jobs/complete", { job_id: ids[0] })
    expect(yield* Fiber.join(waiting)).toMatchObject([{ job_id: ids[1] }])
    expect(yield* get(tenant, ids[1]!)).toMatchObject({ status: "running", concurrency_key: "ada" })
  })

  it.effect("a schedule hands its concurrency key and its expiry on to its jobs", function* () {
    const tenant = yield* makeTenant()
    const fields = { workflow: "mail", cron: "0 4 * * *", concurrency_key: "ada", expires_in_seconds: 60 }
    const { schedule_id } = yield* tenant.call("schedules/create", fields)
    const { job_id } = yield* tenant.call("schedules/run", { schedule_id })
    const job = yield* get(tenant, job_id!)
    expect(job).toMatchObject({ concurrency_key: "ada" })
    expect(Date.parse(job.expires_at!) - Date.parse(job.created_at)).toBe(60_000)
    yield* tenant.call("schedules/update", { schedule_id, concurrency_key: null, expires_in_seconds: null })
    const { job_id: next } = yield* tenant.call("schedules/run", { schedule_id })
    expect(yield* get(tenant, next!)).toMatchObject({ concurrency_key: null, expires_at: null })
  })

  it.effect("a job that nobody claims in time fails, with its event", function* () {
    const tenant = yield* makeTenant()
    const id = yield* make(tenant, { workflow: "mail", expires_in_seconds: 1 })
    yield* Effect.repeat(Effect.delay(get(tenant, id), "100 millis"), { until: (job) => job.status === "failed" })
    expect(yield* get(tenant, id)).toMatchObject({ error: "expired: no worker claimed the job in time", attempt: 0 })
    expect(yield* events(tenant, id)).toHaveLength(1)
  })
})
