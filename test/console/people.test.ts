import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { Browser } from "../support/browser.ts"
import { signInWith } from "../support/identityProvider.ts"
import { startOpenidProvider } from "../support/openidProvider.ts"
import { closedPort } from "../support/receiver.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { makeTenant } from "../http/tenants.ts"
import { consoleWith, expectAccessible, expectFits, withConsole } from "./support.ts"

const environment = Effect.gen(function* () {
  const port = yield* closedPort
  const url = `http://127.0.0.1:${port}`
  const { issuer } = yield* startOpenidProvider({
    redirectUri: `${url}/console/sign-in/callback`,
    logoutUri: `${url}/console/sign-out`,
  })
  const roles = { groups: { platform: "administrator", support: "viewer" } }
  return { ...signInWith(issuer, roles), PORT: String(port), BASE_URL: url }
})

/** Signs in at the pages of the provider. */
const atProvider = async (page: Page, name: string) => {
  await page.locator("[name=login]").fill(name)
  await page.locator("[name=password]").fill("any")
  await page.locator("[type=submit]").click()
  await page.getByRole("button", { name: "Continue" }).click()
}

/** A tab of a person's own browser. */
const newTab = Effect.gen(function* () {
  const { url } = yield* TestServer
  const browser = yield* Browser
  const page = yield* browser.open
  return { page, at: (path: string) => `${url}/console${path}` }
})

withConsole("people", consoleWith(environment, "postgres"), (it) => {
  it.effect("a person signs in with the company's identity, comes back to their page, and signs out", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    const { at, page } = yield* newTab
    yield* Effect.promise(async () => {
      await page.goto(at(`/orgs/${orgId}/projects`))
      const link = page.getByRole("link", { name: "Sign in with 127.0.0.1" })
      await link.waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await link.click()
      await atProvider(page, "jo")
      await page.getByRole("heading", { name: "Projects" }).waitFor()
      expect(page.url()).toBe(at(`/orgs/${orgId}/projects`))
      const reader = page.locator(".sidebar-foot summary")
      await expect.poll(() => reader.textContent()).toContain("Jo Doe")
      // Whatever a person changes is theirs.
      await page.getByRole("button", { name: "Create project" }).first().click()
      await page.getByLabel("Name").fill("docs")
      await page.getByRole("dialog").getByRole("button", { name: "Create project" }).click()
      await page.getByRole("heading", { name: "docs" }).waitFor()
      await page.goto(at(`/orgs/${orgId}/audit`))
      await page.getByText("Jo Doe created the project").first().waitFor()
      await expectAccessible(page)
      await page.getByRole("link", { name: "People" }).click()
      const rows = page.getByRole("table", { name: "Who may sign in" }).getByRole("row")
      await expect.poll(() => rows.nth(1).innerText()).toMatch(/platform\s+groups\s+administrator\s+every org/)
      await page.getByRole("table", { name: "Roles" }).getByText("one org").first().waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await reader.click()
      await page.getByText("jo@example.com, administrator of all orgs").waitFor()
      await page.getByRole("button", { name: "Sign out" }).click()
      await link.waitFor()
      expect(await page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })")).toBe("{}")
    })
  })

  it.effect(
    "somebody without a role is told so, in the console's style, and signs in with another account",
    function* () {
      const { at, page } = yield* newTab
      yield* Effect.promise(async () => {
        await page.goto(at(""))
        await page.getByRole("link", { name: "Sign in with 127.0.0.1" }).click()
        await atProvider(page, "ex")
        await page.getByRole("heading", { name: "You have no access" }).waitFor()
        const ground = await page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor")
        expect(ground).toBe("rgb(255, 255, 255)")
        await expectAccessible(page)
        await expectFits(page)
        // The provider asks for the account again.
        const asked = page.waitForRequest((request) => request.url().includes("prompt=select_account"))
        await page.getByRole("link", { name: "Use another account" }).click()
        await asked
      })
    },
  )

  it.effect("a viewer sees what there is, and no button that changes it", function* () {
    const tenant = yield* makeTenant(adminToken)
    const endpoint = yield* tenant.endpoint("https://127.0.0.1:9/")
    const { at, page } = yield* newTab
    yield* Effect.promise(async () => {
      await page.goto(at(""))
      await page.getByRole("link", { name: "Sign in with 127.0.0.1" }).click()
      await atProvider(page, "vi")
      await page.getByRole("link", { name: "Orgs" }).waitFor()
      for (const [path, heading] of [
        ["/orgs", "Orgs"],
        [`/orgs/${tenant.orgId}/keys`, "API keys"],
        [`/orgs/${tenant.orgId}/endpoints`, "Endpoints"],
        [`/orgs/${tenant.orgId}/endpoints/${endpoint}`, /127\.0\.0\.1|Endpoint/],
        [`/orgs/${tenant.orgId}/jobs`, "Jobs"],
        [`/orgs/${tenant.orgId}/schedules`, "Schedules"],
        [`/orgs/${tenant.orgId}/projects`, "Projects"],
      ] as const) {
        await page.goto(at(path))
        await page.getByRole("heading", { level: 1, name: heading }).waitFor()
        const changes = page.getByRole("button", {
          name: /^(create|add|edit|delete|test|rotate|publish|deactivate)/i,
        })
        await expect.poll(() => changes.count(), { message: path }).toBe(0)
      }
      await page.goto(at(`/orgs/${tenant.orgId}/settings`))
      await page.getByRole("heading", { name: "There is no such page" }).waitFor()
    })
  })
})
