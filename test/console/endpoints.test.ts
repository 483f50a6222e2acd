import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { makeTenant } from "../http/tenants.ts"
import { portalLink } from "../http/sessions/signedIn.ts"
import { adminToken } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, inTab, openTab, signedInTab, withConsoles } from "./support.ts"
import { webhookWorld } from "./webhookWorld.ts"

withConsoles("endpoints", consoles, (it) => {
  it.effect(
    "adds an endpoint with every setting by keyboard, then edits one, and what is stored is what was typed",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      yield* inTab(`/orgs/${orgId}/endpoints`, async (page) => {
        await page.getByRole("heading", { name: "No endpoint receives events yet" }).waitFor()
        await expectAccessible(page)
        await page.getByRole("button", { name: "Add endpoint" }).first().focus()
        await page.keyboard.press("Enter")
        const dialog = page.getByRole("dialog", { name: "Add an endpoint" })
        await dialog.waitFor()
        await expectAccessible(page)
        await dialog.getByLabel("URL").focus()
        await page.keyboard.type("https://localhost:9/hooks")
        await page.keyboard.press("Tab")
        await page.keyboard.type("Production")
        await dialog.getByLabel("Event types").fill("invoice.*\njob.failed")
        await dialog.getByText("Order, rate, retries, body, filter, headers and secret").click()
        await expect.poll(() => dialog.getByLabel("Signing secret").inputValue()).toMatch(/^whsec_[\w+/]{32}$/)
        await dialog.getByLabel(/In order/).check()
        await dialog.getByLabel("Most attempts per second").fill("50")
        await dialog.getByLabel("Waits before retries").fill("5, 60, 600")
        await dialog.getByLabel("Signature").selectOption("ed25519")
        await dialog.getByLabel("Body").selectOption("The data of the event alone")
        await dialog.getByLabel("Names of headers").selectOption("svix-id")
        await dialog.getByLabel("External id").fill("ep_2Wq5")
        await dialog.getByLabel("Channels").fill("project_42 project_43")
        await dialog.getByLabel("Metadata").fill('{"plan":"pro"}')
        await dialog.getByRole("button", { name: "Add a header" }).click()
        await dialog.getByLabel("Name", { exact: true }).fill("authorization")
        await dialog.getByLabel("Value", { exact: true }).fill("Bearer secret")
        await dialog.getByLabel("Value", { exact: true }).press("Enter")
        await page.getByRole("button", { name: "I have copied it" }).click()
        await page.getByRole("heading", { level: 1, name: "localhost:9/hooks" }).waitFor()
        await page.getByText(/^whpk_/).waitFor()
        const settings = page.getByRole("region", { name: "Settings" })
        for (const text of ["The data of the event alone", "svix-id and the like", "ep_2Wq5", '"plan": "pro"']) {
          await settings.getByText(text).waitFor()
        }
        await page.getByRole("region", { name: "Attempts" }).getByText("Success rate").waitFor()
        await page.getByRole("region", { name: "Deliveries as they are now" }).getByText("Skipped").waitFor()
        await expectAccessible(page)
        await expectFits(page)
        await page.getByRole("button", { name: "Edit" }).click()
        await page.getByRole("dialog").getByLabel("Most attempts per second").fill("")
        await page.getByRole("button", { name: "Save" }).click()
        await page.getByText("Unlimited", { exact: true }).waitFor()
      })
      const { webhook_endpoints } = yield* call("webhooks/list")
      const [{ webhook_endpoint_id: id }] = webhook_endpoints as unknown as [{ webhook_endpoint_id: string }]
      expect(yield* call("webhooks/get", { id })).toMatchObject({
        url: "https://localhost:9/hooks",
        description: "Production",
        event_types: ["invoice.*", "job.failed"],
        ordered: true,
        max_per_second: null,
        retry_delays: [5, 60, 600],
        signature: "ed25519",
        headers: ["authorization"],
        payload: "data",
        header_names: "svix",
        external_id: "ep_2Wq5",
        channels: ["project_42", "project_43"],
        metadata: { plan: "pro" },
      })
    },
  )

  it.effect(
    "an endpoint with a filter, batches and a token moves to another origin with a new token alone",
    function* () {
      const { call, orgId } = yield* makeTenant(adminToken)
      const auth = { token_url: "https://localhost:9/token", client_id: "gatehouse", client_auth: "basic" }
      yield* inTab(`/orgs/${orgId}/endpoints`, async (page) => {
        await page.getByRole("button", { name: "Add endpoint" }).first().click()
        const dialog = page.getByRole("dialog")
        await dialog.getByLabel("URL", { exact: true }).fill("https://localhost:9/hooks")
        await dialog.getByText("Order, rate, retries, body, filter, headers and secret").click()
        await dialog.getByLabel("Events in one request").fill("20")
        await dialog.getByLabel("Time to collect them").fill("500")
        await dialog.getByLabel("Filter").fill('{"data.plan": "pro"}')
        await dialog.getByRole("button", { name: "Add", exact: true }).click()
        await dialog.getByLabel("Kind").selectOption("oauth2")
        await dialog.getByLabel("Token URL").fill(auth.token_url)
        await dialog.getByLabel("Client id").fill(auth.client_id)
        await dialog.getByLabel("Client secret").fill("hidden")
        await expectAccessible(page)
        await expectFits(page)
        await dialog.getByRole("button", { name: "Add endpoint" }).click()
        await page.getByRole("button", { name: "I have copied it" }).click()
        const settings = page.getByRole("region", { name: "Settings" })
        for (const text of ["up to 20 events", '"data.plan": "pro"', "a token of https://localhost:9/token"]) {
          await settings.getByText(text).waitFor()
        }
        await page.getByRole("button", { name: "Edit" }).click()
        await dialog.getByLabel("URL", { exact: true }).fill("https://localhost:10/hooks")
        await page.getByRole("button", { name: "Save" }).click()
        await expect.poll(() => dialog.getByRole("alert").textContent()).toContain("url has another origin")
        await dialog.getByRole("button", { name: "Replace", exact: true }).click()
        await dialog.getByRole("button", { name: "Save" }).click()
        await page.getByRole("heading", { level: 1, name: "localhost:10/hooks" }).waitFor()
      })
      const { webhook_endpoints } = yield* call("webhooks/list")
      const [{ webhook_endpoint_id: id }] = webhook_endpoints as unknown as [{ webhook_endpoint_id: string }]
      expect(yield* call("webhooks/get", { id })).toMatchObject({
        url: "https://localhost:10/hooks",
        batch: { max: 20, within_ms: 500 },
        filter: { "data.plan": "pro" },
        auth: null,
      })
    },
  )

  it.effect("says what the service refuses, beside the form, and keeps what was typed", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab(`/orgs/${orgId}/endpoints`, async (page) => {
      await page.getByRole("button", { name: "Add endpoint" }).first().click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("URL").fill("http://example.com/plain")
      await dialog.getByRole("button", { name: "Add endpoint" }).click()
      await expect.poll(() => dialog.getByRole("alert").textContent()).toContain("https")
      await expect.poll(() => dialog.getByLabel("URL").inputValue()).toBe("http://example.com/plain")
    })
  })

  it.effect("a test shows what the receiver answers, good and bad", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint()
    const { page } = yield* signedInTab(world.path(`/endpoints/${id}`))
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Send a test" }).click()
      await page.getByText("The receiver took it: HTTP 200").waitFor()
    })
    world.receiver.behave({ status: 500, body: "out of memory" })
    yield* Effect.promise(async () => {
      await page.getByRole("button", { name: "Send another test" }).click()
      await page.getByText("The receiver did not take it: HTTP 500").waitFor()
      await page.getByText("out of memory").waitFor()
      await expectAccessible(page)
    })
  })

  it.effect(
    "a gone endpoint says why it is inactive; one button brings it back, and recovery counts before it sends",
    function* () {
      const world = yield* webhookWorld
      const id = yield* world.endpoint()
      world.receiver.behave({ status: 410 })
      yield* world.publish("invoice.paid")
      yield* until("the deactivation", world.call("webhooks/get", { id }), ({ active }) => String(active) === "false")
      yield* world.publish("invoice.paid")
      yield* world.publish("invoice.paid")
      world.receiver.behave({ status: 200 })
      yield* inTab(world.path("/endpoints"), async (page) => {
        await page.locator("tbody .badge", { hasText: "Deactivated" }).waitFor()
        await page.getByRole("link", { name: /hooks$/ }).click()
        await page.getByText("It answered 410 Gone").waitFor()
        // Counted from all attempts; written five seconds after them.
        await page.getByRole("link", { name: "HTTP 410 × 1" }).waitFor()
        await page.getByText("Success rate0 %").waitFor()
        await page.getByRole("button", { name: "30 days" }).click()
        await page.getByRole("link", { name: "HTTP 410 × 1" }).waitFor()
        expect(page.url()).toContain("range=2")
        await page.getByText("Latest failure: HTTP 410").waitFor()
        await expectAccessible(page)
        await page.getByRole("button", { name: "Activate again" }).click()
        const dialog = page.getByRole("dialog", { name: "Resend what the endpoint missed" })
        // Also the delivery that was answered with 410, which is older than the deactivation.
        await dialog.getByText("3 deliveries will be resent.").waitFor()
        await expectAccessible(page)
        await dialog.getByRole("button", { name: "Resend", exact: true }).click()
        await page.getByText("3 deliveries are resent.").waitFor()
        await page.getByText("Active", { exact: true }).waitFor()
      })
      yield* until("the deliveries", world.deliveries({ state: "delivered" }), (found) => found.length === 3)
    },
  )

  it.effect("the list says which endpoints fail, however long ago their newest delivery was", function* () {
    const world = yield* webhookWorld
    const failing = yield* world.endpoint({ event_types: ["invoice.*"], retry_delays: [] })
    yield* world.endpoint({ event_types: ["order.*"], url: "https://localhost:9/others" })
    world.receiver.behave({ status: 503 })
    yield* world.publish("invoice.paid")
    yield* until("the failure", world.deliveries({ state: "failed" }), (found) => found.length === 1)
    world.receiver.behave({ status: 200 })
    yield* Effect.forEach(Array.from({ length: 101 }), () => world.publish("order.paid"), { concurrency: 8 })
    const token = yield* portalLink(world.headers)
    const story = async (page: Page) => {
      const badges = page.getByRole("table", { name: "Endpoints" }).locator("tbody .badge")
      await expect.poll(() => badges.allTextContents()).toEqual(["Failing", "Active"])
      await page.getByLabel("State").selectOption("Failing")
      await expect.poll(() => badges.allTextContents()).toEqual(["Failing"])
      await page.locator(`a[href$="${failing}"]`).waitFor()
    }
    yield* inTab(world.path("/endpoints"), story)
    const { at, page } = yield* openTab
    yield* Effect.promise(async () => {
      await page.goto(at(`/portal#${token}`))
      await page.getByRole("button", { name: "Open" }).click()
      await page.getByRole("link", { name: "Endpoints" }).first().click()
      await story(page)
    })
  })

  it.effect("a failing endpoint says what its receiver answered last, and leads to that answer", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503, body: "in maintenance" })
    yield* world.publish("invoice.paid")
    yield* until("the failure", world.deliveries({ state: "failed" }), (found) => found.length === 1)
    yield* inTab(world.path(`/endpoints/${id}`), async (page) => {
      await page.getByText("Latest failure: HTTP 503").waitFor()
      await expectAccessible(page)
      await page.getByRole("link", { name: "Show the delivery" }).click()
      await page.getByText("in maintenance").waitFor()
    })
  })

  it.effect("a failed delivery leads to the recovery of all that failed since", function* () {
    const world = yield* webhookWorld
    yield* world.endpoint({ retry_delays: [] })
    world.receiver.behave({ status: 503 })
    const fail = Effect.fnUntraced(function* (type: string, count: number) {
      yield* world.publish(type)
      return yield* until("the failure", world.deliveries({ state: "failed" }), (found) => found.length === count)
    })
    yield* fail("invoice.first", 1)
    const [second] = yield* fail("invoice.second", 2)
    yield* fail("invoice.third", 3)
    world.receiver.behave({ status: 200 })
    yield* inTab(world.path(`/deliveries/${second!.delivery_id}`), async (page) => {
      await page.getByRole("link", { name: "Resend all since this one" }).click()
      const dialog = page.getByRole("dialog", { name: "Resend what the endpoint missed" })
      await dialog.getByText("2 deliveries will be resent.").waitFor()
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Resend", exact: true }).click()
      await page.getByText("2 deliveries are resent.").waitFor()
      expect(page.url()).not.toContain("recover=")
    })
    const delivered = yield* until("it", world.deliveries({ state: "delivered" }), (found) => found.length === 2)
    expect(delivered.map(({ event }) => event)).toEqual(["invoice.third", "invoice.second"])
  })

  it.effect("endpoints are found by URL, description or id, and by state", function* () {
    const { call, orgId } = yield* makeTenant(adminToken)
    const create = (host: string, description: string) =>
      call("webhooks/create", { url: `https://${host}/hooks`, signing_secret: "s", description })
    yield* create("one.example.com", "Production")
    const { webhook_endpoint_id: id } = yield* create("two.example.com", "Staging")
    yield* call("webhooks/update", { id, active: false })
    yield* inTab(`/orgs/${orgId}`, async (page, at) => {
      await page.getByRole("link", { name: "1 endpoint is deactivated" }).waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await page.getByRole("link", { name: "1 endpoint is deactivated" }).click()
      const found = page.getByRole("table", { name: "Endpoints" }).locator("tbody a.main")
      const expectFound = (...hosts: ReadonlyArray<string>) =>
        expect.poll(() => found.allTextContents()).toEqual(hosts.map((host) => `${host}/hooks`))
      await expectFound("two.example.com")
      const field = page.getByLabel("URL, description or id")
      await page.getByLabel("State").selectOption("All")
      await field.fill("production")
      await expectFound("one.example.com")
      await field.fill(String(id))
      await expectFound("two.example.com")
      await page.getByLabel("State").selectOption("Active")
      await page.getByRole("heading", { name: "No endpoint matches" }).waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await field.fill("")
      await expectFound("one.example.com")
      expect(page.url()).toBe(at(`/orgs/${orgId}/endpoints?state=active`))
      await page.getByLabel("State").selectOption("Deactivated")
      await expectFound("two.example.com")
    })
  })

  it.effect("an endpoint is deactivated and deleted only after a question", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint()
    yield* inTab(world.path(`/endpoints/${id}`), async (page) => {
      await page.getByRole("button", { name: "Deactivate" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click()
      await page.getByRole("button", { name: "Deactivate" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Deactivate" }).click()
      await page.getByText("Somebody deactivated it.").waitFor()
      await page.getByRole("button", { name: "Delete the endpoint" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Delete endpoint" }).click()
      await page.getByRole("heading", { name: "No endpoint receives events yet" }).waitFor()
    })
    const { webhook_endpoints } = yield* world.call("webhooks/list")
    expect(webhook_endpoints).toEqual([])
  })

  it.effect("an endpoint that somebody else deletes is not shown as it was", function* () {
    const world = yield* webhookWorld
    const id = yield* world.endpoint()
    const { page } = yield* signedInTab(world.path(`/endpoints/${id}`))
    yield* Effect.promise(() => page.getByRole("button", { name: "Send a test" }).waitFor())
    yield* world.call("webhooks/delete", { id })
    yield* Effect.promise(async () => {
      await page.getByText("It may have been deleted").first().waitFor()
      await expect.poll(() => page.getByRole("button", { name: "Send a test" }).count()).toBe(0)
    })
  })
})
