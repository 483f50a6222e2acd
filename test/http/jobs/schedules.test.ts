import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { ClaimedJob, Job } from "#src/domain/jobs/Job.ts"
import type { JobSchedule, JobScheduleDetail } from "#src/domain/jobs/JobSchedule.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { keysOf } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

const fields =
  "active,callback_url,concurrency_key,created_at,cron,deployment_id,expires_in_seconds,input,max_attempts,next_at,overlap,priority,retry_delay_seconds," +
  "schedule_id,skip_callbacks,timezone,workflow"

const list = (tenant: Tenant) =>
  Effect.map(
    tenant.call("schedules/list"),
    (answer) => answer["schedules"] as unknown as ReadonlyArray<typeof JobSchedule.Encoded>,
  )
const create = (tenant: Tenant, json: object) =>
  Effect.map(tenant.call("schedules/create", { workflow: "w", ...json }), ({ schedule_id }) => schedule_id!)
/** Waits for the scheduler, which runs every second. */
const ran = (tenant: Tenant) =>
  Effect.map(
    tenant.call("jobs/claim", { limit: 100, wait_seconds: 10 }),
    (answer) => answer["jobs"] as unknown as ReadonlyArray<typeof ClaimedJob.Encoded>,
  )

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("schedules", (it) => {
  it.effect("are created, listed oldest first, and deleted, with exactly the documented fields", function* () {
    const tenant = yield* makeTenant()
    const callback = { callback_url: "https://receiver.example/", callback_secret: "never-in-an-answer" }
    const made = yield* tenant.ask("schedules/create", {
      workflow: "nightly",
      cron: "30 4 * * 1-5",
      timezone: "Europe/Berlin",
      input: { rows: [1] },
      deployment_id: "d1",
      skip_callbacks: true,
      ...callback,
    })
    expect([made.status, String(keysOf(made.json))]).toEqual([200, "message,schedule_id,success"])
    const { schedule_id: id } = made.json as { schedule_id: string }
    const seconds = yield* create(tenant, { cron: "0 0 4 * * *" })
    const [one, two, ...more] = yield* list(tenant)
    expect(String(keysOf(one))).toBe(fields)
    expect(one).toMatchObject({
      schedule_id: id,
      workflow: "nightly",
      cron: "30 4 * * 1-5",
      timezone: "Europe/Berlin",
      input: { rows: [1] },
      deployment_id: "d1",
      callback_url: callback.callback_url,
      skip_callbacks: true,
    })
    const empty = { timezone: "UTC", input: null, deployment_id: null, callback_url: null, skip_callbacks: false }
    expect(two).toMatchObject({ schedule_id: seconds, cron: "0 0 4 * * *", ...empty })
    expect(more).toEqual([])
    expect((yield* tenant.ask("schedules/list")).text).not.toMatch(/secret|never-in/)
    // The next run, in the schedule's own zone.
    const berlin = new Date(one!.next_at!).toLocaleTimeString("en-GB", { timeZone: "Europe/Berlin" })
    expect([berlin, two!.next_at!.slice(11)]).toEqual(["04:30:00", "04:00:00.000Z"])
    for (const { next_at, created_at } of [one!, two!]) expect(next_at! > created_at).toBe(true)

    const deleted = yield* tenant.ask("schedules/delete", { schedule_id: id })
    expect([deleted.status, String(keysOf(deleted.json))]).toEqual([200, "message,success"])
    expect((yield* tenant.ask("schedules/delete", { schedule_id: id })).status).toBe(404)
    expect((yield* list(tenant)).map(({ schedule_id }) => schedule_id)).toEqual([seconds])
  })

  it.effect(
    "each run creates one job with its callback; missed runs create one together, and a deleted schedule none",
    function* () {
      const { advance } = yield* TestServer
      const [tenant, other] = [yield* makeTenant(), yield* makeTenant()]
      const receiver = yield* makeReceiver()
      const secret = "a secret of the schedule"
      const callback = { callback_url: receiver.url, callback_secret: secret }
      const id = yield* create(tenant, { cron: "0 4 * * *", input: [1], deployment_id: "d1", ...callback })
      const gone = yield* create(tenant, { workflow: "gone", cron: "* * * * *" })
      yield* create(other, { workflow: "skipped", cron: "0 4 * * *", skip_callbacks: true })
      yield* tenant.call("schedules/delete", { schedule_id: gone })
      const [before] = yield* list(tenant)

      // Four runs are missed.
      yield* advance("4 days")
      const jobs = yield* ran(tenant)
      expect(jobs).toMatchObject([{ workflow: "w", input: [1], deployment_id: "d1", attempt: 1 }])
      const [after] = yield* list(tenant)
      expect(after!.schedule_id).toBe(id)
      expect(Date.parse(after!.next_at!) - Date.parse(before!.next_at!)).toBe(4 * 24 * 3_600_000)

      const [{ job_id } = { job_id: "" }] = jobs
      yield* tenant.call("jobs/complete", { job_id, result: "done" })
      yield* receiver.arrived(1)
      const [{ headers, body }] = receiver.received as [(typeof receiver.received)[0]]
      const tolerance = { toleranceSeconds: Number.POSITIVE_INFINITY }
      const { event } = yield* Effect.promise(() => verifyWebhook({ headers, body }, secret, tolerance))
      expect(event).toMatchObject({ job_id, deployment_id: "d1", result: "done" })

      const [skipped] = yield* ran(other)
      yield* other.call("jobs/complete", { job_id: skipped!.job_id })
      expect(yield* other.deliveries({})).toEqual([])
      const { jobs: all } = yield* tenant.call("jobs/list", {})
      expect((all as unknown as ReadonlyArray<typeof Job.Encoded>).map((job) => job.job_id)).toEqual([job_id])
    },
  )

  it.effect("are read with their next runs and last job, changed, paused, and run at once", function* () {
    const tenant = yield* makeTenant()
    const id = yield* create(tenant, { cron: "0 4 * * *", overlap: "skip", priority: 5 })
    const get = Effect.map(
      tenant.call("schedules/get", { schedule_id: id }),
      (answer) => answer as unknown as typeof JobScheduleDetail.Encoded,
    )
    const made = yield* get
    expect(made).toMatchObject({ overlap: "skip", active: true, priority: 5, last_job: null })
    expect(made.next_times).toHaveLength(5)
    expect(made.next_times[0]).toBe(made.next_at)
    expect(made.next_times.every((time) => time.endsWith("T04:00:00.000Z"))).toBe(true)

    const { job_id } = yield* tenant.call("schedules/run", { schedule_id: id })
    const job = yield* tenant.call("jobs/get", { job_id: job_id! })
    expect(job).toMatchObject({ workflow: "w", priority: 5, status: "queued" })
    expect((yield* get).last_job).toMatchObject({ job_id, status: "queued", finished_at: null })
    expect((yield* tenant.ask("schedules/run", { schedule_id: id })).status).toBe(409)

    yield* tenant.call("schedules/update", { schedule_id: id, active: false, overlap: "allow", cron: "30 5 * * *" })
    expect(yield* get).toMatchObject({ active: false, next_at: null, next_times: [], cron: "30 5 * * *" })
    expect((yield* tenant.ask("schedules/run", { schedule_id: id })).status).toBe(200)
    yield* tenant.call("schedules/update", { schedule_id: id, active: true, timezone: "Europe/Berlin" })
    const resumed = yield* get
    const berlin = new Date(resumed.next_at!).toLocaleTimeString("en-GB", { timeZone: "Europe/Berlin" })
    expect([resumed.active, berlin]).toEqual([true, "05:30:00"])
    for (const [fields, status] of [
      [{}, 400],
      [{ unknown: 1 }, 400],
      [{ cron: "nonsense" }, 400],
      [{ timezone: "Mars/Base" }, 400],
      [{ timezone: null }, 400],
      [{ overlap: "maybe" }, 400],
      [{ active: null }, 400],
      [{ callback_url: "ftp://example.com" }, 400],
    ] as const) {
      const answer = yield* tenant.ask("schedules/update", { schedule_id: id, ...fields })
      expect(answer.status, answer.text).toBe(status)
    }
    expect(yield* get).toEqual({ ...resumed, last_job: expect.anything() as object })
  })
})
