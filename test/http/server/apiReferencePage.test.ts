import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import type { Page } from "playwright-core"
import { expectAccessible, typeInto } from "../../console/checks.ts"
import { browserPage, hasBrowser } from "../../support/browser.ts"
import { it, layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, TestServer } from "../../support/server.ts"
import { openPortal, portalLink, signIn } from "../sessions/signedIn.ts"
import { makeTenant } from "../tenants.ts"

/**
 * Promise (Console): `/docs` works without a script; with one of less than 15 kB it finds, copies and sends, and keeps
 * no key.
 */

/** A page of the reference, whose axe and console must be silent. */
const openDocs = Effect.fnUntraced(function* (path: string, headers: Readonly<Record<string, string>> = {}) {
  const { url } = yield* TestServer
  const page = yield* browserPage
  const faults: Array<string> = []
  page.on("pageerror", (error) => void faults.push(error.message))
  yield* Effect.promise(async () => {
    if (headers["cookie"] !== undefined) {
      const [name, value] = headers["cookie"].split("=", 2) as [string, string]
      await page.context().addCookies([{ name, value, url }])
    }
    await page.goto(`${url}${path}`)
    await page.getByLabel("Search the operations").waitFor()
  })
  return { page, faults }
})

const article = (page: Page, id: string) => page.locator(`article#${id}`)

describe.skipIf(!hasBrowser)("/docs as a tool", () => {
  layer(TestServer.layer({ ...guarded, ...embedded }), { excludeTestServices: true })("of a service", (it) => {
    it.effect("finds operations by words, marks the one in view, copies, and remembers the language", function* () {
      const { faults, page } = yield* openDocs("/docs")
      yield* Effect.promise(async () => {
        await page.keyboard.press("/")
        await typeInto(page.getByLabel("Search the operations"), "post endpoint test")
        const found = page.locator("nav li:visible")
        expect(await found.allTextContents()).toEqual(["POSTTest a webhook endpoint"])
        await page.getByText("1 found").waitFor()
        await page.keyboard.press("Enter")
        await page.locator("nav a[aria-current]", { hasText: "Test a webhook endpoint" }).waitFor()
        await page.getByLabel("Search the operations").press("Escape")
        expect(await found.count()).toBeGreaterThan(60)
        const test = article(page, "webhooks-test")
        expect(await article(page, "deliveries-get").getByText("required").count()).toBe(1)
        await page.getByLabel("Python", { exact: true }).check()
        // A sample scrolls by keyboard.
        const sample = test.getByRole("region", { name: "Python: Test a webhook endpoint" })
        expect(await sample.getAttribute("tabindex")).toBe("0")
        await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
        await test.getByRole("button", { name: "Copy: Python: Test a webhook endpoint" }).click()
        expect(await page.evaluate("navigator.clipboard.readText()")).toContain("import urllib.request")
        await page.reload()
        await page.getByLabel("Search the operations").waitFor()
        expect(await page.getByLabel("Python", { exact: true }).isChecked()).toBe(true)
        await page.setViewportSize({ width: 1366, height: 768 })
        const box = async (part: string) => (await test.locator(part).boundingBox())!
        expect((await box(".side")).x).toBeGreaterThan((await box(".fields")).x + 300)
      })
      expect(faults).toEqual([])
    })

    it.effect("finds what descriptions and fields speak of, and leads to the field", function* () {
      const { faults, page } = yield* openDocs("/docs")
      yield* Effect.promise(async () => {
        const search = page.getByLabel("Search the operations")
        const item = (name: string) => page.locator("nav li:visible", { hasText: name })
        await search.fill("rate limit")
        await page.getByText(/^\d+ found, \d+ fields$/).waitFor()
        const field = item("Create an API key of an org").getByRole("button", { name: "rateLimit", exact: true })
        await field.waitFor()
        // "generate" has no "rate", and most operations have no rate limit of their own.
        expect(await page.locator("nav li:visible").count()).toBeLessThan(25)
        await expectAccessible(page)
        await field.press("Enter")
        const term = page.locator("dt:focus")
        expect(await term.locator("code").textContent()).toBe("rateLimit")
        expect(await term.isVisible()).toBe(true)
        await search.fill("signing secret")
        await item("Change a webhook endpoint").waitFor()
        await item("Create a webhook endpoint")
          .getByRole("button", { name: "signing_secret", exact: true })
          .first()
          .waitFor()
        for (const width of [390, 768, 1280, 1920, 3840]) {
          await page.setViewportSize({ width, height: 844 })
          expect(await page.evaluate("document.documentElement.scrollWidth"), String(width)).toBe(width)
        }
        await search.press("Escape")
        expect(await page.locator("nav .field").count()).toBe(0)
      })
      expect(faults).toEqual([])
    })

    it.effect("has the colours and distances of the console", function* () {
      const { page } = yield* openDocs("/docs")
      const style = (yield* Effect.promise(() => page.locator("head style").textContent()))!
      const tokensOf = (text: string) =>
        [...text.matchAll(/(--[\w-]+):([^;}]+)/g)].map(([, name, value]) => `${name}:${value!.replace(/\s/g, "")}`)
      const ofConsole = new Set(tokensOf(readFileSync("src/console/styles/tokens.css", "utf8")))
      expect(tokensOf(style).length).toBeGreaterThan(15)
      expect(tokensOf(style).filter((token) => !ofConsole.has(token))).toEqual([])
    })

    it.effect("sends requests with a pasted key, which stays in the page, and with a session", function* () {
      const { key, orgId } = yield* makeTenant(adminToken)
      const asKey = yield* openDocs("/docs#webhooks-list")
      yield* Effect.promise(async () => {
        const list = article(asKey.page, "webhooks-list")
        await list.getByText("Try it").click()
        await list.getByRole("button", { name: "Send the request" }).click()
        await list.getByText(/^401 /).waitFor()
        await list.getByLabel(/^API key or token/).fill(key)
        await list.getByRole("button", { name: "Send the request" }).click()
        await list.getByText(/^200 .*"webhook_endpoints": \[\]/s).waitFor()
        await expectAccessible(asKey.page)
        expect(await asKey.page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })")).not.toContain(key)
        expect(asKey.page.url()).not.toContain(key)
      })
      const { headers } = yield* signIn(adminToken)
      const asSession = yield* openDocs("/docs", headers)
      yield* Effect.promise(async () => {
        const create = article(asSession.page, "events-publish")
        await create.getByText("Try it").click()
        await create.getByLabel(/^x-org-id/).fill(orgId)
        await create.getByLabel("Body (JSON)").fill('{"type":"invoice.paid","data":{"n":1}}')
        await create.getByRole("button", { name: "Send the request" }).click()
        await create.getByText(/^200 .*event_id/s).waitFor()
        const live = article(asSession.page, "live-follow")
        await live.getByText("Try it").click()
        await live.getByRole("button", { name: "Send the request" }).click()
        await live.getByText(/event: reset/).waitFor()
        await live.getByRole("button", { name: "Stop" }).click()
        await live.getByText(/Stopped\.$/).waitFor()
      })
      expect([...asKey.faults, ...asSession.faults]).toEqual([])
    })

    it.effect("the portal's page has its operations, and sends requests with the portal's session", function* () {
      const tenant = yield* makeTenant(adminToken)
      const { headers } = yield* openPortal(yield* portalLink(tenant.headers))
      const { faults, page } = yield* openDocs("/docs/portal", headers)
      yield* Effect.promise(async () => {
        await expectAccessible(page)
        const list = article(page, "webhooks-list")
        await list.getByText("Try it").click()
        await list.getByText(/session \(portal\)/).waitFor()
        await list.getByRole("button", { name: "Send the request" }).click()
        await list.getByText(/^200 /).waitFor()
      })
      expect(faults).toEqual([])
    })
  })
})

describe.skipIf(!hasBrowser)("/docs in a browser", () => {
  it.live(
    "shows the operations under its own content security policy, from files of this server, also without its script",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestServer
        const page = yield* browserPage
        yield* Effect.promise(async () => {
          const faults: Array<string> = []
          const asked: Array<string> = []
          page.on("pageerror", (error) => void faults.push(error.message))
          page.on("console", (message) => void (message.type() === "error" && faults.push(message.text())))
          page.on("request", (request) => void asked.push(request.url()))
          await page.route("**/docs.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }))
          await page.goto(`${url}/docs`)
          await page.getByText("Validate an API key").first().waitFor()
          expect(await page.getByLabel("Search the operations").count()).toBe(0)
          // The samples of one language, selected without a script.
          const visible = (language: string) => page.locator(`.sample.${language}:visible`).count()
          expect([(await visible("curl")) > 10, await visible("go")]).toEqual([true, 0])
          await page.getByLabel("Go", { exact: true }).check()
          expect([await visible("curl"), (await visible("go")) > 10]).toEqual([0, true])
          for (const width of [390, 768, 1200]) {
            await page.setViewportSize({ width, height: 844 })
            expect(await page.evaluate("document.documentElement.scrollWidth"), String(width)).toBe(width)
          }
          // A browser requests /favicon.ico some time after the page, unless the page names an icon.
          expect(await page.locator('head link[rel="icon"]').getAttribute("href")).toMatch(/^data:image\/svg\+xml,/)
          expect(faults).toEqual([])
          expect(asked.filter((one) => !/^(data|blob):/.test(one) && !one.startsWith(url))).toEqual([])
        })
      }).pipe(Effect.scoped, Effect.provide(TestServer.layer({}))),
  )
})
