import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { expectAccessible, expectFits, inTab, signedInTab, withConsole } from "./support.ts"
import { call, callFor, consolesWithCi, createOrg, pullRequest, repositoryOf } from "./world.ts"

/**
 * Promise (Console): HTML, scripts and `javascript:` in every field that a tenant or its CI fills are shown as text.
 */

/**
 * Promise (Console): axe finds nothing in light and in dark (WCAG 2.2 AA), and no page is wider than the window from
 * 360 pixels to 4K.
 */

/** Promise (Tenants apart): An org key that opens another org sees that there is no such org. */

const attack = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
/** Refs have no spaces. */
const branch = "<svg/onload=window.hacked=1>"
const link = "javascript:window.hacked=1"

/** An org whose tenant puts an attack in each field that the console shows. */
const hostileOrg = Effect.gen(function* () {
  const orgId = yield* createOrg(attack)
  const run = yield* repositoryOf(orgId)
  const { projectId } = yield* run("1")
  yield* run("2", { actor: attack, workflow: attack, environment: attack, ref: `refs/heads/${branch}` })
  yield* run("3", { ...pullRequest(link), actor: link })
  yield* call("PUT", `/api/v0/projects/${projectId}/docs`, {
    docsZipUrl: `https://docs.invalid/${branch}.zip`,
    docsUrl: `https://docs.invalid/?${branch}`,
    keepQuestions: true,
  })
  yield* call("PATCH", `/api/v0/projects/${projectId}`, { name: attack, defaultBranch: branch })
  const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, {
    name: attack,
    externalId: attack,
    metadata: { [attack]: link },
    permissions: ["files.*"],
    rateLimit: { limit: 5, window: 7 },
    credits: { remaining: 9, refill: { amount: 10, every: "day" } },
    expiresAt: new Date(Date.now() + 86_400_000).toISOString(),
  })
  yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: link, enabled: false })
  yield* callFor(orgId, "webhooks/create", { url: "https://127.0.0.1:1/", signing_secret: "s", description: attack })
  yield* callFor(orgId, "schedules/create", { workflow: attack, cron: "0 0 1 1 *" })
  yield* callFor(orgId, "events/publish", { type: "invoice.paid", data: attack })
  return { orgId, projectId, keyId: id }
})

/** What each page must show before it is checked, in the tenant's own words. */
const pagesOf = ({ keyId, orgId, projectId }: Effect.Success<typeof hostileOrg>) => {
  const org = `/orgs/${orgId}`
  return {
    "/": attack,
    "/orgs": attack,
    [org]: attack,
    [`${org}/projects`]: attack,
    [`${org}/projects/${projectId}`]: branch,
    [`${org}/projects/${projectId}/docs`]: `${branch}.zip`,
    [`${org}/projects/${projectId}/settings`]: attack,
    [`${org}/keys`]: link,
    [`${org}/keys/${keyId}`]: attack,
    [`${org}/audit`]: link,
    [`${org}/settings`]: attack,
  }
}

const open = async (page: Page, address: string, text: string) => {
  await page.goto(address)
  await page.getByText(text).and(page.locator(":visible")).first().waitFor()
  await page.locator("main [aria-busy=true]").waitFor({ state: "detached" })
}

withConsole("every page", consolesWithCi["the embedded database"], (it) => {
  it.effect(
    "shows attacks as text, has no finding of axe in light and dark, and fits from 360 pixels to 4K",
    function* () {
      const pages = pagesOf(yield* hostileOrg)
      const { at, page } = yield* signedInTab("/")
      yield* Effect.promise(async () => {
        for (const [path, text] of Object.entries(pages)) {
          await open(page, at(path), text)
          await expectAccessible(page)
          await expectFits(page)
          expect(await page.evaluate("window.hacked"), path).toBeUndefined()
        }
      })
    },
  )

  it.effect("dialogs and open details have no finding of axe, and fit", function* () {
    const { keyId, orgId, projectId } = yield* hostileOrg
    const { at, page } = yield* signedInTab("/")
    const check = async (path: string, button: string) => {
      await page.goto(at(path))
      await page.getByRole("main").getByRole("button", { name: button }).first().click()
      await page.getByRole("dialog").waitFor()
      for (const details of await page.getByRole("dialog").locator("summary").all()) await details.click()
      await expectAccessible(page)
      await expectFits(page)
      expect(await page.evaluate("window.hacked"), path).toBeUndefined()
    }
    yield* Effect.promise(async () => {
      await check("/orgs", "Create org")
      await check(`/orgs/${orgId}/keys`, "Create key")
      for (const button of ["Edit", "Rotate", "Disable", "Delete"]) {
        await check(`/orgs/${orgId}/keys/${keyId}`, button)
      }
      await check(`/orgs/${orgId}/projects/${projectId}`, "Make ")
      await check(`/orgs/${orgId}/settings`, "Delete org")
      await page.goto(at(`/orgs/${orgId}`))
      await page.getByText("Show as a table").first().click()
      await page.getByRole("button", { name: attack }).click()
      await page.getByRole("dialog").waitFor()
      await expectAccessible(page)
    })
  })

  it.effect("an org key that opens another org sees that there is none", function* () {
    const [own, other] = [yield* createOrg("Own"), yield* createOrg("Secret name")]
    const { key } = yield* call("POST", `/api/v0/orgs/${own}/keys`, { name: "k" })
    yield* inTab(
      "/",
      async (page, at) => {
        for (const path of ["", "/projects", "/keys", "/audit"]) {
          await page.goto(at(`/orgs/${other}${path}`))
          await page.getByRole("alert").getByText("There is no such org.").first().waitFor()
          expect(await page.content()).not.toContain("Secret name")
        }
      },
      key!,
    )
  })

  it.effect("times are in the reader's zone, and in UTC on hover", function* () {
    const orgId = yield* createOrg("Acme")
    const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, {
      name: "k",
      expiresAt: "2100-01-02T20:00:00.000Z",
    })
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page) => {
      const time = page.locator('time[datetime="2100-01-02T20:00:00.000Z"]')
      await time.waitFor()
      await expect.poll(() => time.textContent()).toMatch(/Jan 3, 2100, 1:30:00\sAM/)
      await expect.poll(() => time.getAttribute("title")).toBe("2100-01-02 20:00:00 UTC")
    })
  })
})
