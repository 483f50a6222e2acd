import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Locator } from "playwright-core"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, inTab, signedInTab, withConsoles } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"

/** Promise (Console): *Resend all that failed* resends neither what was canceled nor what was skipped. */

/** Presses a link of the navigation, and measures until the browser has painted so many rows. In the page itself. */
const clickToPainted = (href: string, rows: number) => `
  new Promise((resolve) => {
    const since = performance.now()
    const check = () => {
      if (document.querySelectorAll("tbody tr a.main").length < ${rows}) return requestAnimationFrame(check)
      // A task after the next frame: that frame is painted.
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - since)))
    }
    document.querySelector('.sidebar a[href="${href}"]').click()
    requestAnimationFrame(check)
  })`

withConsoles("deliveries", consoles, (it, database) => {
  it.effect("a new delivery is on the screen soon after its attempt, without a reload", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    const { page } = yield* signedInTab(world.path("/deliveries"))
    yield* Effect.promise(async () => {
      await page.getByRole("heading", { name: "Nothing was delivered yet" }).waitFor()
      await page.locator(".sidebar-foot .badge:visible", { hasText: "Live" }).waitFor()
      await expectAccessible(page)
    })
    yield* world.publish("invoice.paid")
    yield* world.receiver.arrived(1)
    const since = performance.now()
    yield* Effect.promise(() => page.locator("tbody .badge", { hasText: "Delivered" }).waitFor())
    process.stdout.write(
      `${database}: a delivery was on the screen ${Math.round(performance.now() - since)} ms after its attempt\n`,
    )
  })

  it.effect("an endpoint past the first thousand has its name, and a deleted one says so", function* () {
    const world = yield* webhookWorld
    const { orgId, receiver, server } = world
    const [kept, deleted] = [yield* world.endpoint(), yield* world.endpoint()]
    yield* world.publish("invoice.paid")
    yield* receiver.arrived(2)
    yield* until("both", world.deliveries({ state: "delivered" }), (found) => found.length === 2)
    yield* world.call("webhooks/delete", { id: deleted })
    yield* server.sql`
          INSERT INTO webhook_endpoints
          SELECT (jsonb_populate_record(e, jsonb_build_object('id', lpad(n::text, 26, '0'), 'active', false))).*
          FROM webhook_endpoints e, generate_series(1, 1000) n WHERE e.org_id = ${orgId} AND e.id = ${kept}`
    yield* inTab(world.path("/deliveries"), async (page, at) => {
      const names = page.getByRole("cell").filter({ hasText: /deleted|127/ })
      const name = `${new URL(receiver.url).host}/hooks`
      await expect.poll(async () => (await names.allInnerTexts()).toSorted()).toEqual([name, "a deleted endpoint"])
      await page.getByRole("row").filter({ hasText: name }).getByRole("link").click()
      await page.getByRole("region", { name: "Attempts" }).getByRole("link", { name }).waitFor()
      await page.getByText(`curl -i '${receiver.url}/hooks'`).waitFor()
      await page.goto(at(world.path("")))
      await page.getByRole("link", { name: "At least 1,000 endpoints are deactivated" }).waitFor()
    })
  })

  it.effect("prints as the page alone, in light, with the whole payload", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    yield* world.publish("invoice.paid", { lines: Array.from({ length: 200 }, (_, n) => `line ${n}`) })
    yield* world.receiver.arrived(1)
    const { page } = yield* signedInTab(world.path("/deliveries"))
    yield* Effect.promise(async () => {
      await page.locator("tbody a.main").first().click()
      await page.getByText("line 199").first().waitFor()
      await page.emulateMedia({ media: "print", colorScheme: "dark" })
      await expect.poll(() => page.locator(".sidebar, .topbar, main .button").locator("visible=true").count()).toBe(0)
      const pre = page.locator("pre", { hasText: "line 199" }).first()
      const hidden = (one: { scrollHeight: number; clientHeight: number }) => one.scrollHeight - one.clientHeight
      await expect.poll(() => pre.evaluate(hidden)).toBeLessThanOrEqual(1)
      expect(await page.evaluate("getComputedStyle(document.querySelector('h1')).color")).toBe("rgb(22, 32, 43)")
      await page.emulateMedia({ media: "screen", colorScheme: "light" })
      await page.getByRole("button", { name: "Print this page" }).waitFor()
    })
  })

  it.effect("j and k read one delivery after another beside the list, and Escape returns to its row", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    for (const type of ["first.made", "second.made"]) yield* world.publish(type)
    yield* world.receiver.arrived(2)
    yield* inTab(world.path("/deliveries"), async (page) => {
      await page.locator("tbody .badge", { hasText: "Delivered" }).nth(1).waitFor()
      const panel = page.getByRole("complementary", { name: "The delivery beside the list" })
      const heading = (name: string) => panel.getByRole("heading", { level: 2, name }).waitFor()
      // A letter beside the list does nothing.
      await page.locator("#main").focus()
      await page.keyboard.press("j")
      await page.locator("tbody a.main").first().focus()
      await expect.poll(() => panel.count()).toBe(0)
      await page.keyboard.press("j")
      await heading("second.made")
      await expect.poll(() => panel.getByRole("status").textContent()).toBe("1 of 2")
      await expect.poll(() => panel.evaluate((panel) => panel === panel.ownerDocument.activeElement)).toBe(true)
      await page.keyboard.press("j")
      await heading("first.made")
      await page.keyboard.press("j")
      await expect.poll(() => panel.getByRole("status").textContent()).toBe("2 of 2")
      await panel.getByText("The receiver answered with a 2xx status.").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      // Beside the panel, a row keeps its endpoint and its time.
      const row = page.locator("tr[aria-current=true]")
      await expect.poll(() => row.innerText()).toMatch(/first\.made[^]*127\.0\.0\.1[^]*(ago|just now)/)
      await page.keyboard.press("k")
      await heading("second.made")
      await expect.poll(() => page.locator("tr[aria-current=true] a").first().textContent()).toBe("second.made")
      // A letter in a filter is text.
      await page.getByLabel("Job").pressSequentially("jk")
      await heading("second.made")
      await panel.focus()
      await page.keyboard.press("Escape")
      await panel.waitFor({ state: "detached" })
      await expect.poll(() => page.evaluate("document.activeElement.textContent")).toBe("second.made")
      await page
        .locator("tbody tr")
        .nth(1)
        .locator("td")
        .nth(1)
        .click({ position: { x: 2, y: 2 } })
      await heading("first.made")
      // On a phone, the button that goes back closes the panel.
      await page.setViewportSize({ width: 390, height: 800 })
      await page.goBack()
      await panel.waitFor({ state: "detached" })
      await page.goForward()
      await heading("first.made")
      await panel.getByRole("link", { name: "Whole page" }).click()
      await page.getByRole("heading", { level: 1, name: "first.made" }).waitFor()
    })
  })

  it.effect("what failed is resent alone: neither what was skipped nor what was canceled", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503 })
    yield* world.publish("first.made")
    yield* until("the failure", world.deliveries({ state: "failed" }), (found) => found.length === 1)
    yield* world.call("webhooks/update", { id, active: false })
    yield* world.publish("second.made")
    yield* until("the skipped one", world.deliveries({ state: "skipped" }), (found) => found.length === 1)
    yield* world.call("webhooks/update", { id, active: true })
    world.receiver.behave({ status: 200 })
    yield* inTab(world.path(`/deliveries?endpoint=${id}&since=2026-01-01T12:00:00.000Z`), async (page) => {
      await page.getByRole("button", { name: "Resend all that failed…" }).click()
      await page.getByText("1 delivery will be resent.").waitFor()
      // The filter is said again: which endpoint, since when, which state.
      const facts = await page.getByRole("dialog").locator(".facts").innerText()
      for (const fact of [/Endpoint\s+127\.0\.0\.1/, /Since\s+Jan 1, 2026/, /State\s+failed/])
        expect(facts).toMatch(fact)
      await expectAccessible(page)
      await page.getByRole("button", { name: "Resend", exact: true }).click()
      await page.getByText("1 delivery is resent.").waitFor()
    })
    yield* until("the delivery", world.deliveries({ state: "delivered" }), (found) => found.length === 1)
    expect((yield* world.deliveries({ state: "skipped" })).length).toBe(1)
    yield* inTab(world.path("/deliveries?state=skipped"), async (page) => {
      await page.getByRole("button", { name: "Resend all that were skipped…" }).click()
      await page.getByText("1 delivery will be resent.").waitFor()
    })
  })

  it.effect("new rows do not move a list that somebody reads, and only its newest page is read again", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    const publish = (count: number) => {
      const events = Array.from({ length: count }, (_, n) => ({ type: "invoice.paid", data: n }))
      return world.call("events/publish-batch", { events })
    }
    for (let n = 0; n < 4; n++) yield* publish(80)
    yield* world.receiver.arrived(320)
    yield* inTab(world.path("/deliveries"), async (page) => {
      const lists: Array<string> = []
      page.on("request", (request) => {
        if (request.url().endsWith("/deliveries/list")) lists.push(request.postData() ?? "")
      })
      const table = page.getByRole("table", { name: "Deliveries" })
      const rows = table.locator("tbody tr a.main")
      await rows.nth(99).waitFor()
      await page.locator(".sidebar-foot .badge:visible", { hasText: "Live" }).waitFor()
      for (const loaded of [200, 300, 320]) {
        await page.getByRole("button", { name: "Show more" }).click()
        await expect.poll(() => table.getAttribute("aria-rowcount")).toBe(String(loaded + 1))
      }
      await page.evaluate("scrollTo(0, document.body.scrollHeight)")
      await table.locator(`tr[aria-rowindex="321"]`).waitFor()
      await expect.poll(() => rows.count()).toBeLessThan(250)
      lists.length = 0
      const before = await page.evaluate("scrollY")
      await Effect.runPromise(publish(12))
      const fresh = page.getByRole("button", { name: "12 new ↑" })
      await fresh.waitFor()
      await expect.poll(() => page.evaluate("scrollY")).toBe(before)
      expect(lists.filter((body) => body.includes("cursor"))).toEqual([])
      expect(lists.length).toBeLessThan(10)
      await expectAccessible(page)
      await fresh.click()
      await fresh.waitFor({ state: "detached" })
      await expect.poll(() => rows.count()).toBe(100)
      await expect.poll(() => page.evaluate("scrollY")).toBe(0)
    })
  })

  it.effect("a running resend shows how far it is, and its rest can be canceled", function* () {
    const world = yield* webhookWorld
    const resend = { resend_id: world.orgId, filter: { status: 503 }, count: 511, resent: 120, created_at: "" }
    yield* inTab("/orgs", async (page, at) => {
      const answered = (body: object) => ({ contentType: "application/json", body: JSON.stringify(body) })
      await page.route("**/deliveries/resends", (route) => route.fulfill(answered({ resends: [resend] })))
      await page.route("**/deliveries/resend/cancel", (route) =>
        route.fulfill(answered({ success: true, message: "The rest is not sent." })),
      )
      await page.goto(at(world.path("/deliveries")))
      const running = page.getByRole("group", { name: "Resending" })
      await running.getByText("Resending: 120 of 511").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await running.getByRole("button", { name: "Cancel the rest" }).click()
      await page.getByRole("status").getByText("The rest is not sent.").waitFor()
    })
  })

  it.effect("filters by state, type, endpoint, job and time are in the address, and narrow the list", function* () {
    const world = yield* webhookWorld
    const good = yield* world.endpoint({ event_types: ["invoice.*"] })
    const all = yield* world.endpoint({ description: "all" })
    yield* world.pointTo(all, `${world.receiver.url}/all`)
    yield* world.publish("invoice.paid")
    const job = yield* world.finished()
    yield* until("the deliveries", world.deliveries({ state: "delivered" }), (found) => found.length === 3)
    yield* inTab(world.path("/deliveries"), async (page, at) => {
      const rows = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr a.main")
      const expectRows = async (count: number) => {
        await rows.nth(count - 1).waitFor()
        await expect.poll(() => rows.count()).toBe(count)
      }
      await expectRows(3)
      await expectFits(page)
      await page.getByLabel("Event type").selectOption("invoice.paid")
      await expectRows(2)
      await page.getByLabel("Endpoint").selectOption(good)
      await expectRows(1)
      expect(page.url()).toBe(at(world.path(`/deliveries?type=invoice.paid&endpoint=${good}`)))
      await page.reload()
      await expectRows(1)
      await page.getByLabel("State").selectOption("failed")
      await page.getByRole("heading", { name: "No delivery matches" }).waitFor()
      await expectAccessible(page)
      await page.getByRole("button", { name: "Clear filters" }).click()
      await expectRows(3)
      await page.getByLabel("Job").fill(job)
      await expectRows(1)
      await page.getByRole("button", { name: "Clear filters" }).click()
      const times = page.getByRole("button", { name: /^Time / })
      const expectTimes = (text: string | RegExp) => expect.poll(() => times.textContent()).toMatch(text)
      await expectTimes("Time Any time")
      await times.press("Enter")
      await page.getByLabel("To", { exact: true }).fill("2020-01-01T00:00")
      await page.getByRole("heading", { name: "No delivery matches" }).waitFor()
      await page.getByLabel("From", { exact: true }).fill("2019-12-31T12:30")
      await expectTimes("Time from 2019-12-31 12:30 to 2020-01-01 00:00")
      await expectAccessible(page)
      await page.getByRole("button", { name: "Last 7 days" }).press("Enter")
      await page.waitForURL(/deliveries\?since=[^&]+$/)
      await expectRows(3)
      // The menu is closed, and the focus is where it was.
      const hasFocus = (target: Locator) =>
        expect.poll(() => target.evaluate((one) => one.matches(":focus"))).toBe(true)
      await hasFocus(times)
      await expect.poll(() => page.getByLabel("From", { exact: true }).isVisible()).toBe(false)
      await page.reload()
      await expectTimes("Time Last 7 days")
      // A filter is removed by itself; whoever uses the keyboard stays at it.
      await page.getByLabel("State").selectOption("delivered")
      await page.getByRole("button", { name: "Remove: Time" }).press("Enter")
      await page.waitForURL(/deliveries\?state=delivered$/)
      await hasFocus(times)
      await page.keyboard.press("Enter")
      await page.getByRole("button", { name: "Last hour" }).click()
      await expectTimes("Time Last hour")
      await expectFits(page)
      // On a phone, what is set is seen, and the others at a press.
      await page.setViewportSize({ width: 390, height: 844 })
      const chips = page.locator(".chip:visible")
      await expect
        .poll(() => chips.allTextContents())
        .toEqual([expect.stringMatching(/^State/), expect.stringMatching(/^Time/)])
      await page.getByRole("button", { name: "Clear filters" }).click()
      await expect.poll(() => chips.count()).toBe(0)
      await hasFocus(page.getByRole("button", { name: "Filters" }))
      await page.keyboard.press("Enter")
      await expect.poll(() => chips.count()).toBe(6)
    })
  })

  // Seen failing: any filter hid it.
  it.effect("what fails, and why, stays with filters that it has, and is of what they select", function* () {
    const world = yield* webhookWorld
    const first = yield* world.endpoint({ retry_delays: [] })
    yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503, body: "maintenance" })
    yield* world.publish("invoice.paid")
    yield* until("the failures", world.deliveries({ state: "failed" }), (found) => found.length === 2)
    yield* inTab(world.path("/deliveries"), async (page) => {
      const causes = page.getByRole("region", { name: "What fails, and why" })
      const expectCause = (text: RegExp) => expect.poll(() => causes.innerText()).toMatch(text)
      await causes.waitFor()
      await expectCause(/HTTP 503\s+× 2\s+\S+ × 1, \S+ × 1/)
      await page.getByLabel("State").selectOption("failed")
      await page.getByRole("button", { name: "Time Any time" }).click()
      await page.getByRole("button", { name: "Last 7 days" }).press("Enter")
      await page.getByLabel("Endpoint").selectOption(first)
      await page.waitForURL(/since=.*endpoint=|endpoint=.*since=/)
      await causes.waitFor()
      await expectCause(/HTTP 503\s+× 1/)
      await causes.getByRole("link", { name: "HTTP 503" }).click()
      await page.waitForURL((url) => ["cause", "endpoint", "since"].every((name) => url.searchParams.has(name)))
      await causes.waitFor({ state: "detached" })
    })
  })

  it.effect("of many attempts the last one is in view, and the end of the navigation, too", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint({ retry_delays: [0, 0, 0, 0, 0, 0, 0] })
    world.receiver.behave({ status: 500 })
    yield* world.publish("invoice.paid")
    const [delivery] = yield* until(
      "the last attempt",
      world.deliveries({ state: "failed" }),
      (found) => found.length === 1,
    )
    yield* inTab("/orgs", async (page, at) => {
      await page.setViewportSize({ width: 1366, height: 700 })
      await page.goto(at(world.path(`/deliveries/${delivery!.delivery_id}`)))
      const last = page.getByRole("button", { name: /^Attempt 8:/ })
      await last.waitFor()
      const shown = async () => {
        const [axis, mark] = [await page.locator(".axis").boundingBox(), await last.boundingBox()]
        return mark!.x >= axis!.x && mark!.x + mark!.width <= axis!.x + axis!.width
      }
      await expect.poll(shown).toBe(true)
      const foot = await page.locator(".sidebar-foot").boundingBox()
      const settings = await page.getByRole("link", { name: "Settings" }).boundingBox()
      expect(settings!.y + settings!.height).toBeLessThanOrEqual(foot!.y)
      expect(foot!.y + foot!.height).toBeLessThanOrEqual(700)
    })
  })

  it.effect(
    "one delivery: its attempts with waits and answers, its payload, a command, and sending it again",
    function* () {
      const world = yield* webhookWorld
      const id = yield* world.endpoint({ retry_delays: [0] })
      world.receiver.behave({ status: 503, body: '{"error":"maintenance"}' })
      const event_id = yield* world.publish("invoice.paid", { invoice: "it's in_42" })
      const failed = world.deliveries({ event_id, state: "failed" })
      const [delivery] = yield* until("the failure", failed, (found) => found.length === 1)
      world.receiver.behave({ status: 200, body: "thanks" })
      yield* inTab(world.path(`/endpoints/${id}`), async (page) => {
        await page.getByRole("link", { name: "invoice.paid" }).click()
        await page.getByText("No attempt is left. Resend it when the receiver works.").waitFor()
        const axis = page.getByRole("list", { name: "Attempts over time" })
        await expect.poll(() => axis.getByRole("button").count()).toBe(2)
        await page.getByText("Response to attempt 2").waitFor()
        await axis.getByRole("button", { name: /^Attempt 1: HTTP 503/ }).press("Enter")
        await page.getByText("Response to attempt 1").waitFor()
        await page.getByText('"error": "maintenance"').waitFor()
        await page.getByRole("region", { name: "Payload" }).getByText(`"invoice": "it's in_42"`).waitFor()
        await expectAccessible(page)
        await expectFits(page)
        await page.getByRole("button", { name: "Copy: As curl" }).click()
        const copied = (await page.evaluate("navigator.clipboard.readText()")) as string
        expect(copied).toContain(`-H 'webhook-id: ${delivery!.delivery_id}'`)
        expect(copied).toContain(`it'\\''s in_42`)
        await page.getByRole("button", { name: "Resend" }).click()
        await page.getByText("Response to attempt 3").waitFor()
        await page.getByText("thanks").waitFor()
        await page.getByText("Delivered", { exact: true }).waitFor()
      })
    },
  )

  it.effect("a list of 100 deliveries is painted at once", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint()
    for (let n = 0; n < 100; n += 25) {
      const events = Array.from({ length: 25 }, (_, at) => ({ type: "invoice.paid", data: n + at }))
      yield* world.call("events/publish-batch", { events })
    }
    yield* until("the deliveries", world.deliveries({ state: "delivered", limit: 100 }), (all) => all.length === 100)
    yield* inTab(world.path("/events"), async (page) => {
      await page.getByRole("table", { name: "Events", exact: true }).waitFor()
      const press = () => page.evaluate(clickToPainted(`/console${world.path("/deliveries")}`, 100)) as Promise<number>
      const first = await press()
      const again: Array<number> = []
      for (let n = 0; n < 5; n++) {
        await page.getByRole("link", { name: "Events" }).click()
        await page.getByRole("table", { name: "Events", exact: true }).waitFor()
        again.push(await press())
      }
      const [, , median] = again.toSorted((a, b) => a - b)
      process.stdout.write(
        `${database}: 100 deliveries, from click to painted: first ${Math.round(first)} ms, later ${Math.round(median!)} ms\n`,
      )
      await expect.poll(() => page.locator("tbody tr a.main").count()).toBe(100)
    })
  })
})
