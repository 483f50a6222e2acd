import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { until } from "../support/wait.ts"
import { consoles, inTab, openTab, withConsole, typeInto } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"
import { createOrg } from "./world.ts"

/** Promise (Console): The keyboard alone creates a key; a dialog keeps the focus and returns it. */

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

withConsole("with the keyboard alone", consoles["the embedded database"], (it) => {
  it.effect("a key is created; a dialog keeps the focus and returns it", function* () {
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
        const isInside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        expect(await page.evaluate(isInside)).toBe(true)
      }
      await page.keyboard.press("Escape")
      await page.getByRole("dialog").waitFor({ state: "detached" })
      // The focus returns after the dialog has left the page.
      await expect.poll(() => focused(page)).toBe("Create key")

      await page.keyboard.press("Enter")
      await typeInto(page.getByRole("dialog").getByLabel("Name"), "by keyboard")
      await page.keyboard.press("Enter")
      await page.getByText("It is not shown again").waitFor()
      await page.getByLabel("I have copied the key").focus()
      await page.keyboard.press("Space")
      await tabTo(page, "Done")
      await page.keyboard.press("Enter")
      await page.getByRole("link", { name: "by keyboard" }).waitFor()
    })
  })

  it.effect("the menu of a narrow screen opens, leads to a page, and closes", function* () {
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
  })

  it.effect("the focus stays on the page after each action, and j goes on after what was resent", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 500 })
    for (const type of ["first.made", "second.made", "third.made"]) yield* world.publish(type)
    yield* until("the failures", world.deliveries({ state: "failed" }), (found) => found.length === 3)
    world.receiver.behave({ status: 200 })
    const { job_id } = yield* world.call("jobs/create", { workflow: "report", max_attempts: 1 })
    yield* world.call("jobs/claim", { workflow: "report" })
    yield* world.call("jobs/fail", { job_id, error: "no total" })
    yield* inTab(world.path("/deliveries?state=failed"), async (page, at) => {
      const isKept = "document.activeElement.closest('main, dialog') !== null"
      /** Presses a button by keyboard, waits for what the page says then, and for the focus. */
      const press = async (name: string, then: string | RegExp) => {
        await page.getByRole("button", { name, exact: true }).last().focus()
        await page.keyboard.press("Enter")
        await page.getByText(then).first().waitFor()
        await expect.poll(() => page.evaluate(isKept), { message: `after ${name}` }).toBe(true)
      }
      const panel = page.getByRole("complementary", { name: "The delivery beside the list" })
      await page.getByRole("link", { name: "third.made" }).focus()
      await page.keyboard.press("j")
      await panel.getByRole("heading", { level: 2, name: "third.made" }).waitFor()
      await press("Resend", "A delivery that the list does not show")
      await page.keyboard.press("j")
      await panel.getByRole("heading", { level: 2, name: "second.made" }).waitFor()

      await page.goto(at(world.path(`/jobs/${job_id}`)))
      await press("Retry", "The job is queued again.")
      await press("Cancel job", "Cancel this job?")
      await press("Cancel the job", "The job is canceled.")
      await page.goto(at(world.path(`/endpoints/${id}`)))
      await press("Deactivate", "Deactivate this endpoint?")
      await press("Deactivate", "Somebody deactivated it.")
      await press("Activate again", "The endpoint is active again.")
      await press("Cancel", /^(?!.*are resent)/)
      await press("Edit", "Edit the endpoint")
      await page.getByLabel("Description").fill("Production")
      await press("Save", "Production")
      await page.goto(at(world.path("/keys")))
    })
  })

  it.effect("a year is typed, digit by digit, in a filter and in a form", function* () {
    const orgId = yield* createOrg("Acme")
    const retype = async (page: Page, label: string, year: string) => {
      const date = page.getByLabel(label, { exact: true })
      await date.fill("2030-03-04T05:06")
      await date.focus()
      for (const key of ["Tab", "Tab", ...year]) await page.keyboard.press(key)
      return date.inputValue()
    }
    yield* inTab(`/orgs/${orgId}/deliveries`, async (page, at) => {
      await page.getByRole("button", { name: /^Time / }).press("Enter")
      expect(await retype(page, "From", "2024")).toBe("2024-03-04T05:06")
      await page.goto(at(`/orgs/${orgId}/keys?new`))
      await page.getByText("End, credits and more").click()
      // A fifth digit is none of the year: it goes on with the hour.
      expect(await retype(page, "Ends at", "20311")).toMatch(/^2031-03-04T/)
      await page.getByLabel("Name", { exact: true }).fill("k")
    })
  })

  it.effect("a wrong sign-in leaves the focus in its form", function* () {
    const { at, page } = yield* openTab
    yield* Effect.promise(async () => {
      await page.goto(at("/orgs"))
      await page.getByLabel("The administrator's token, or an API key").fill("wrong")
      await page.getByRole("button", { name: "Sign in" }).press("Enter")
      await page.getByText("This token or key is not valid.").waitFor()
      expect(await page.evaluate("document.activeElement.closest('form') !== null")).toBe(true)
    })
  })
})
