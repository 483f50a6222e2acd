import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { consoles, expectAccessible, expectFits, inTab, signedInTab, withConsoles } from "./support.ts"
import { expectShownAsText, hostile, webhookWorld } from "./webhookWorld.ts"

withConsoles("events", consoles, (it) => {
  it.effect("publishes a test event, follows it to its delivery, and finds it by its type", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    const { page } = yield* signedInTab(world.path("/events"))
    yield* Effect.promise(async () => {
      await page.getByRole("heading", { name: "No event yet" }).waitFor()
      await expectAccessible(page)
      await page.getByRole("button", { name: "Publish an event" }).first().click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Type").fill("invoice.paid")
      await dialog.getByLabel("Data").fill('{"invoice":"in_42"}')
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Publish" }).click()
      await page.getByRole("heading", { level: 1, name: "invoice.paid" }).waitFor()
      await page.getByText("Delivered", { exact: true }).waitFor()
      await page.getByText('"invoice": "in_42"').waitFor()
      await expectAccessible(page)
      await expectFits(page)
    })
    const [request] = world.receiver.received
    expect(request!.headers["x-event-type"]).toBe("invoice.paid")
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Publish a copy" }).click()
      const dialog = page.getByRole("dialog")
      await expect.poll(() => dialog.getByLabel("Type").inputValue()).toBe("invoice.paid")
      expect(JSON.parse(await dialog.getByLabel("Data").inputValue())).toEqual({ invoice: "in_42" })
      await expectAccessible(page)
      await dialog.getByLabel("Data").fill('{"invoice":"in_43"}')
      await dialog.getByRole("button", { name: "Publish" }).click()
      await page.getByText('"invoice": "in_43"').waitFor()
      await page.getByText("Delivered", { exact: true }).waitFor()
    })
    yield* world.publish("customer.updated")
    yield* Effect.promise(async () => {
      await page.getByRole("link", { name: "Events" }).first().click()
      await page.getByRole("table", { name: "Types of events" }).getByRole("link", { name: "customer.updated" }).click()
      await page.waitForURL(/type=customer.updated$/)
      const rows = page.getByRole("table", { name: "Events", exact: true }).locator("tbody tr")
      await expect.poll(() => rows.count()).toBe(1)
    })
  })

  it.effect(
    "a payload has colours, numbers of lines and parts to fold, and a large one renders a part at a time",
    function* () {
      const world = yield* webhookWorld
      const small = { name: 'a "b": {', paid: true, total: 12.5, lines: [{ id: 1 }, { id: 2 }], none: {} }
      const of = yield* world.publish("invoice.paid", small)
      const members = Array.from({ length: 20_000 }, (_, i) => i % 10)
      const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`k${i}`, [i]]))
      const large = yield* world.publish("invoice.many", { members, many })
      yield* inTab(world.path(`/events/${of}`), async (page, at) => {
        const payload = page.getByRole("region", { name: "Payload" })
        const shown = async () => JSON.parse((await payload.textContent())!)
        await payload.waitFor()
        expect((await shown()).data).toEqual(small)
        const lines = payload.locator("[data-line]")
        const count = await lines.count()
        // A line that only closes belongs to no other; each line has its number.
        await expect
          .poll(() => lines.evaluateAll((all) => all.map((one) => one.getAttribute("data-line"))))
          .toEqual(Array.from({ length: count }, (_, i) => String(i + 1)))
        const colour = (text: string) =>
          payload
            .getByText(text, { exact: true })
            .last()
            .evaluate((one) => one.ownerDocument.defaultView!.getComputedStyle(one).color)
        const colours = await Promise.all(['"paid"', "true", "12.5", '"invoice.paid"'].map(colour))
        expect(new Set(colours).size).toBe(4)
        await expectAccessible(page)
        // By keyboard, a part folds to one line that says what it hides.
        const part = payload.locator("summary", { hasText: '"lines"' })
        await part.press("Enter")
        await expect.poll(() => part.innerText()).toBe('    "lines": [ … ], 6 lines')
        await expect.poll(() => lines.count()).toBe(count - 7)
        await part.press("Enter")
        await expect.poll(() => lines.count()).toBe(count)
        await expectFits(page)

        await page.goto(at(world.path(`/events/${large}`)))
        const data = payload.locator("summary", { hasText: '"data"' })
        await data.getByText(/lines$/).waitFor()
        const isFew = () => expect.poll(() => payload.locator("*").count()).toBeLessThan(2_000)
        await isFew()
        await data.click()
        await payload.locator("summary", { hasText: '"members"' }).click()
        await isFew()
        await payload.getByRole("button", { name: "Show more of 19,801 lines" }).press("Enter")
        await payload.getByRole("button", { name: "Show more of 19,601 lines" }).waitFor()
        await isFew()
        await expectAccessible(page)
      })
    },
  )

  it.effect("an event says which endpoints did not receive it, each with the reason", function* () {
    const world = yield* webhookWorld
    const fields = {
      "all of it": {},
      "other types": { event_types: ["customer.*"] },
      "other channel": { channels: ["blue"] },
      "other values": { filter: { "data.plan": "gold" } },
      inactive: { active: false },
    }
    for (const [description, more] of Object.entries(fields)) yield* world.endpoint({ description, ...more })
    const event_id = yield* world.publish("invoice.paid", { plan: "free" })
    yield* world.endpoint({ description: "too late" })
    yield* inTab(world.path(`/events/${event_id}`), async (page) => {
      const deliveries = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr")
      await expect.poll(() => deliveries.count()).toBe(2)
      await deliveries.filter({ hasText: "Skipped" }).waitFor()
      const others = page.getByRole("table", { name: "Endpoints that did not receive it" })
      const reasons = {
        "other types": "Type: it receives customer.*.",
        "other channel": "Channel: it receives blue; the event has none.",
        "other values": 'Filter: the event does not have {"data.plan":"gold"}.',
        "too late": "It was added after the event.",
      }
      for (const [name, reason] of Object.entries(reasons)) {
        await others.getByRole("row").filter({ hasText: name }).getByText(reason).waitFor()
      }
      await expect.poll(() => others.locator("tbody tr").count()).toBe(4)
      await expectAccessible(page)
      await page.setViewportSize({ width: 390, height: 800 })
      await expectFits(page)
    })
  })

  it.effect("a link opens what its maker chose, and is revoked in the list", function* () {
    const world = yield* webhookWorld
    const { at, page } = yield* signedInTab(world.path("/portal"))
    yield* Effect.promise(async () => {
      await page.getByLabel("Webhooks: all endpoints").uncheck()
      await page.getByText("Choose webhooks, keys, or both.").waitFor()
      await page.getByLabel("API keys of one holder").check()
      await page.getByRole("textbox", { name: "Holder" }).fill("customer_42")
      await page.getByLabel("Keys at most").fill("3")
      await page.getByLabel("Permissions").fill("files.read")
      await expectAccessible(page)
      await page.getByRole("button", { name: "Make a link" }).click()
      const link = String(await page.getByRole("region", { name: "Link", exact: true }).textContent())
      const row = page.getByRole("row").filter({ hasText: "up to 3 keys of customer_42: files.read" })
      await row.getByText("unopened").waitFor()
      await page.setViewportSize({ width: 390, height: 800 })
      await expectFits(page)
      await page.getByRole("button", { name: /^Revoke the link/ }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Revoke link" }).click()
      await row.waitFor({ state: "detached" })
      await page.goto(at(`/portal${new URL(link.trim()).hash}`))
      await page.getByRole("button", { name: "Open" }).click()
      await page.getByRole("alert").waitFor()
    })
  })

  it.effect("a link for a tenant's own people opens the webhooks of the org, and nothing else", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    yield* world.publish("invoice.paid")
    yield* world.receiver.arrived(1)
    const { at, page } = yield* signedInTab(world.path("/portal"))
    const link = yield* Effect.promise(async () => {
      await expectAccessible(page)
      await page.getByRole("button", { name: "Make a link" }).click()
      await page.getByText("Copy the link now: it is shown once.").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      return String(await page.getByRole("region", { name: "Link", exact: true }).textContent())
    })
    yield* Effect.promise(async () => {
      // In the same browser: the session of the portal takes the place of the administrator's.
      await page.goto(at(`/portal${new URL(link.trim()).hash}`))
      await page.getByRole("button", { name: "Open" }).click()
      await page.waitForURL(at(world.path("/endpoints")))
      const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link")
      await expect.poll(() => links.allTextContents()).toEqual(["Endpoints", "Deliveries", "Events"])
      for (const other of ["", "/keys", "/projects", "/jobs", "/audit", "/portal", "/chat", "/settings"]) {
        await page.goto(at(world.path(other)))
        await page.getByRole("heading", { name: "There is no such page" }).waitFor()
      }
      await page.goto(at(world.path("/events")))
      await page.getByRole("link", { name: "invoice.paid" }).first().waitFor()
      await expect.poll(() => page.getByRole("button", { name: "Publish an event" }).count()).toBe(0)
      await page.goto(at(world.path("/deliveries")))
      await page.getByRole("link", { name: "invoice.paid" }).click()
      await page.getByRole("button", { name: "Resend" }).click()
      await page.getByText("Response to attempt 2").waitFor()
      await expectAccessible(page)
    })
  })

  it.effect("what tenants and receivers write is shown as text on every page, and runs nothing", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint({ description: hostile, retry_delays: [] })
    // Further than the interface lets a URL go.
    yield* world.pointTo(id, `${world.receiver.url}/${hostile}`)
    world.receiver.behave({ status: 500, body: hostile })
    const event = yield* world.publish("invoice.paid", { [hostile]: hostile })
    const { job_id } = yield* world.call("jobs/create", { workflow: hostile, input: { [hostile]: hostile } })
    yield* world.call("jobs/claim", {})
    yield* world.call("jobs/heartbeat", { job_id, note: hostile })
    const { job_id: failed } = yield* world.call("jobs/create", { workflow: hostile, deployment_id: hostile })
    yield* world.call("jobs/fail", { job_id: failed, error: hostile, mapped_stack: { at: hostile } })
    const { schedule_id } = yield* world.call("schedules/create", {
      workflow: hostile,
      cron: "0 4 * * *",
      input: { [hostile]: hostile },
    })
    const { sql } = world.server
    const deliveries = yield* sql<{ id: string }>`
          SELECT id FROM deliveries WHERE org_id = ${world.orgId} AND event_id = ${event}
          UNION ALL SELECT delivery_id FROM pending_deliveries WHERE org_id = ${world.orgId} AND event_id = ${event}`
    // A type cannot be written like that, so the table says it.
    yield* sql`UPDATE events SET type = ${hostile} WHERE org_id = ${world.orgId} AND id = ${event}`
    const shown = hostile.slice(2, 30)
    yield* inTab(world.path("/endpoints"), async (page, at) => {
      for (const path of [
        "/endpoints",
        `/endpoints/${id}`,
        "/deliveries",
        `/deliveries/${deliveries[0]!.id}`,
        "/events",
        `/events/${event}`,
        "/jobs",
        `/jobs/${job_id}`,
        `/jobs/${failed}`,
        "/schedules",
        `/schedules/${schedule_id}`,
      ]) {
        await page.goto(at(world.path(path)))
        await expectShownAsText(page, shown)
        await expectFits(page)
      }
    })
  })
})
