/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { describe, vi } from "vitest"
import { consoles, hasBrowser, inTab } from "./support.ts"
import { createOrg } from "./world.ts"

const focused = (page: Page) =>
  page.evaluate("(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()")

/** Presses Tab until something has the focus. */
const tabTo = async (page: Page, name: string) => {
  for (let pressed = 0; pressed < 60; pressed++) {
    await page.keyboard.press("Tab")
    if ((await focused(page)) === name) return
  }
  throw new Error(`Tab does not reach ${name}`)
}

describe.skipIf(!hasBrowser)("with the keyboard alone", () => {
  layer(consoles["the embedded database"], { excludeTestServices: true })((it) => {
    it.effect("a key is created; a dialog keeps the focus and returns it", () =>
      Effect.gen(function* () {
        const orgId = yield* createOrg("Acme")
        yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
          await page.getByText("There is no key yet").waitFor()
          await page.keyboard.press("Tab")
          expect(await focused(page)).toBe("Skip to the page")
          await page.keyboard.press("Enter")
          await tabTo(page, "Create key")
          await page.keyboard.press("Enter")
          await page.getByRole("dialog").waitFor()
          for (let pressed = 0; pressed < 12; pressed++) {
            await page.keyboard.press("Tab")
            const isInside =
              "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
            expect(await page.evaluate(isInside)).toBe(true)
          }
          await page.keyboard.press("Escape")
          await page.getByRole("dialog").waitFor({ state: "detached" })
          // The focus returns after the dialog has left the page.
          await vi.waitFor(async () => expect(await focused(page)).toBe("Create key"), {
            timeout: 30_000,
            interval: 50,
          })

          await page.keyboard.press("Enter")
          await page.getByRole("dialog").waitFor()
          await page.keyboard.type("by keyboard")
          await page.keyboard.press("Enter")
          await page.getByText("It is not shown again").waitFor()
          await page.getByLabel("I have copied the key").focus()
          await page.keyboard.press("Space")
          await tabTo(page, "Done")
          await page.keyboard.press("Enter")
          await page.getByRole("link", { name: "by keyboard" }).waitFor()
        })
      }),
    )

    it.effect("the menu of a narrow screen opens, leads to a page, and closes", () =>
      Effect.gen(function* () {
        const orgId = yield* createOrg("Acme")
        yield* inTab(`/orgs/${orgId}`, async (page, at) => {
          await page.setViewportSize({ width: 360, height: 740 })
          await tabTo(page, "Open the menu")
          await page.keyboard.press("Enter")
          await tabTo(page, "API keys")
          await page.keyboard.press("Enter")
          await page.waitForURL(at(`/orgs/${orgId}/keys`))
          await page.getByRole("dialog", { name: "Menu" }).waitFor({ state: "hidden" })
          await page.getByRole("heading", { name: "API keys" }).waitFor()
        })
      }),
    )
  })
})
