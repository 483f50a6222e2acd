import { expect } from "@effect/vitest"
import { readFileSync } from "node:fs"
import type { Locator, Page } from "playwright-core"
import { it } from "vitest"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { expectAccessible, expectFits, inTab, withConsoles, typeInto } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"
import { call, callFor, consolesWithCi, createOrg, repositoryOf } from "./world.ts"

/** Promise (Console): Twenty questions of operators are answered in so many clicks. */

/** What operators ask, with the clicks that an answer may cost and those that it costs. Choosing a field is a click. */
const questions = {
  "What fails most, and why?": [1, 1],
  "Resend all that failed since 14:00": [5, 4],
  "Which org uses most?": [0, 0],
  "How often was a key used yesterday?": [3, 3],
  "Who changed the URL of an endpoint, and from what?": [3, 3],
  "Why did a job fail? Run it again": [3, 2],
  "When does a schedule run next, in its zone?": [2, 2],
  "Which deployment is current? Roll back": [5, 4],
  "Make a key with a permission and a limit": [5, 5],
  "What is this line of a log about?": [1, 1],
  "Why did an endpoint get no webhook?": [4, 2],
  "A key has leaked: stop it": [4, 3],
  "Make a portal link for a customer": [4, 2],
  "Which queue grows?": [4, 1],
  "Which limit is reached?": [4, 0],
  "Erase a tenant": [4, 3],
  "Which groups sign in, and what may they do?": [5, 1],
  "Tell Slack when an endpoint fails": [5, 4],
  "Bring keys of a file": [4, 4],
  "Run a failed job with another input": [4, 3],
} as const
type QuestionName = keyof typeof questions

it("the documentation has the questions with their clicks", () => {
  const docs = readFileSync(new URL("../../docs/console.md", import.meta.url), "utf8")
  for (const [question, [allowed, needed]] of Object.entries(questions)) {
    expect(needed).toBeLessThanOrEqual(allowed)
    expect(docs).toContain(`| ${question} | ${allowed} | ${needed} |`)
  }
})

type Click = (target: Locator) => Promise<void>

/** Answers a question in a tab that begins at a path, and counts the clicks. */
const answer = (question: QuestionName, path: string, story: (page: Page, click: Click) => Promise<unknown>) =>
  inTab(path, async (page) => {
    let clicks = 0
    await story(page, async (target) => {
      clicks++
      await target.click()
    })
    expect(clicks, question).toBe(questions[question][1])
  })

const nav = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true })

/** Where nothing listens. */
const nowhere = "https://127.0.0.1:1/hook"

withConsoles("questions of operators", consolesWithCi, (it) => {
  it.effect("what fails most, and why", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503, body: "maintenance until 04:00" })
    for (let n = 0; n < 3; n++) yield* world.publish("invoice.paid")
    yield* until("the failures", world.deliveries({ state: "failed" }), (found) => found.length === 3)
    yield* answer("What fails most, and why?", "/", async (page, click) => {
      // Seen failing: it said "attempts succeed" while a few of them failed.
      await page
        .getByText(/attempts? failed in the last 10 minutes/)
        .first()
        .waitFor()
      const row = page.getByRole("region", { name: "Endpoints that fail most" }).getByRole("row", { name: /hooks/ })
      await row.getByText("HTTP 503").waitFor()
      await row.getByRole("link", { name: "Acme" }).waitFor()
      await click(row.getByRole("link", { name: /hooks/ }))
      await page.waitForURL((url) => url.pathname.endsWith(id))
      const causes = page.getByRole("region", { name: "What fails, and why" })
      await causes.getByText("maintenance until 04:00").waitFor()
    })
  })

  it.effect("resend all that failed since 14:00", function* () {
    const world = yield* webhookWorld
    for (let n = 0; n < 2; n++) yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503, body: "maintenance until 04:00" })
    for (let n = 0; n < 3; n++) yield* world.publish("invoice.paid")
    yield* until("the failures", world.deliveries({ state: "failed" }), (found) => found.length === 6)
    world.receiver.behave({ status: 200 })
    yield* answer("Resend all that failed since 14:00", world.path(""), async (page, click) => {
      const causes = page.getByRole("region", { name: "What fails, and why" })
      await causes.getByText("maintenance until 04:00").waitFor()
      await expect.poll(() => causes.innerText()).toMatch(/HTTP 503\s+× 6\s+\S+ × 3, \S+ × 3/)
      await expectAccessible(page)
      await expectFits(page)
      await click(causes.getByRole("link", { name: "HTTP 503" }))
      await click(page.getByRole("button", { name: "Time Any time" }))
      // The menu opens with the focus in it.
      const from = page.getByLabel("From").and(page.locator(":focus"))
      const hourAgo = "new Date(Date.now() - new Date().getTimezoneOffset() * 60000 - 3600000).toISOString()"
      await from.waitFor()
      await from.fill(String(await page.evaluate(hourAgo)).slice(0, 16))
      await page.waitForURL(/cause=503&since=/)
      await page.keyboard.press("Escape")
      const rows = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr a.main")
      await expect.poll(() => rows.count()).toBe(6)
      await click(page.getByRole("button", { name: "Resend all that failed…" }))
      await page.getByText("6 deliveries will be resent.").waitFor()
      await expectAccessible(page)
      await click(page.getByRole("button", { name: "Resend", exact: true }))
      await page.getByText("6 deliveries are resent.").waitFor()
      await page.getByText("No delivery matches").waitFor()
      await page.getByRole("button", { name: "Clear filters" }).press("Enter")
      await expect.poll(() => page.locator("tbody .badge", { hasText: "Delivered" }).count()).toBe(6)
    })
  })

  it.effect("which org uses most", function* () {
    const busy = yield* createOrg("Busy Hooks")
    yield* callFor(busy, "webhooks/create", { url: nowhere, signing_secret: "s", retry_delays: [3_600] })
    const events = Array.from({ length: 40 }, (_, id) => ({ type: "invoice.paid", data: { id } }))
    yield* callFor(busy, "events/publish-batch", { events })
    yield* until("the attempts", call("GET", "/api/v0/orgs/active?by=attempts&limit=1"), ({ orgs }) =>
      (orgs as unknown as ReadonlyArray<{ readonly orgId: string }>).some(({ orgId }) => orgId === busy),
    )
    yield* answer("Which org uses most?", "/", async (page) => {
      const first = page.getByRole("region", { name: "Orgs that use most" }).getByRole("row").nth(1)
      await first.getByRole("link", { name: "Busy Hooks" }).waitFor()
    })
  })

  it.effect("how often a key was used yesterday, in Auckland and in New York", function* () {
    const { sql } = yield* TestServer
    for (const timeZone of ["Pacific/Auckland", "America/New_York"]) {
      const orgId = yield* createOrg(timeZone)
      const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
      const hourOf = (at: number) =>
        Number(new Intl.DateTimeFormat("en", { timeZone, hour: "numeric", hourCycle: "h23" }).format(at))
      const hours = Array.from({ length: 24 }, (_, n) => (Math.floor(Date.now() / 3_600_000) - n) * 3_600_000)
      const yesterday = hours.find((at) => hourOf(at) === 0)! - 24 * 3_600_000
      for (const [at, valid] of [
        [yesterday - 3_600_000, 3],
        [yesterday, 5],
        [yesterday + 23 * 3_600_000, 20],
      ] as const) {
        yield* sql`
              INSERT INTO key_usage (org_id, key_id, hour, valid, forbidden, limited, cost)
              VALUES (${orgId}, ${id!}, ${at / 3_600_000}, ${valid}, 0, 0, 0)`
      }
      yield* answer("How often was a key used yesterday?", "/orgs", async (tab, click) => {
        const storageState = await tab.context().storageState()
        const context = await tab.context().browser()!.newContext({ timezoneId: timeZone, storageState })
        const page = await context.newPage()
        await page.goto(tab.url().replace(/orgs$/, `orgs/${orgId}`))
        await click(nav(page, "API keys"))
        await click(page.getByRole("link", { name: "gateway" }))
        await click(page.getByRole("button", { name: "Last 30 days" }))
        const card = page.getByRole("region", { name: `Validations by day in ${timeZone}` })
        await card.locator("svg g").nth(28).hover()
        const day = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeZone }).format(yesterday)
        await card.getByRole("status").getByText(day).waitFor()
        await card.getByRole("listitem").filter({ hasText: "Valid 25" }).waitFor()
        await context.close()
      })
    }
  })

  it.effect("who changed the URL of an endpoint, and from what", function* () {
    const orgId = yield* createOrg("Acme")
    const hook = { url: "https://hooks.example.com/in", signing_secret: "s" }
    const { webhook_endpoint_id: id } = yield* callFor(orgId, "webhooks/create", hook)
    yield* callFor(orgId, "webhooks/update", { id, url: "https://hooks.example.com/v2/in?token=t0k3n" })
    const question = "Who changed the URL of an endpoint, and from what?"
    yield* answer(question, `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Endpoints"))
      await click(page.getByRole("link", { name: "hooks.example.com/v2/in" }))
      await click(page.getByRole("link", { name: "who changed it" }))
      const row = page.getByRole("table", { name: "Audit log" }).locator("tbody tr").first()
      await row.getByText("The administrator").first().waitFor()
      await row
        .getByText(/from https:\/\/hooks\.example\.com\/in to https:\/\/hooks\.example\.com\/v2\/in\?…/)
        .waitFor()
      expect(await page.content()).not.toContain("t0k3n")
    })
  })

  it.effect("why a job failed, and running it again", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const { job_id } = yield* call("jobs/create", { workflow: "nightly-report" })
    yield* call("jobs/fail", { job_id, error: "connect ECONNREFUSED 10.0.0.7:5432" })
    yield* answer("Why did a job fail? Run it again", `/orgs/${orgId}`, async (page, click) => {
      const causes = page.getByRole("region", { name: "Which jobs fail, and why" })
      await expect.poll(() => causes.innerText()).toMatch(/ECONNREFUSED.*\s+× 1\s+nightly-report/)
      await click(causes.getByRole("link", { name: /^Newest/ }))
      await page.getByRole("list", { name: "Timeline of the job" }).getByText("connect ECONNREFUSED 10.0.0.7").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await click(page.getByRole("button", { name: "Retry", exact: true }))
      await page.getByText("Waits for a worker").waitFor()
    })
    expect(yield* call("jobs/get", { job_id })).toMatchObject({ status: "queued" })
  })

  it.effect("when a schedule runs next, in its zone and in the reader's", function* () {
    const orgId = yield* createOrg("Acme")
    yield* callFor(orgId, "schedules/create", {
      workflow: "report",
      cron: "0 4 * * *",
      timezone: "Pacific/Auckland",
    })
    yield* answer("When does a schedule run next, in its zone?", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Schedules"))
      await click(page.getByRole("link", { name: "report" }))
      const next = page.locator(".times li").first()
      await expect.poll(() => next.innerText()).toMatch(/4:00\sAM Pacific\/Auckland\s+.*Asia\/Calcutta|Asia\/Kolkata/)
      await page.getByText("every day at 4:00").waitFor()
    })
  })

  it.effect("which deployment is current, and the way back", function* () {
    const orgId = yield* createOrg("Acme")
    const run = yield* repositoryOf(orgId)
    yield* run("100", { sha: "a".repeat(40) })
    yield* run("101", { sha: "b".repeat(40), actor: "grace" })
    yield* answer("Which deployment is current? Roll back", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Projects"))
      await click(page.getByRole("table", { name: "Projects" }).getByRole("link"))
      const current = page.getByRole("listitem").filter({ has: page.getByText("Current", { exact: true }) })
      await current.filter({ hasText: "bbbbbbb" }).filter({ hasText: "by grace" }).waitFor()
      await click(page.getByRole("button", { name: "Make current: main at aaaaaaa" }))
      const dialog = page.getByRole("dialog", { name: "Roll back to this deployment?" })
      const change = "main at aaaaaaa becomes current in the place of main at bbbbbbb"
      await expect.poll(() => dialog.textContent()).toContain(change)
      await click(dialog.getByRole("button", { name: "Roll back" }))
      await page.getByRole("status").getByText("The project is rolled back.").waitFor()
      await current.filter({ hasText: "aaaaaaa" }).waitFor()
    })
  })

  it.effect("a key with a permission and a limit", function* () {
    const orgId = yield* createOrg("Acme")
    yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "first", permissions: ["files.read"] })
    yield* answer("Make a key with a permission and a limit", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "API keys"))
      await click(page.getByRole("button", { name: "Create key" }))
      const dialog = page.getByRole("dialog")
      await typeInto(dialog.getByLabel("Name"), "gateway")
      await click(dialog.getByRole("button", { name: "Add files.read" }))
      await click(dialog.getByLabel("Rate limit"))
      await typeInto(dialog.getByLabel("Rate limit"), "600")
      await click(dialog.getByRole("button", { name: "Create key" }))
      await page.locator("[data-secret]").waitFor()
    })
    const { keys } = yield* call("GET", `/api/v0/orgs/${orgId}/keys`)
    expect(keys).toContainEqual(
      expect.objectContaining({
        name: "gateway",
        permissions: ["files.read"],
        rateLimit: { limit: 600, window: 60 },
      }),
    )
  })

  it.effect("what a line of a log is about, from the overview", function* () {
    const tenant = yield* makeTenant(adminToken)
    const job = yield* tenant.finished()
    yield* answer("What is this line of a log about?", "/", async (page, click) => {
      await click(page.getByRole("button", { name: "Find", exact: true }))
      await typeInto(page.getByRole("dialog").locator("input"), `12:00:07 worker-3 took job=${job} attempt=1`)
      await page.keyboard.press("Enter")
      await page.waitForURL((url) => url.pathname.endsWith(`/orgs/${tenant.orgId}/jobs/${job}`))
      await page.getByText("Completed").first().waitFor()
    })
  })

  it.effect("why an endpoint did not receive an event", function* () {
    const orgId = yield* createOrg("Acme")
    yield* callFor(orgId, "webhooks/create", { url: nowhere, signing_secret: "s", event_types: ["refund.*"] })
    yield* callFor(orgId, "events/publish", { type: "invoice.paid", data: {} })
    yield* answer("Why did an endpoint get no webhook?", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Events"))
      await click(page.getByRole("table", { name: "Events", exact: true }).getByRole("link", { name: "invoice.paid" }))
      await page.getByText("Type: it receives refund.*.").waitFor()
    })
  })

  it.effect("a leaked key is found by its text, and stopped", function* () {
    const orgId = yield* createOrg("Acme")
    const { key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
    yield* answer("A key has leaked: stop it", "/", async (page, click) => {
      await click(page.getByRole("button", { name: "Find", exact: true }))
      await typeInto(page.getByRole("dialog").locator("input"), key!)
      await page.keyboard.press("Enter")
      await click(page.getByRole("button", { name: "Disable" }))
      await click(page.getByRole("button", { name: "Disable key" }))
      await page.getByText("This key is disabled. It is refused until somebody enables it.").waitFor()
    })
  })

  it.effect("the portal of a customer, a queue that grows, a limit that is reached, and an erasure", function* () {
    const orgId = yield* createOrg("Acme")
    yield* call("PATCH", `/api/v0/orgs/${orgId}`, { limits: { endpoints: 1 } })
    yield* callFor(orgId, "webhooks/create", { url: nowhere, signing_secret: "s" })
    yield* callFor(orgId, "jobs/create", { workflow: "mail" })
    yield* answer("Which limit is reached?", `/orgs/${orgId}`, async (page) => {
      const limits = page.getByRole("region", { name: "Limits" })
      await limits.getByRole("listitem").filter({ hasText: "Webhook endpoints" }).getByText("1 of 1").waitFor()
    })
    yield* answer("Which queue grows?", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Jobs"))
      await page
        .getByRole("table", { name: "Workflows" })
        .getByRole("row", { name: /mail 1 0/ })
        .waitFor()
    })
    yield* answer("Make a portal link for a customer", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Portal link"))
      await click(page.getByRole("button", { name: "Make a link" }))
      await page.getByText("Copy the link now: it is shown once.").waitFor()
      await page.getByRole("row", { name: /The administrator unopened/ }).waitFor()
    })
    yield* answer("Erase a tenant", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "Settings"))
      await click(page.getByRole("button", { name: "Delete org" }))
      await page.getByLabel("Type Acme to confirm").fill("Acme")
      await click(page.getByRole("dialog").getByRole("button", { name: "Delete org" }))
      await page
        .getByRole("region", { name: /rasure/ })
        .getByText("Deleted by")
        .waitFor()
    })
  })

  it.effect("who signs in by which group, and an alert to Slack", function* () {
    yield* answer("Which groups sign in, and what may they do?", "/", async (page, click) => {
      await click(nav(page, "People"))
      await page.getByText("CONSOLE_OIDC_ROLES").waitFor()
      await page.getByRole("row", { name: /viewer every org reads/ }).waitFor()
    })
    yield* answer("Tell Slack when an endpoint fails", "/", async (page, click) => {
      await click(page.getByRole("link", { name: "Alerts" }))
      await click(page.getByRole("button", { name: "Create an alert…" }))
      await typeInto(page.getByLabel("Name"), "ours")
      await click(page.getByLabel("URL"))
      await typeInto(page.getByLabel("URL"), "https://hooks.slack.com/services/T0/B0/x")
      await click(page.getByRole("button", { name: "Create alert" }))
      await page.getByRole("row", { name: /ours An endpoint fails/ }).waitFor()
    })
  })

  it.effect("keys of a file, and a failed job with another input", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const { job_id } = yield* call("jobs/create", { workflow: "nightly-report", input: { rows: 0 } })
    yield* call("jobs/fail", { job_id, error: "The export has no rows" })
    const hash = orgId
      .replaceAll(/[^0-9a-f]/gi, "0")
      .toLowerCase()
      .padStart(64, "0")
    yield* answer("Bring keys of a file", `/orgs/${orgId}`, async (page, click) => {
      await click(nav(page, "API keys"))
      await click(page.getByRole("button", { name: "Import keys…" }))
      const chooser = page.waitForEvent("filechooser")
      await click(page.getByLabel("File"))
      const buffer = Buffer.from(JSON.stringify([{ hash, algorithm: "sha256", name: "old" }]))
      await (await chooser).setFiles({ name: "keys.json", mimeType: "application/json", buffer })
      await click(page.getByRole("button", { name: "Import 1 key" }))
      await page.getByRole("link", { name: "old" }).waitFor()
    })
    yield* answer("Run a failed job with another input", `/orgs/${orgId}`, async (page, click) => {
      const causes = page.getByRole("region", { name: "Which jobs fail, and why" })
      await click(causes.getByRole("link", { name: /^Newest/ }))
      await click(page.getByRole("button", { name: "Retry with another input…" }))
      await page.getByRole("dialog").getByRole("textbox").fill('{"rows": 3}')
      await click(page.getByRole("dialog").getByRole("button", { name: "Retry" }))
      await page.getByText("Waits for a worker").waitFor()
    })
    expect(yield* call("jobs/get", { job_id })).toMatchObject({ status: "queued", input: { rows: 3 } })
  })
})
