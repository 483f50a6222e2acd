import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { closeTabs } from "../support/browser.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, inTab, signedInTab, withConsoles } from "./support.ts"
import { call, callFor, createOrg } from "./world.ts"

/** Where nothing listens. */
const nowhere = "https://127.0.0.1:1/hook"

withConsoles("the overview", consoles, (it) => {
  it.effect("a new service asks for a first project, and has an overview from then on", () =>
    inTab("/", async (page, at) => {
      await page.getByRole("button", { name: "Create your first project" }).click()
      await page.getByLabel("Name").fill("docs")
      await expectAccessible(page)
      await page.getByRole("dialog").getByRole("button", { name: "Create project" }).click()
      await page.getByRole("heading", { level: 1, name: "docs" }).waitFor()
      await page.goto(at("/"))
      await page.getByText("No attempt has failed").waitFor()
    }),
  )

  it.effect("says what fails and whose it is, without a reload", function* () {
    const orgId = yield* createOrg("Kestrel Payments")
    const { page, at } = yield* signedInTab("/")
    yield* Effect.promise(() => page.getByText("No attempt has failed").waitFor())
    const { webhook_endpoint_id } = yield* callFor(orgId, "webhooks/create", {
      url: nowhere,
      signing_secret: "s",
      retry_delays: [3_600],
    })
    const events = Array.from({ length: 12 }, (_, id) => ({ type: "invoice.paid", data: { id } }))
    yield* callFor(orgId, "events/publish-batch", { events })
    const { job_id } = yield* callFor(orgId, "jobs/create", { workflow: "w" })
    yield* callFor(orgId, "jobs/cancel", { job_id })
    yield* Effect.promise(async () => {
      const row = page.getByRole("row").filter({ hasText: "127.0.0.1:1" })
      await row.getByText("Failing").waitFor()
      await expect
        .poll(() => row.getByRole("link").first().getAttribute("href"))
        .toContain(`/orgs/${orgId}/endpoints/${webhook_endpoint_id}`)
      await page
        .getByRole("alert")
        .getByText(/100 % of 1\d attempts failed/)
        .waitFor()
      // Four figures with a line each, and the share that fails in the colour of failure.
      const colorOf = (selector: string) =>
        page.evaluate(`getComputedStyle(document.querySelector("${selector}")).color`)
      await page.locator("dl.stat").getByText("100 %").waitFor()
      // One in ten minutes is not none.
      await page.locator("dl.stat").filter({ hasText: "Jobs per minute" }).getByText("< 1").waitFor()
      await expect.poll(() => colorOf("dl.stat .attention")).toBe(await colorOf("[role=alert]"))
      await expect.poll(() => page.locator("dl.stat polyline").count()).toBe(4)
      await expect.poll(() => page.locator("dl.strip-of-figures dt").count()).toBe(7)
      await expectAccessible(page)
      await expectFits(page)
      await row.getByRole("link", { name: "Kestrel Payments" }).click()
      await page.waitForURL(at(`/orgs/${orgId}`))
      await page.getByRole("heading", { name: "Kestrel Payments" }).waitFor()
    })
  })

  it.effect("says which orgs use most, by what one asks for, with links to the cause", function* () {
    const [busy, failing] = [yield* createOrg("Busy Jobs"), yield* createOrg("Failing Hooks")]
    for (const workflow of ["a", "b"]) {
      const { job_id } = yield* callFor(busy, "jobs/create", { workflow })
      yield* callFor(busy, "jobs/complete", { job_id })
    }
    yield* callFor(failing, "webhooks/create", { url: nowhere, signing_secret: "s", retry_delays: [3_600] })
    yield* callFor(failing, "events/publish", { type: "invoice.paid", data: {} })
    const counted = (by: string, orgId: string) =>
      until(`${by} of the org`, call("GET", `/api/v0/orgs/active?by=${by}&limit=100`), ({ orgs }) =>
        (orgs as unknown as ReadonlyArray<{ readonly orgId: string }>).some((org) => org.orgId === orgId),
      )
    yield* counted("jobs", busy)
    yield* counted("failedAttempts", failing)
    yield* inTab("/?by=jobs", async (page, at) => {
      const card = page.getByRole("region", { name: "Orgs that use most" })
      const row = (name: string) => card.getByRole("row").filter({ has: page.getByRole("link", { name }) })
      await row("Busy Jobs").waitFor()
      await expect.poll(() => card.getByRole("button", { pressed: true }).textContent()).toBe("Jobs")
      await row("Failing Hooks").waitFor({ state: "detached" })
      await card.getByRole("button", { name: "Failed attempts" }).click()
      await page.waitForURL((url) => url.search === "?by=failedAttempts")
      await row("Failing Hooks").getByRole("link", { name: "1", exact: true }).last().click()
      await page.waitForURL(at(`/orgs/${failing}/endpoints`))
    })
  })

  it.effect("the day on which clocks change leads to all of its 25 hours", function* () {
    const orgId = yield* createOrg("Acme")
    yield* inTab(`/orgs/${orgId}`, async (tab) => {
      const storageState = await tab.context().storageState()
      const context = await tab.context().browser()!.newContext({ timezoneId: "America/New_York", storageState })
      const page = await context.newPage()
      await page.route("**/api/v0/overview?*", async (route) => {
        const response = await route.fetch()
        const deliveries = [{ at: "2026-11-01T04:00:00.000Z", delivered: 1, retried: 0, failed: 0 }]
        const body = (await response.json()) as object
        await route.fulfill({ response, json: { ...body, deliveries } })
      })
      await page.goto(`${tab.url()}?every=day`)
      const chart = page.getByRole("figure", { name: "Attempts of deliveries" })
      await chart.getByText("Show as a table").click()
      const href = await chart.getByRole("link", { name: "Nov 1, 2026" }).getAttribute("href")
      const times = { since: "2026-11-01T04:00:00.000Z", until: "2026-11-02T05:00:00.000Z" }
      expect(href).toContain(`deliveries?${new URLSearchParams(times)}`)
      await closeTabs(context)
    })
  })

  it.effect("shows how fast requests and the database are, and each replica", function* () {
    yield* createOrg("Swift")
    yield* inTab("/", async (page) => {
      const stat = (label: string) => page.locator("dl > div").filter({ has: page.getByText(label, { exact: true }) })
      // Replicas write their figures every 20 seconds.
      await stat("Requests p99")
        .getByText(/\d (ms|s)$/)
        .first()
        .waitFor()
      await stat("Database p99")
        .getByText(/\d (ms|s)$/)
        .first()
        .waitFor()
      await stat("Database size")
        .getByText(/[\d.]+ MiB/)
        .waitFor()
      await stat("Database size").getByText("writable").waitFor()
      const row = page.getByRole("region", { name: "Replicas" }).getByRole("row").nth(1)
      await row.getByText(/^\d+ of \d+$/).waitFor()
      await expect.poll(() => page.getByRole("region", { name: "Replicas" }).getByRole("row").count()).toBe(2)
    })
  })

  it.effect("says whether the database or the service does not answer", () =>
    inTab("/", async (page) => {
      await page
        .getByText(/^(Everything|The service) works$/)
        .or(page.getByRole("alert"))
        .first()
        .waitFor()
      const json = { _tag: "Unavailable", error: "The database does not answer.", code: "unavailable" }
      await page.route("**/readyz", (route) => route.fulfill({ status: 503, json }))
      await page.getByRole("alert").getByText("The database does not answer.").waitFor()
      await page.unroute("**/readyz")
      await page.route("**/readyz", (route) => route.fulfill({ json: { ok: true, writable: false } }))
      await page.getByRole("alert").getByText("The database is read-only.").waitFor()
    }),
  )

  it.effect("orgs show what they use and which limits they near", function* () {
    const orgId = yield* createOrg("Nordlicht")
    yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "only" })
    yield* call("PATCH", `/api/v0/orgs/${orgId}`, { limits: { keys: 1 } })
    const { job_id } = yield* callFor(orgId, "jobs/create", { workflow: "w" })
    yield* callFor(orgId, "jobs/complete", { job_id })
    yield* inTab("/orgs", async (page) => {
      const row = page.getByRole("row").filter({ hasText: "Nordlicht" })
      await row.getByText("API keys").waitFor()
    })
    yield* inTab(`/orgs/${orgId}`, async (page) => {
      await page.getByText("1 of 1", { exact: true }).waitFor()
      await page.getByRole("img", { name: /Finished jobs: Completed 1,/ }).waitFor()
    })
  })
})
