/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import { describe } from "vitest"
import { makeTenant } from "../http/tenants.ts"
import { adminToken } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, hasBrowser, inTab, signedInTab } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"

describe.skipIf(!hasBrowser).each(Object.entries(consoles))("jobs and schedules, over %s", (_, console) => {
  layer(console, { excludeTestServices: true })((it) => {
    it.effect("a job is created, claimed, reported on and delivered, all on one page that changes by itself", () =>
      Effect.gen(function* () {
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
          await dialog.getByText("This is no JSON.").waitFor()
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
          await page.getByRole("list", { name: "Life of the job" }).getByText("Delivered").waitFor()
          await page.getByText('"rows": 3').waitFor()
          await expectAccessible(page)
          await expectFits(page)
          await page.getByRole("link", { name: /^To 127/ }).click()
          await page.getByRole("heading", { level: 1, name: "job.completed" }).waitFor()
        })
      }).pipe(Effect.scoped),
    )

    it.effect("a queued job is canceled after a question", () =>
      Effect.gen(function* () {
        const { call, orgId } = yield* makeTenant(adminToken)
        const { job_id } = yield* call("jobs/create", { workflow: "w" })
        yield* inTab(`/orgs/${orgId}/jobs?status=queued`, async (page) => {
          await page.getByRole("link", { name: "w", exact: true }).click()
          await page.getByRole("button", { name: "Cancel job" }).click()
          await page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click()
          await page.getByText("No event: the job was canceled").waitFor()
          await expect.poll(() => page.getByRole("button", { name: "Cancel job" }).count()).toBe(0)
          await page.getByRole("button", { name: "Replay" }).press("Enter")
          await page.waitForURL((url) => !url.pathname.endsWith(String(job_id)))
          await page.getByText("Waits for a worker").waitFor()
        })
        expect(yield* call("jobs/get", { job_id })).toMatchObject({ status: "canceled" })
      }),
    )

    it.effect("a schedule is created, run now, paused, resumed, edited and deleted", () =>
      Effect.gen(function* () {
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
      }).pipe(Effect.scoped),
    )
  })
})
