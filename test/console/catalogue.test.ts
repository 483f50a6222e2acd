import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { consoles, expectAccessible, expectFits, signedInTab, withConsoles } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"

withConsoles("the catalogue", consoles, (it) => {
  it.effect("a type is added from the events, shown with its example, tested, changed and deleted", function* () {
    const world = yield* webhookWorld
    const endpoint = yield* world.endpoint()
    const { at, page } = yield* signedInTab(world.path("/events"))
    yield* Effect.promise(async () => {
      await page.getByRole("link", { name: "Catalogue" }).click()
      await page.getByRole("heading", { name: "No event type yet" }).waitFor()
      await expectAccessible(page)
      await page.getByRole("button", { name: "Add an event type" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Type", { exact: true }).fill("invoice.paid")
      await dialog.getByLabel("Group").fill("Billing")
      await dialog.getByLabel("JSON Schema").fill('{"type":"object","required":["invoice"]}')
      await dialog.getByLabel("Example").fill("{}")
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Add event type" }).click()
      await dialog.getByText(/must be present/).waitFor()
      await dialog.getByLabel("Example").fill('{"invoice":"in_42"}')
      await dialog.getByRole("button", { name: "Add event type" }).click()
      await page.getByText('"invoice": "in_42"').waitFor()
      await page.getByRole("table", { name: "Event types" }).getByRole("link", { name: "invoice.paid" }).waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await page.getByRole("button", { name: "Edit" }).click()
      await dialog.getByLabel("Description").fill("An invoice was paid.")
      await dialog.getByLabel("Version").fill("2")
      await dialog.getByText("Deprecated:").click()
      const saved = page.waitForRequest("**/event-types/update")
      await dialog.getByRole("button", { name: "Save" }).click()
      await page.getByText("Schema, version 2").waitFor()
      // Somebody else may have changed the rest.
      expect((await saved).postDataJSON()).toEqual({
        name: "invoice.paid",
        description: "An invoice was paid.",
        deprecated: true,
        schemas: { "2": { type: "object", required: ["invoice"] } },
      })
      await page.getByText("1, 2").waitFor()
      await page.getByRole("link", { name: "Add an endpoint for it" }).click()
      const types = page.getByRole("dialog").getByLabel("Event types")
      await expect.poll(() => types.inputValue()).toBe("invoice.paid")
    })
    yield* Effect.promise(async () => {
      await page.goto(at(world.path(`/endpoints/${endpoint}`)))
      await page.getByRole("button", { name: "Send a test" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Event type").selectOption("invoice.paid")
      await dialog.getByRole("button", { name: /Send/ }).click()
      await dialog.getByText('"invoice": "in_42"').waitFor()
    })
    const bodies = world.receiver.received.map(({ body }) => (JSON.parse(body.toString()) as { data?: object }).data)
    expect(bodies.at(-1)).toEqual({ invoice: "in_42" })
    yield* Effect.promise(async () => {
      await page.goto(at(world.path("/catalogue?type=invoice.paid")))
      await page.getByRole("button", { name: "Delete the event type invoice.paid" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Delete event type" }).click()
      await page.getByRole("heading", { name: "No event type yet" }).waitFor()
    })
  })

  it.effect("the portal shows the catalogue with examples, and changes nothing", function* () {
    const world = yield* webhookWorld
    yield* world.call("event-types/create", { name: "invoice.paid", example: { invoice: "in_42" } })
    const { at, page } = yield* signedInTab(world.path("/portal"))
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Make a link" }).click()
      await page.getByText("Copy the link now: it is shown once.").waitFor()
      const link = String(await page.getByRole("region", { name: "Link", exact: true }).textContent())
      await page.goto(at(`/portal${new URL(link.trim()).hash}`))
      await page.getByRole("button", { name: "Open" }).click()
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Events" }).click()
      await page.getByRole("link", { name: "Catalogue" }).click()
      await page.getByRole("link", { name: "invoice.paid" }).click()
      await page.getByText('"invoice": "in_42"').waitFor()
      await expectAccessible(page)
      await expect.poll(() => page.getByRole("button", { name: /Edit|Delete|Add/ }).count()).toBe(0)
    })
  })
})
