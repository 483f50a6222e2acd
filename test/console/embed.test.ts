import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import type { Page } from "playwright-core"
import { afterAll } from "vitest"
import { makeProduct, type ProductOptions } from "../../examples/portal/server.ts"
import { Browser } from "../support/browser.ts"
import { must } from "../http/operations.ts"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoleWith, expectAccessible, isAnswer, painted, withConsole } from "./support.ts"

/**
 * Promise (Portal): The portal runs in a frame of another site: with its colors, logo, language and theme, without a
 * cookie, and without its session in an address. It is refused to pages of other origins, and hears no other window.
 */

const options: { current: ProductOptions } = { current: { gatehouse: "", key: "" } }
const servers: Array<Server> = []
/** Listens on localhost: to a browser another site than Gatehouse at 127.0.0.1. */
const originOf = (server: Server) =>
  Effect.promise(async () => {
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, "localhost", resolve))
    return `http://localhost:${(server.address() as AddressInfo).port}`
  })
afterAll(() => servers.forEach((server) => (server.closeAllConnections(), server.close())))

const origins = { product: "", stranger: "" }
const product = Effect.gen(function* () {
  origins.product = yield* originOf(makeProduct(() => options.current))
  origins.stranger = yield* originOf(makeProduct(() => options.current))
  return { PORTAL_ORIGINS: `https://app.example.com,${origins.product}`, PORTAL_NAME: "Platform" }
})

/** A tab at the product, whose requests and faults are kept. */
const openProduct = Effect.gen(function* () {
  const { send, url } = yield* TestServer
  const tenant = yield* makeTenant(adminToken)
  options.current = { gatehouse: url, key: tenant.key }
  const page = yield* Effect.flatMap(Browser, ({ open }) => open)
  const asked: Array<string> = []
  const faults: Array<string> = []
  const cookies: Array<string> = []
  page.on("request", (request) => void asked.push(request.url()))
  page.on("response", (response) => {
    if (response.headers()["set-cookie"] !== undefined) cookies.push(response.url())
  })
  page.on("pageerror", (error) => void faults.push(error.message))
  // A page may ask once more for what was just deleted.
  page.on("console", (message) => {
    if (message.type() === "error" && !isAnswer(message.text())) faults.push(message.text())
  })
  return { page, tenant, asked, faults, cookies, send, url }
})

/** The frame of the portal, for scripts of the test. */
const portalOf = (page: Page) => page.frames().find((frame) => frame.url().includes("/portal/embed"))!
const inFrame = (page: Page) => page.frameLocator("gatehouse-portal iframe")

/** A page that shows the frame by itself, and says what it hears. */
const bare = (src: string) =>
  createServer((_, response) =>
    response
      .writeHead(200, { "content-type": "text/html" })
      .end(`<!doctype html><title>bare</title><iframe title="f" src="${src}"></iframe>`),
  )

withConsole("the portal in a frame of a product", consoleWith(product, "embedded"), (it) => {
  it.effect("shows the look of the product, and makes, renames, rotates and revokes keys of one holder", function* () {
    const { asked, cookies, faults, page, send, tenant } = yield* openProduct
    const { orgId } = tenant
    const others = { name: "of another", externalId: "customer_7" }
    yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { as: adminToken, json: others })
    const frame = inFrame(page)
    yield* Effect.promise(async () => {
      await page.goto(`${origins.product}/`)
      await frame.getByRole("heading", { name: "Endpoints" }).waitFor()
      // Look.
      await expect.poll(() => frame.locator(".brand").first().textContent()).toBe("Acme")
      const logo = frame.locator(".sidebar .brand img")
      await expect.poll(() => logo.evaluate((img: { naturalWidth: number }) => img.naturalWidth)).toBeGreaterThan(0)
      const button = 'getComputedStyle(document.querySelector("main .button.primary")).backgroundColor'
      const ground = () => portalOf(page).evaluate(button)
      await expect.poll(ground).toBe("rgb(11, 87, 164)")
      await expect.poll(() => frame.locator("html").getAttribute("data-theme")).toBe("light")
      await page.getByRole("button", { name: "Dark" }).click()
      await expect.poll(() => frame.locator("html").getAttribute("data-theme")).toBe("dark")
      await page.getByRole("button", { name: "Deutsch" }).click()
      await frame.getByRole("heading", { name: "Endpunkte" }).waitFor()
      await frame.getByRole("link", { name: "API-Schlüssel" }).waitFor()
      await expect.poll(() => frame.locator("html").getAttribute("lang")).toBe("de")
      await page.getByRole("button", { name: "English" }).click()
      // Keys.
      await frame.getByRole("link", { name: "API keys" }).click()
      await frame.getByText("There is no key yet").waitFor()
      await frame.getByRole("button", { name: "Create key" }).first().click()
      const dialog = frame.getByRole("dialog")
      await dialog.getByLabel("Name").fill("laptop")
      await dialog.getByLabel("files.write").uncheck()
      await expectAccessible(page, portalOf(page))
      await dialog.getByRole("button", { name: "Create key" }).click()
      const secret = (await dialog.locator("[data-secret]").textContent())!
      await dialog.getByRole("checkbox").check()
      await dialog.getByRole("button", { name: "Done" }).click()
      await frame.getByRole("link", { name: "laptop" }).waitFor()
      await expect.poll(() => frame.getByText("of another").count()).toBe(0)
      return secret
    }).pipe(
      Effect.flatMap((key) =>
        Effect.gen(function* () {
          const used = { json: { key, permissions: ["files.read"], details: true }, as: tenant.key }
          const validated = yield* must(send, "POST", "/api/v0/keys/validate", used)
          expect(validated).toMatchObject({ externalId: "customer_42", permissions: ["files.read"] })
          return key
        }),
      ),
      Effect.flatMap((key) =>
        Effect.promise(async () => {
          await frame.getByRole("link", { name: "laptop" }).click()
          await frame.getByRole("heading", { name: "laptop" }).waitFor()
          await expect.poll(() => frame.getByRole("button", { name: "Disable" }).count()).toBe(0)
          await frame.getByRole("button", { name: "Edit" }).click()
          await frame.getByLabel("Name").fill("desktop")
          await frame.getByRole("button", { name: "Save" }).click()
          await frame.getByRole("heading", { name: "desktop" }).waitFor()
          await expectAccessible(page, portalOf(page))
          await frame.getByRole("button", { name: "Rotate" }).click()
          await frame.getByLabel("The old key stays valid for").selectOption("0")
          await frame.getByRole("button", { name: "Rotate key" }).click()
          const rotated = (await frame.locator("[data-secret]").textContent())!
          expect(rotated).not.toBe(key)
          await frame.getByRole("checkbox").check()
          await frame.getByRole("button", { name: "Done" }).click()
          await frame.getByRole("heading", { name: "desktop" }).waitFor()
          await frame.getByRole("button", { name: "Delete", exact: true }).click()
          await frame.getByRole("dialog").getByRole("textbox").fill("desktop")
          await frame.getByRole("button", { name: "Delete key" }).click()
          await frame.getByRole("heading", { name: "API keys" }).waitFor()
          return rotated
        }),
      ),
      Effect.flatMap((rotated) =>
        Effect.gen(function* () {
          const { status } = yield* send("POST", "/api/v0/keys/validate", { json: { key: rotated } })
          expect(status).toBe(401)
        }),
      ),
    )
    expect(yield* Effect.promise(() => portalOf(page).evaluate("document.cookie"))).toBe("")
    const stored = yield* Effect.promise(() => page.context().cookies())
    expect([cookies, stored]).toEqual([[], []])
    expect(asked.filter((one) => /[0-9a-f]{64}/.test(one))).toEqual([])
    expect(faults).toEqual([])
  })

  it.effect("asks for another token when the session has ended, and goes on where the reader was", function* () {
    const { page, send, tenant } = yield* openProduct
    const made = yield* must(send, "POST", `/api/v0/orgs/${tenant.orgId}/keys`, {
      as: adminToken,
      json: { name: "first" },
    })
    options.current = { ...options.current, key: made["key"] as string }
    const frame = inFrame(page)
    yield* Effect.promise(async () => {
      await page.goto(`${origins.product}/`)
      await frame.getByRole("link", { name: "Events" }).click()
      await frame.getByText("It appears here as soon as it happens.").waitFor()
    })
    options.current = { ...options.current, key: tenant.key }
    yield* must(send, "DELETE", `/api/v0/orgs/${tenant.orgId}/keys/${made["id"] as string}`, { as: adminToken })
    yield* Effect.promise(async () => {
      const [token] = await Promise.all([
        page.waitForResponse((response) => response.url().endsWith("/portal-token")),
        frame.getByRole("link", { name: "Deliveries" }).click(),
      ])
      expect(token.status()).toBe(200)
      await frame.getByRole("heading", { name: "Deliveries" }).waitFor()
      await expect.poll(() => frame.getByRole("dialog").count()).toBe(0)
      await expect.poll(() => frame.getByText("Nothing was delivered yet").count()).toBeGreaterThan(0)
    })
  })

  it.effect("opens with the same token once the service answers, after it did not", function* () {
    const { page } = yield* openProduct
    const frame = inFrame(page)
    yield* Effect.promise(async () => {
      const json = { error: "The database is not available.", code: "unavailable" }
      await page.route("**/api/v0/sessions/portal", (route) => route.fulfill({ status: 503, json }))
      await page.goto(`${origins.product}/`)
      await frame.getByText("The database is not available.").waitFor()
      await page.unroute("**/api/v0/sessions/portal")
      await frame.getByRole("button", { name: "Try again" }).click()
      await frame.getByRole("heading", { name: "Endpoints" }).waitFor()
    })
  })

  it.effect("fits a phone, and works with the keyboard alone", function* () {
    const { page } = yield* openProduct
    const frame = inFrame(page)
    yield* Effect.promise(async () => {
      await page.setViewportSize({ width: 360, height: 780 })
      await page.goto(`${origins.product}/`)
      await frame.getByRole("heading", { name: "Endpoints" }).waitFor()
      for (const width of [360, 412, 768]) {
        await page.setViewportSize({ width, height: 780 })
        const tooWide = () => portalOf(page).evaluate("document.documentElement.scrollWidth - innerWidth")
        await expect.poll(tooWide, { message: `at ${width}` }).toBeLessThanOrEqual(1)
      }
      await expectAccessible(page, portalOf(page))
      await page.setViewportSize({ width: 1280, height: 900 })
      await page.locator("#language").focus()
      await page.keyboard.press("Tab")
      await expect.poll(() => frame.locator(":focus").textContent()).toBe("Skip to the page")
      const onKeys = () => frame.locator(":focus").textContent()
      for (let i = 0; i < 15 && (await onKeys()) !== "API keys"; i++) await page.keyboard.press("Tab")
      await page.keyboard.press("Enter")
      await frame.getByRole("heading", { name: "API keys" }).waitFor()
    })
  })

  it.effect("is refused to a page of another origin, and hears no other window", function* () {
    const { page, send, tenant, url } = yield* openProduct
    yield* Effect.promise(async () => {
      await page.goto(`${origins.stranger}/`)
      await page.locator("gatehouse-portal").waitFor()
      await expect.poll(() => page.frames().some((frame) => frame.url().startsWith("chrome-error:"))).toBe(true)
    })
    // A console, and the page by itself, are in no frame at all.
    const inConsole = yield* originOf(bare(`${url}/console`))
    yield* Effect.promise(async () => {
      await page.goto(inConsole)
      await expect.poll(() => page.frames().some((frame) => frame.url().startsWith("chrome-error:"))).toBe(true)
    })
    const { json } = yield* send("POST", "/v1/portal/link", { json: {}, headers: tenant.headers })
    const { token } = json as { readonly token: string }
    yield* Effect.promise(async () => {
      const opened: Array<string> = []
      page.on("request", (request) => void (request.method() === "POST" && opened.push(request.url())))
      await page.goto(`${url}/portal/embed`)
      await page.locator(".layout").waitFor()
      // As its own parent, with the right message: the origin is none of those that may.
      await page.evaluate(
        (token) =>
          (globalThis as never as { postMessage: (m: object) => void }).postMessage({ gatehouse: "token", token }),
        token,
      )
      // Messages arrive in their order: this one after that one.
      await page.evaluate("new Promise((done) => (addEventListener('message', done, { once: true }), postMessage(0)))")
      expect(opened).toEqual([])
      // A frame beside it, of the same origin as the page around it.
      await page.goto(`${origins.product}/`)
      const brand = inFrame(page).locator(".brand").first()
      await expect.poll(() => brand.textContent()).toBe("Acme")
      const rename = `(name) => document.querySelector("gatehouse-portal").shadowRoot.firstElementChild.contentWindow
            .postMessage({ gatehouse: "settings", settings: { name } }, "*")`
      await page.evaluate(`(() => {
            const other = document.body.appendChild(document.createElement("iframe"))
            other.contentWindow.eval(${JSON.stringify(`globalThis.rename = ${rename.replace("document", "parent.document")}`)})
            other.contentWindow.eval("rename('Mallory')")
          })()`)
      await portalOf(page).evaluate(painted)
      await expect.poll(() => brand.textContent()).toBe("Acme")
      await page.evaluate(`(${rename})("Renamed")`)
      await expect.poll(() => brand.textContent()).toBe("Renamed")
    })
  })

  it.effect("says which settings are wrong, and takes the others", function* () {
    const { page } = yield* openProduct
    const frame = inFrame(page)
    yield* Effect.promise(async () => {
      await page.goto(`${origins.product}/`)
      await frame.getByRole("heading", { name: "Endpoints" }).waitFor()
      const faultOf = async (name: string, value: string) => {
        await page
          .locator("gatehouse-portal")
          .evaluate(
            (portal, [name, value]) =>
              (portal as never as { setAttribute: (n: string, v: string) => void }).setAttribute(name!, value!),
            [name, value],
          )
        await expect.poll(() => page.getByRole("status").textContent()).toMatch(new RegExp(`^${name} must be .+\\.$`))
      }
      await faultOf("color", "url(https://example.com)")
      await faultOf("logo", "javascript:alert(1)")
      await expect.poll(() => frame.locator(".brand").first().textContent()).toBe("Acme")
    })
  })
})

withConsole("a service without PORTAL_ORIGINS", consoleWith(Effect.succeed({}), "embedded"), (it) => {
  it.effect("/portal/embed says what to set, and no page may frame it", function* () {
    const { send } = yield* TestServer
    const answer = yield* send("GET", "/portal/embed")
    expect([answer.status, answer.text]).toEqual([403, expect.stringMatching(/Set PORTAL_ORIGINS .+\./)])
    expect(answer.headers["content-security-policy"]).toContain("frame-ancestors 'none'")
  })
})
