import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import type { Receiver } from "../support/receiver.ts"
import { portalLink } from "../http/sessions/signedIn.ts"
import { must } from "../http/operations.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoleWith, expectAccessible, expectFits, inTab, openTab, withConsole } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"

/**
 * Promise (Portal): A signing secret is shown once, and signs from then on; the code that verifies it accepts genuine
 * webhooks and refuses others.
 */

const picture =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" style="fill:#767676"/></svg>'

/** The look of a platform, with the brightest grey that white text may stand on. */
const branded = Effect.sync(() => {
  const logo = join(mkdtempSync(join(tmpdir(), "portal-")), "logo.svg")
  writeFileSync(logo, picture)
  return {
    PORTAL_NAME: "Acme & Sons",
    PORTAL_LOGO: logo,
    PORTAL_COLOR: "#767676",
    PORTAL_TEXT: 'Here you say where "Acme" sends its events.',
    PORTAL_HELP_URL: "https://example.com/docs",
  }
})

const nameOfOrg = (page: Page, name: string) => page.locator(".sidebar .switcher", { hasText: name }).waitFor()

/** Fails unless the newest request at a receiver has a signature with the secret. */
const isSignedWith = ({ received }: Receiver, secret: string) =>
  Effect.promise(() => {
    const { body, headers } = received.at(-1)!
    return verifyWebhook({ headers, body }, secret)
  })

withConsole("the portal", consoleWith(branded, "embedded"), (it) => {
  it.effect("has the look of the platform and the name of the tenant, and the console has its own look", function* () {
    const { headers, orgId } = yield* webhookWorld
    const { send } = yield* TestServer
    yield* must(send, "PATCH", `/api/v0/orgs/${orgId}`, { as: adminToken, json: { name: "Tenant One" } })
    const token = yield* portalLink(headers)
    const { at, page } = yield* openTab
    yield* Effect.promise(async () => {
      await page.goto(at(`/portal#${token}`))
      await page.getByRole("heading", { name: "Open your webhooks of Acme & Sons" }).waitFor()
      await page.getByText('Here you say where "Acme" sends its events.').waitFor()
      await expectAccessible(page)
      await page.getByRole("button", { name: "Open" }).click()
      await nameOfOrg(page, "Tenant One")
      await expect.poll(() => page.title()).toBe("Endpoints · Acme & Sons")
      const logo = page.locator(".sidebar .brand img")
      await expect.poll(() => logo.getAttribute("src")).toBe("/console/portal-logo.svg")
      await expect.poll(() => logo.evaluate((img: { naturalWidth: number }) => img.naturalWidth)).toBeGreaterThan(0)
      const button = 'getComputedStyle(document.querySelector("main .button.primary")).backgroundColor'
      await expect.poll(() => page.evaluate(button)).toBe("rgb(118, 118, 118)")
      await expectAccessible(page)
      await expectFits(page)
      await page.locator(".sidebar-foot summary").click()
      await expect
        .poll(() => page.getByRole("link", { name: "Help" }).getAttribute("href"))
        .toBe("https://example.com/docs")
      await expect
        .poll(() => page.getByRole("link", { name: "API reference" }).getAttribute("href"))
        .toBe("/docs/portal")
      await page.getByRole("link", { name: "Events" }).click()
      await page.getByText("It appears here as soon as it happens.").waitFor()
      await expect.poll(() => page.getByText("job", { exact: false }).count()).toBe(0)
    })
    const answer = yield* send("GET", "/console/portal-logo.svg")
    expect([answer.headers["content-type"], answer.headers["content-security-policy"], answer.text]).toEqual([
      "image/svg+xml",
      expect.stringContaining("sandbox"),
      picture,
    ])
    yield* inTab("/orgs", async (page) => {
      await page.getByRole("link", { name: "Gatehouse, home" }).first().waitFor()
      await expect.poll(() => page.title()).toBe("Orgs · Gatehouse")
    })
  })

  it.effect("shows a secret once after adding and after rotating, and code that verifies with it", function* () {
    const world = yield* webhookWorld
    const token = yield* portalLink(world.headers)
    const { at, page } = yield* openTab
    const shown = yield* Effect.promise(async () => {
      await page.goto(at(`/portal#${token}`))
      await page.getByRole("button", { name: "Open" }).click()
      await page.getByRole("button", { name: "Add endpoint" }).first().click()
      await page.getByLabel("URL", { exact: true }).fill("https://localhost:9/hooks")
      await page.getByRole("dialog").getByRole("button", { name: "Add endpoint" }).click()
      const dialog = page.getByRole("dialog", { name: "Copy the signing secret" })
      const made = await dialog.getByText(/^whsec_/).textContent()
      await dialog.getByLabel("Verify webhooks in").selectOption("Ruby")
      await dialog.getByText("OpenSSL::HMAC").waitFor()
      await expect.poll(() => dialog.locator("pre mark").textContent()).toBe("WEBHOOK_SECRET")
      await expectAccessible(page)
      await page.keyboard.press("Escape")
      await dialog.getByRole("button", { name: "I have copied it" }).click()
      await page.getByRole("heading", { level: 1, name: "localhost:9/hooks" }).waitFor()
      expect(await page.content()).not.toContain(made)
      return made!
    })
    const id = page.url().split("/").at(-1)!
    yield* world.pointTo(id)
    yield* world.call("webhooks/test", { id })
    yield* isSignedWith(world.receiver, shown)
    const rotated = yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Rotate secret" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Rotate secret" }).click()
      const dialog = page.getByRole("dialog", { name: "Copy the signing secret" })
      const made = await dialog.getByText(/^whsec_/).textContent()
      await dialog.getByRole("button", { name: "I have copied it" }).click()
      return made!
    })
    expect(rotated).not.toBe(shown)
    yield* world.call("webhooks/test", { id })
    yield* isSignedWith(world.receiver, rotated)
  })

  it.effect("tests an endpoint with any type that it receives, and data of the reader's own", function* () {
    const world = yield* webhookWorld
    yield* world.publish("invoice.paid")
    yield* world.publish("order.made")
    const id = yield* world.endpoint({ event_types: ["invoice.*", "user.gone"] })
    yield* inTab(world.path(`/endpoints/${id}`), async (page) => {
      await page.getByRole("button", { name: "Send a test" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByText("The receiver took it").waitFor()
      await expect
        .poll(() => dialog.getByLabel("Event type").locator("option").allTextContents())
        .toEqual(["The first of the endpoint", "user.gone", "invoice.paid"])
      await dialog.getByLabel("Event type").selectOption("user.gone")
      await dialog.getByLabel("Data").fill("{")
      await dialog.getByText("Not valid JSON").waitFor()
      await dialog.getByLabel("Data").fill('{"user": 7}')
      await dialog.getByRole("button", { name: "Send another test" }).click()
      await dialog.getByText('"user": 7').waitFor()
      await expectAccessible(page)
    })
    const { body, headers } = world.receiver.received.at(-1)!
    expect([headers["x-event-type"], (JSON.parse(String(body)) as { data: unknown }).data]).toEqual([
      "user.gone",
      { user: 7 },
    ])
  })
})
