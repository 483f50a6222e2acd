import { expect } from "@effect/vitest"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { claim, events, get, make } from "./jobCalls.ts"
import { makeTenant } from "../tenants.ts"

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("batches of jobs", (it) => {
  it.effect(
    "a thousand jobs are created by one request, and one that breaks a rule refuses all and is named",
    function* () {
      const tenant = yield* makeTenant()
      const create = (jobs: ReadonlyArray<unknown>) => tenant.ask("jobs/create-batch", { jobs })
      const some = Array.from({ length: 1_000 }, (_, n) => ({ workflow: "resize", input: { picture: n } }))
      for (const [job, fault] of [
        [{ workflow: "" }, "jobs.7.workflow"],
        [{ workflow: "resize", max_attempts: 0 }, "jobs.7.max_attempts"],
        [{ workflow: "resize", run_at: "2200-01-01T00:00:00Z" }, "jobs.7.run_at must be at most a year ahead."],
        [{ workflow: "resize", callback_url: "nowhere", callback_secret: "s3cret" }, "jobs.7.callback_url"],
        [{ workflow: "resize", unique: { key: "one" } }, "jobs.7.unique is not for a batch"],
        [{ workflow: "resize", debounce_seconds: 5 }, "jobs.7.debounce_seconds is not for a batch"],
        [{ workflow: "resize", prioritty: 1 }, "jobs.7.prioritty"],
      ] as const) {
        const refused = yield* create([...some.slice(0, 7), job, ...some.slice(0, 7)])
        expect([refused.status, refused.text]).toEqual([400, expect.stringContaining(fault)])
      }
      for (const jobs of [[], [...some, some[0]]]) expect((yield* create(jobs)).status).toBe(400)
      expect((yield* tenant.call("jobs/list", {})).jobs).toEqual([])
      const { job_ids } = (yield* tenant.call("jobs/create-batch", { jobs: some })) as unknown as {
        job_ids: Array<string>
      }
      expect(new Set(job_ids).size).toBe(1_000)
      expect(yield* get(tenant, job_ids[999]!)).toMatchObject({ status: "queued", input: { picture: 999 } })
      expect(yield* claim(tenant, { limit: 3 })).toMatchObject(job_ids.slice(0, 3).map((job_id) => ({ job_id })))
    },
  )

  it.effect("jobs are completed together, each with its own outcome", function* () {
    const tenant = yield* makeTenant()
    const [one, two, lost] = [yield* make(tenant), yield* make(tenant), yield* make(tenant)]
    yield* claim(tenant, { limit: 3 })
    const jobs = [
      { job_id: one, attempt: 1, result: { rows: 3 } },
      { job_id: two },
      { job_id: lost, attempt: 2 },
      { job_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T" },
    ]
    const answer = yield* tenant.call("jobs/complete-batch", { jobs })
    expect(answer).toEqual({
      success: true,
      message: "2 of 4 jobs are completed.",
      jobs: [
        { job_id: one, success: true, message: "The job is completed." },
        { job_id: two, success: true, message: "The job is completed." },
        { job_id: lost, success: false, message: expect.stringContaining("Attempt 2"), code: "conflict" },
        { job_id: jobs[3]!.job_id, success: false, message: "There is no such job.", code: "not_found" },
      ],
    })
    expect(yield* get(tenant, one)).toMatchObject({ status: "completed", result: { rows: 3 } })
    expect(yield* get(tenant, lost)).toMatchObject({ status: "running" })
    expect(yield* events(tenant, one)).toHaveLength(1)
    const bad = yield* tenant.ask("jobs/complete-batch", { jobs: [jobs[0], { job_id: "" }] })
    expect([bad.status, bad.text]).toEqual([400, expect.stringContaining("jobs.1.job_id")])
  })
})
