import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { parseJson } from "#src/domain/exactJson.ts"
import { makeTenant } from "../http/tenants.ts"
import { adminToken } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, inTab, signedInTab, withConsoles } from "./support.ts"
import { expectShownAsText, hostile, webhookWorld } from "./webhookWorld.ts"

withConsoles("jobs and schedules", consoles, (it) => {
  it.effect(
    "a job is created, claimed, reported on and delivered, all on one page that changes by itself",
    function* () {
      const world = yield* webhookWorld
      yield* world.endpoint()
      const { page } = yield* signedInTab(world.path("/jobs"))
      yield* Effect.promise(async () => {
        await page.getByRole("heading", { name: "No job yet" }).waitFor()
        await expectAccessible(page)
        await page.getByRole("button", { name: "Create job" }).first().click()
        const dialog = page.getByRole("dialog")
        await dialog.getByLabel("Workflow").fill("nightly-report")
        await dialog.getByLabel("Input").fill("{ no json")
        await dialog.getByText("Not valid JSON").waitFor()
        await dialog.getByLabel("Input").fill('{"shop":"northwind"}')
        await dialog.getByRole("button", { name: "Create job" }).click()
        await page.getByText("Waits for a worker").waitFor()
        await page.getByText('"shop": "northwind"').waitFor()
        await page.locator(".sidebar-foot .badge:visible", { hasText: "Live" }).waitFor()
      })
      const { jobs } = yield* world.call("jobs/claim", { workflow: "nightly-report" })
      const [{ job_id }] = jobs as unknown as [{ readonly job_id: string }]
      yield* Effect.promise(() => page.getByText("Runs: attempt 1 of 3").waitFor())
      yield* world.call("jobs/heartbeat", { job_id, progress: 0.5, note: "Row 400" })
      yield* world.call("jobs/complete", { job_id, result: { rows: 3 } })
      yield* Effect.promise(async () => {
        await page.getByText("Claimed 1 time").waitFor()
        await page.getByRole("list", { name: "Timeline of the job" }).getByText("Delivered").waitFor()
        await page.getByText('"rows": 3').waitFor()
        await expectAccessible(page)
        await expectFits(page)
        await page.getByRole("link", { name: /^To 127/ }).click()
        await page.getByRole("heading", { level: 1, name: "job.completed" }).waitFor()
      })
    },
  )

  it.effect("a queued job is canceled after a question", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const { job_id } = yield* call("jobs/create", { workflow: "w" })
    yield* inTab(`/orgs/${orgId}/jobs?status=queued`, async (page) => {
      await page.getByRole("table", { name: "Jobs" }).getByRole("link", { name: "w", exact: true }).click()
      await page.getByRole("button", { name: "Cancel job" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click()
      await page.getByText("No event: the job was canceled").waitFor()
      await expect.poll(() => page.getByRole("button", { name: "Cancel job" }).count()).toBe(0)
      await page.getByRole("button", { name: "Retry" }).press("Enter")
      await page.waitForURL((url) => !url.pathname.endsWith(String(job_id)))
      await page.getByText("Waits for a worker").waitFor()
    })
    expect(yield* call("jobs/get", { job_id })).toMatchObject({ status: "canceled" })
  })

  it.effect(
    "a job that runs shows its failed attempts, its lines, its steps and its progress as they come",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      const { job_id } = yield* call("jobs/create", { workflow: "import", retry_delay_seconds: 1 })
      const claim = until(
        "the claim",
        call("jobs/claim", { workflow: "import" }),
        ({ jobs }) => (jobs as unknown as ReadonlyArray<unknown>).length === 1,
      )
      yield* claim
      yield* call("jobs/heartbeat", { job_id, note: "Row 7" })
      yield* call("jobs/fail", { job_id, attempt: 1, error: "row 8 has no date", retry: true })
      yield* claim
      const log = (text: string, level = "info") => call("jobs/log", { job_id, attempt: 2, lines: [{ text, level }] })
      yield* log("begins again")
      const { page } = yield* signedInTab(`/orgs/${orgId}/jobs/${job_id}`)
      yield* Effect.promise(async () => {
        const life = page.getByRole("list", { name: "Timeline of the job" })
        await life.getByText("Attempt 1 failed").waitFor()
        await life.getByText("row 8 has no date").waitFor()
        await life.getByText("Its last note: Row 7").waitFor()
        await life.getByText("Runs: attempt 2 of 3").waitFor()
        await page.getByRole("log").getByText("begins again").waitFor()
      })
      yield* log(hostile, "warn")
      yield* call("jobs/step", { job_id, attempt: 2, name: "charge-card", result: { amount: 12 } })
      yield* call("jobs/heartbeat", { job_id, attempt: 2, progress: 0.4, note: "Row 400" })
      yield* Effect.promise(async () => {
        await page.getByRole("log").getByText(`warn ${hostile}`).waitFor()
        await page.locator("summary", { hasText: "charge-card" }).click()
        await page.getByText('"amount": 12').waitFor()
        await page.getByText("Row 400").waitFor()
        await expect.poll(() => page.getByLabel("Progress").getAttribute("value")).toBe("0.4")
        await expectShownAsText(page, hostile)
        await expectAccessible(page)
        await expectFits(page)
      })
    },
  )

  it.effect(
    "failed jobs are grouped by workflow and message, and retried after a count, one with another input",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      const fail = Effect.fnUntraced(function* (workflow: string, error: string) {
        const { job_id } = yield* call("jobs/create", { workflow, input: { shop: "northwind" } })
        yield* call("jobs/fail", { job_id, error })
        return String(job_id)
      })
      for (let n = 0; n < 3; n++) yield* fail("scan", "connect ECONNREFUSED")
      yield* fail("scan", "out of memory")
      const mail = yield* fail("mail", "connect ECONNREFUSED")
      const { page, at } = yield* signedInTab(`/orgs/${orgId}/jobs`)
      yield* Effect.promise(async () => {
        const causes = page.getByRole("region", { name: "Which jobs fail, and why" }).getByRole("listitem")
        await expect.poll(() => causes.count()).toBe(3)
        await expect.poll(() => causes.first().innerText()).toMatch(/connect ECONNREFUSED\s+× 3\s+scan/)
        await expectAccessible(page)
        await expectFits(page)
        // At 360 pixels, a cause is whole.
        await page.setViewportSize({ width: 360, height: 800 })
        const cut = (one: { scrollWidth: number; clientWidth: number }) => one.scrollWidth - one.clientWidth
        const texts = causes.nth(1).locator(":scope > *")
        for (const text of await texts.all()) await expect.poll(() => text.evaluate(cut)).toBe(0)
        await page.setViewportSize({ width: 1280, height: 900 })
        await causes.first().getByRole("link", { name: "connect ECONNREFUSED" }).click()
        const address = `/orgs/${orgId}/jobs?status=failed&workflow=scan&error=connect+ECONNREFUSED`
        await page.waitForURL(at(address))
        const rows = page.getByRole("table", { name: "Jobs" }).locator("tbody tr a.main")
        await expect.poll(() => rows.count()).toBe(3)
        await page.getByRole("button", { name: "Retry all that failed…" }).click()
        await page.getByText("3 jobs will be retried.").waitFor()
        await expectAccessible(page)
        await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click()
        await page.getByText("3 jobs are retried.").waitFor()
        await page.getByRole("heading", { name: "No job matches" }).waitFor()
        await page.getByRole("button", { name: "Clear filters" }).click()
        await page.getByLabel("State").selectOption("Queued")
        await expect.poll(() => rows.count()).toBe(3)
        await page.getByRole("button", { name: "Cancel all that match…" }).click()
        await page.getByText("3 jobs will be canceled.").waitFor()
        await page.getByRole("dialog").getByRole("button", { name: "Cancel jobs" }).click()
        await page.getByText("3 jobs are canceled.").waitFor()
        await page.getByRole("heading", { name: "No job matches" }).waitFor()
        await page.goto(at(`/orgs/${orgId}/jobs/${mail}`))
        await page.getByRole("button", { name: "Retry with another input…" }).click()
        await page.getByRole("dialog").getByLabel("Input").fill('{"shop":"southwind"')
        await page.getByText("Not valid JSON").waitFor()
        await page.getByRole("dialog").getByLabel("Input").fill('{"shop":"southwind"}')
        await expectAccessible(page)
        await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click()
        await page.getByText("Waits for a worker").waitFor()
        await page.getByText('"shop": "southwind"').waitFor()
      })
      expect(yield* call("jobs/get", { job_id: mail })).toMatchObject({
        status: "queued",
        input: { shop: "southwind" },
      })
      yield* Effect.promise(async () => {
        await page.goto(at(`/orgs/${orgId}/audit?about=schedules`))
        const told = `retried the job …${mail.slice(-8)}, with another input.`
        await page.getByRole("row").filter({ hasText: told }).waitFor()
      })
    },
  )

  it.effect("numbers are shown and sent as they were given", function* () {
    const { ask, call, orgId } = yield* makeTenant(adminToken)
    const text = '{"id":9007199254740993,"in":[1.0,-0,1e-400]}'
    const { job_id } = yield* call("jobs/create", { workflow: "w", input: parseJson(text) })
    yield* call("jobs/fail", { job_id, error: "no", mapped_stack: [{ file: "a.ts", line: parseJson("7.0") }] })
    const { page } = yield* signedInTab(`/orgs/${orgId}/jobs/${job_id}`)
    yield* Effect.promise(async () => {
      const input = page.getByRole("region", { name: "Input" })
      await input.getByText('"id": 9007199254740993').waitFor()
      await page.getByText("at ? (a.ts:7.0)").waitFor()
      await page.getByRole("button", { name: "Retry with another input…" }).click()
      const field = page.getByRole("dialog").getByLabel("Input")
      const written = await field.inputValue()
      expect(written.replace(/\s/g, "")).toBe(text)
      await field.fill(written.replace("993", "995"))
      await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click()
      await input.getByText('"id": 9007199254740995').waitFor()
      await input.getByText("1e-400").waitFor()
    })
    expect((yield* ask("jobs/get", { job_id })).text).toContain(`"input":${text.replace("993", "995")}`)
  })

  it.effect("an error keeps the lines of its stack", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const { job_id } = yield* call("jobs/create", { workflow: "report", max_attempts: 1 })
    yield* call("jobs/claim", { workflow: "report" })
    yield* call("jobs/fail", { job_id, error: "TypeError: no total\n    at sum (report.ts:7)" })
    yield* inTab(`/orgs/${orgId}/jobs/${job_id}`, async (page) => {
      const error = page.getByRole("list", { name: "Timeline of the job" }).getByText("TypeError: no total")
      await expect.poll(() => error.innerText()).toBe("TypeError: no total\n    at sum (report.ts:7)")
    })
  })

  it.effect("running retries and cancellations show how far they are, and their rest can be canceled", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    const sweep = { filter: {}, created_at: new Date().toISOString() }
    const sweeps = [
      { ...sweep, sweep_id: orgId, kind: "retry", count: 511, done: 120 },
      { ...sweep, sweep_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T", kind: "cancel", count: 10_000, done: 2_000 },
    ]
    yield* inTab("/orgs", async (page, at) => {
      const asked: Array<string> = []
      await page.route("**/jobs/sweeps", (route) => route.fulfill({ json: { sweeps } }))
      await page.route("**/jobs/sweeps/cancel", (route) => {
        asked.push(route.request().postData() ?? "")
        return route.fulfill({
          json: { success: true, message: "The change is stopped. Jobs that it has not reached stay as they are." },
        })
      })
      await page.goto(at(`/orgs/${orgId}/jobs`))
      await page.getByText("Retrying jobs: 120 of 511").waitFor()
      const canceling = page.getByRole("group", { name: "Canceling jobs" })
      await canceling.getByText("Canceling jobs: 2,000 of at least 10,000").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await canceling.getByRole("button", { name: "Cancel the rest" }).click()
      await page.getByRole("status").getByText("Stopped. Jobs that it has not reached stay as they are.").waitFor()
      expect(asked).toEqual([JSON.stringify({ sweep_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T" })])
    })
  })

  it.effect(
    "a queue that grows shows what waits by workflow and key, since when, and what comes in and goes out",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      const create = (fields: object) => call("jobs/create", fields)
      for (const concurrency_key of ["ada", "ada", "ben"]) yield* create({ workflow: "mail", concurrency_key })
      yield* create({ workflow: "mail", run_at: new Date(Date.now() + 3_600_000).toISOString() })
      const { job_id } = yield* create({ workflow: "report" })
      yield* call("jobs/complete", { job_id })
      yield* inTab(`/orgs/${orgId}/jobs`, async (page) => {
        const figure = (label: string) => page.locator(".stat", { hasText: label }).innerText()
        await expect.poll(() => figure("Created")).toMatch(/Created\s+5\s+last 5 minutes/)
        await expect.poll(() => figure("Longest wait")).toMatch(/Longest wait\s+[\d.]+ m?s\s+of a job that is due/)
        await expect.poll(() => figure("Finished")).toMatch(/Finished\s+1\s/)
        const rows = (name: string) => page.getByRole("table", { name }).getByRole("row").allInnerTexts()
        await expect.poll(async () => (await rows("Workflows"))[1]).toMatch(/mail\s+3, 1 later\s+0\s/)
        const keys = (await rows("Concurrency keys")).slice(1).map((row) => row.replaceAll(/\s+/g, " "))
        expect(keys).toEqual(["ada mail 2 0", "ben mail 1 0"])
        await expectAccessible(page)
        await expectFits(page)
        // A list of what has ended has nothing that waits.
        await page.getByLabel("State").selectOption("failed")
        await page.locator(".stat").first().waitFor({ state: "detached" })
      })
    },
  )

  it.effect(
    "a workflow is limited where its jobs are, shows how many run of how many, and is free again",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      for (let n = 0; n < 3; n++) yield* call("jobs/create", { workflow: "mail", concurrency_key: "ada" })
      const { page, at } = yield* signedInTab(`/orgs/${orgId}/jobs`)
      const dialog = page.getByRole("dialog")
      yield* Effect.promise(async () => {
        await page.getByRole("button", { name: "Limit a workflow…" }).click()
        await dialog.getByText("Set at least one limit.").waitFor()
        await dialog.getByLabel("Workflow").fill("mail")
        await dialog.getByLabel("Jobs at once").fill("2")
        await dialog.getByLabel("Starts").fill("100")
        await dialog.getByLabel("Attempts").fill("5")
        await dialog.getByLabel("Waits before retries").fill("5, 90000")
        await expectAccessible(page)
        await dialog.getByRole("button", { name: "Set limits" }).click()
        await dialog.getByRole("alert").getByText("The second delay of the retry must").waitFor()
        await dialog.getByLabel("Waits before retries").fill("5, 60")
        await dialog.getByLabel("Expiry").fill("3600")
        await dialog.getByRole("button", { name: "Set limits" }).click()
        const row = page.getByRole("table", { name: "Workflows" }).getByRole("row").nth(1)
        await expect
          .poll(() => row.innerText())
          .toMatch(/mail\s+3\s+0 of 2\s+–\s+100 starts per 1 min\s+5 attempts, after/)
        await expectAccessible(page)
        await expectFits(page)
        await row.getByRole("link", { name: "mail" }).click()
        await page.waitForURL(at(`/orgs/${orgId}/jobs?workflow=mail`))
      })
      const claimed = yield* call("jobs/claim", { workflow: "mail", limit: 3 })
      expect(claimed["jobs"]).toHaveLength(2)
      expect(yield* call("workflows/get", { workflow: "mail" })).toMatchObject({
        concurrency: 2,
        concurrency_per_key: null,
        rate: { limit: 100, window_seconds: 60 },
        retry: { attempts: 5, delays: [5, 60] },
        expires_in_seconds: 3600,
      })
      yield* Effect.promise(async () => {
        await page.getByRole("table", { name: "Workflows" }).getByText("2 of 2").waitFor()
        await page.getByRole("button", { name: "Set limits…" }).click()
        await expect.poll(() => dialog.getByLabel("Waits before retries").inputValue()).toBe("5, 60")
        await dialog.getByRole("button", { name: "Cancel" }).click()
        await page.getByRole("button", { name: "Delete the limits" }).click()
        await dialog.getByRole("button", { name: "Delete limits" }).click()
        await page.getByRole("button", { name: "Delete the limits" }).waitFor({ state: "detached" })
      })
      expect(yield* call("workflows/list")).toMatchObject({ workflows: [] })
    },
  )

  it.effect("an edit of a schedule leaves what somebody else has changed meanwhile", function* () {
    const world = yield* webhookWorld
    const { schedule_id } = yield* world.call("schedules/create", { workflow: "w", cron: "0 4 * * *" })
    yield* inTab(world.path(`/schedules/${schedule_id}`), async (page) => {
      await page.getByRole("button", { name: "Edit" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Skip a time while").check()
      await page.route("**/v1/schedules/update", async (route) => {
        expect(route.request().postDataJSON()).toEqual({ schedule_id, overlap: "skip" })
        await route.continue()
      })
      await dialog.getByRole("button", { name: "Save" }).click()
      await dialog.waitFor({ state: "detached" })
    })
  })

  it.effect("a schedule is created, run now, paused, resumed, edited and deleted", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const schedule = Effect.map(
      call("schedules/list"),
      ({ schedules }) => (schedules as unknown as ReadonlyArray<Record<string, unknown>>)[0],
    )
    const { page } = yield* signedInTab(`/orgs/${orgId}/schedules`)
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Create schedule" }).first().click()
      const dialog = page.getByRole("dialog")
      await expectAccessible(page)
      await dialog.getByLabel("Workflow").fill("nightly-report")
      await dialog.getByRole("button", { name: "Every night at 4" }).click()
      await dialog.getByLabel("Time zone").fill("Europe/Berlin")
      await dialog.getByRole("button", { name: "Create schedule" }).click()
      await page.getByRole("heading", { name: "Next times" }).waitFor()
      await expect.poll(() => page.locator(".times li").count()).toBe(5)
      // The second of daily times is one to two days away.
      await expect.poll(() => page.locator(".times li").nth(1).textContent()).toContain("in 1 day")
      await expectAccessible(page)
      await expectFits(page)
      await page.getByRole("button", { name: "Pause" }).click()
      await page.getByRole("heading", { name: "Paused" }).waitFor()
      await page.getByRole("button", { name: "Resume" }).click()
      await page.locator(".times li").first().waitFor()
      await page.getByRole("button", { name: "Edit" }).click()
      await page.getByRole("dialog").getByLabel("Times", { exact: true }).fill("30 25 * * *")
      await page.getByRole("button", { name: "Save" }).click()
      await page.getByRole("dialog").getByRole("alert").waitFor()
      await page.getByRole("dialog").getByLabel("Times", { exact: true }).fill("30 5 * * *")
      await page.getByRole("button", { name: "Save" }).click()
      await page.getByText("30 5 * * *").waitFor()
      await page.getByRole("link", { name: "Schedules" }).first().click()
      await page.getByRole("table", { name: "Schedules" }).getByText("every day at 5:30").waitFor()
      await page.getByRole("link", { name: "nightly-report" }).click()
      await page.getByRole("heading", { name: "Next times" }).waitFor()
    })
    expect(yield* schedule).toMatchObject({ cron: "30 5 * * *", timezone: "Europe/Berlin", active: true })
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Run now" }).click()
      await page.getByText("Waits for a worker").waitFor()
      await page.goBack()
      await page.getByRole("button", { name: "Delete the schedule" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Delete schedule" }).click()
      await page.getByRole("heading", { name: "No schedule yet" }).waitFor()
      await expectAccessible(page)
    })
    yield* until("the deletion", call("schedules/list"), ({ schedules }) => schedules?.length === 0)
  })
})
