import { expect } from "@effect/vitest"
import { makeTenant } from "../http/tenants.ts"
import { adminToken } from "../support/server.ts"
import { consoles, inTab, withConsole } from "./support.ts"
import { call } from "./world.ts"

withConsole("what the console says of the service", consoles.PostgreSQL, (it) => {
  it.effect("a stream without two of its pings is not live, and begins again", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab("", async (page, at) => {
      await page.clock.install()
      await page.goto(at(`/orgs/${orgId}/deliveries`))
      const live = page.locator(".sidebar-foot .badge:visible", { hasText: "Live" })
      await live.waitFor()
      await page.clock.fastForward(32_000)
      const gone = page.getByText("The service has not answered since")
      await gone.waitFor()
      await expect.poll(() => live.count()).toBe(0)
      await page.clock.fastForward(11_000)
      await live.waitFor()
      await gone.waitFor({ state: "detached" })
    })
  })

  it.effect("a refusal is an answer", () =>
    inTab("/orgs/01ARZ3NDEKTSV4RRFFQ69G5FAV/settings", async (page) => {
      await page.clock.install()
      await page.reload()
      await page.getByText("There is no such org").first().waitFor()
      const refused = page.waitForResponse((response) => response.url().includes("/api/v0/sessions"))
      await page.clock.fastForward(11_000)
      await refused
      await page.clock.fastForward(7_000)
      await expect.poll(() => page.getByText("The service has not answered since").count()).toBe(0)
    }),
  )

  it.effect("times are those of the service, whatever clock a browser has, and ranges go on", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    const expiresAt = new Date(Date.now() + 1_800_000).toISOString()
    yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "soon", expiresAt })
    yield* inTab("", async (page, at) => {
      await page.clock.install({ time: Date.now() + 3_600_000 })
      await page.goto(at(`/orgs/${orgId}/keys?text=soon`))
      await page.locator("tbody .badge", { hasText: "Expiring" }).waitFor()
      await page.clock.setSystemTime(Date.now() - 3_600_000)
      const statuses = new Set<number>()
      const asked = new Set<string>()
      let later = 0
      await page.route(/\/api\/v0\/(?!live)/, async (route) => {
        const response = await route.fetch()
        const since = new URL(response.url()).searchParams.get("since")
        if (since !== null) {
          statuses.add(response.status())
          asked.add(since)
        }
        const date = new Date(Date.now() + later).toUTCString()
        return route.fulfill({ response, headers: { ...response.headers(), date } })
      })
      await page.goto(at("/?every=day"))
      await expect.poll(() => asked.size).toBe(1)
      // The page stays open for two hours.
      later = 7_200_000
      const lookLater = async () => {
        await page.clock.fastForward(61_000)
        return asked.size
      }
      await expect.poll(lookLater).toBeGreaterThan(1)
      expect([...statuses]).toEqual([200])
    })
  })

  it.effect("what could not be read again says so, and what is sent to a proxy that answers, too", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab(`/orgs/${orgId}/projects`, async (page) => {
      await page.getByRole("table").or(page.locator(".empty")).first().waitFor()
      await page.route("**/api/v0/projects*", (route) => route.fulfill({ status: 502, body: "<h1>Bad gateway</h1>" }))
      await page.getByRole("button", { name: "Create project" }).first().click()
      await page.getByLabel("Name").fill("docs")
      await page.getByRole("dialog").getByRole("button", { name: "Create project" }).click()
      await page.getByRole("dialog").getByText("Something else answered in the place of the service").waitFor()
      await page.getByRole("button", { name: "Cancel" }).click()
      const old = page.getByText("Not everything on this page could be read again")
      await old.waitFor()
      await page.unroute("**/api/v0/projects*")
      await page.getByRole("button", { name: "Try again" }).click()
      await old.waitFor({ state: "detached" })
    })
  })

  it.effect("earlier rows are paler and busy until those of another filter are there", function* () {
    const { finished, orgId } = yield* makeTenant(adminToken)
    yield* finished()
    yield* inTab(`/orgs/${orgId}/jobs`, async (page) => {
      await page.locator("tbody .badge", { hasText: "Completed" }).waitFor()
      let answer = () => {}
      const asked = new Promise<void>((resolve) => {
        answer = resolve
      })
      await page.route("**/v1/jobs/list", async (route) => {
        await asked
        await route.continue()
      })
      const main = page.locator("#main")
      await expect.poll(() => main.getAttribute("aria-busy")).not.toBe("true")
      await page.getByLabel("Sta", { exact: false }).first().selectOption("Failed")
      await expect.poll(() => main.getAttribute("aria-busy")).toBe("true")
      const card = page.locator(".card", { has: page.locator("table") }).first()
      const opacity = () => card.evaluate((card) => card.ownerDocument.defaultView!.getComputedStyle(card).opacity)
      await expect.poll(opacity).toBe("0.5")
      answer()
      await expect.poll(() => main.getAttribute("aria-busy")).toBe("false")
    })
  })

  it.effect("a page whose script failed to load comes back by itself", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab("", async (first, at) => {
      const page = await first.context().newPage()
      await page.route("**/JobsPage-*.js", (route) => route.abort(), { times: 1 })
      await page.goto(at(`/orgs/${orgId}/jobs`))
      await page.getByText("The service did not answer").waitFor()
      await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor()
      await page.close()
    })
  })

  it.effect("a page whose script stays broken is loaded again once by itself", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab("", async (first, at) => {
      const page = await first.context().newPage()
      await page.clock.install()
      let asked = 0
      await page.route("**/JobsPage-*.js", (route) => {
        asked++
        return route.abort()
      })
      await page.goto(at(`/orgs/${orgId}/jobs`))
      for (const loads of [1, 2, 2]) {
        await page.getByText("The service did not answer").waitFor()
        await expect.poll(() => asked).toBe(loads)
        await page.clock.fastForward(6_000)
        await page.evaluate("fetch('/healthz')").catch(() => "The page is loaded again.")
      }
      await expect.poll(() => asked).toBe(2)
      await page.close()
    })
  })
})
