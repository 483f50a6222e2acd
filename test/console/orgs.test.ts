import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { faultOfError } from "../http/operations.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoles, expectAccessible, expectFits, inTab, withConsoles } from "./support.ts"
import { call, createOrg } from "./world.ts"

withConsoles("orgs", consoles, (it) => {
  it.effect("an org is created, renamed, limited and deleted", function* () {
    let orgId = ""
    yield* inTab("/orgs", async (page, at) => {
      await page.getByRole("button", { name: "Create org" }).click()
      await page.getByLabel("Name").fill("Acme Robotics")
      await page.getByRole("dialog").getByRole("button", { name: "Create org" }).click()
      await page.getByRole("heading", { name: "Acme Robotics", level: 1 }).waitFor()
      orgId = new URL(page.url()).pathname.split("/").at(-1)!
      expect(page.url()).toBe(at(`/orgs/${orgId}`))

      await page.getByRole("link", { name: "Settings" }).click()
      await page.getByRole("textbox", { name: "Name" }).fill("Acme")
      await page.getByRole("button", { name: "Save the name" }).click()
      await page.getByRole("status").getByText("The name is saved.").waitFor()
      await page.getByLabel("Owners of repositories").fill("acme\ngitlab:acme")
      await page.getByRole("button", { name: "Save the owners" }).click()
      await page.getByRole("status").getByText("The owners are saved.").waitFor()
      await page.getByLabel("Days to keep").fill("30")
      await page.getByRole("button", { name: "Save the retention" }).click()
      await page.getByRole("status").getByText("The retention is saved.").waitFor()
      await page.getByLabel("API keys").fill("many")
      await page.getByText("Enter a whole number").waitFor()
      await page.getByLabel("API keys").fill("25")
      await page.getByRole("button", { name: "Save the limits" }).click()
      await page.getByRole("status").getByText("The limits are saved.").waitFor()
    })
    expect(yield* call("GET", `/api/v0/orgs/${orgId}`)).toMatchObject({
      name: "Acme",
      retentionDays: 30,
      owners: ["acme", "gitlab:acme"],
      limits: { keys: 25, projects: 10_000 },
    })
    yield* inTab(`/orgs/${orgId}/settings`, async (page, at) => {
      await page.getByRole("button", { name: "Delete org" }).click()
      const confirm = page.getByRole("dialog").getByRole("button", { name: "Delete org" })
      await expect.poll(() => confirm.isDisabled()).toBe(true)
      await page.getByLabel("Type Acme to confirm").fill("acme")
      await expect.poll(() => confirm.isDisabled()).toBe(true)
      await page.getByLabel("Type Acme to confirm").fill("Acme")
      await confirm.click()
      await page.waitForURL(at(`/orgs/${orgId}`))
      await page.getByRole("status").getByText("Acme is deleted.").waitFor()
      await page.getByRole("heading", { name: "Deleted org", level: 1 }).waitFor()
      await page.getByText(/steps are done/).waitFor()
      await expectAccessible(page)
      await page.getByRole("link", { name: "Audit log" }).first().click()
      await page.getByText("deleted the org").waitFor()
    })
    const { send } = yield* TestServer
    expect((yield* send("GET", `/api/v0/orgs/${orgId}`, { as: adminToken })).status).toBe(404)
  })

  it.effect("the newest orgs are first, and any is found by a part of its name", function* () {
    yield* createOrg("Cormorant Freight")
    yield* Effect.forEach(Array.from({ length: 26 }), (_, n) => createOrg(`Later ${n}`))
    yield* inTab("/orgs", async (page) => {
      const names = page.getByRole("table", { name: "Orgs" }).locator("tbody a.main")
      await expect.poll(() => names.first().textContent()).toBe("Later 25")
      await page.getByLabel("Org", { exact: true }).fill("cormorant")
      await expect.poll(() => names.allTextContents()).toEqual(["Cormorant Freight"])
      await page.getByLabel("Org", { exact: true }).fill("no such org")
      await page.getByText("No org matches").waitFor()
      await expectAccessible(page)
      await page.setViewportSize({ width: 390, height: 800 })
      await expectFits(page)
    })
  })

  it.effect("an alert is created, tested, edited, turned off and deleted, and shows its unit", function* () {
    const orgId = yield* createOrg("Alpine")
    const alerts = Effect.map(call("GET", `/api/v0/orgs/${orgId}/alerts`), (page) => page["alerts"])
    yield* inTab(`/orgs/${orgId}/alerts`, async (page) => {
      await page.getByText("No alerts yet").waitFor()
      await page.getByRole("button", { name: "Create an alert…" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Name").fill("Queue")
      await dialog.getByLabel("When").selectOption("backlog")
      await dialog.getByLabel("More than", { exact: true }).fill("500")
      await dialog.getByLabel("Tell").selectOption("discord")
      await dialog.getByLabel("URL").fill("https://localhost:9/a-token")
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Create alert" }).click()
      await page.getByRole("cell", { name: "Queue", exact: true }).waitFor()
      await page.getByRole("cell", { name: "500 deliveries" }).waitFor()
      // The buttons of a row are in one line.
      const tops = "[...document.querySelectorAll('td button')].map((button) => button.getBoundingClientRect().top)"
      await expect.poll(async () => new Set((await page.evaluate(tops)) as ReadonlyArray<number>).size).toBe(1)
      await expectFits(page)
      await page.getByRole("button", { name: "Edit Queue" }).click()
      await dialog.getByLabel("More than", { exact: true }).fill("2000")
      await expectAccessible(page)
      const saved = page.waitForRequest((request) => request.method() === "PATCH")
      await dialog.getByRole("button", { name: "Save" }).click()
      await page.getByRole("cell", { name: "2,000 deliveries" }).waitFor()
      // Somebody else may have changed the rest.
      expect((await saved).postDataJSON()).toEqual({ threshold: 2_000 })
      await page.getByRole("button", { name: "Test", exact: true }).click()
      await page.getByRole("status").getByText("The target was not reached: ").waitFor()
    })
    const settings = { name: "Queue", condition: "backlog", threshold: 2_000, target: "discord", active: true }
    expect(yield* alerts).toMatchObject([{ ...settings, receiver: "localhost:9" }])
    yield* inTab(`/orgs/${orgId}/alerts`, async (page) => {
      await page.getByRole("button", { name: "Turn off" }).click()
      await page.getByRole("button", { name: "Turn on" }).waitFor()
      await page.getByRole("button", { name: "Delete Queue" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Delete alert" }).click()
      await page.getByText("No alerts yet").waitFor()
    })
    expect(yield* alerts).toEqual([])
  })

  it.effect("the administrator has alerts that watch every org, and who manages an org has theirs", function* () {
    const orgId = yield* createOrg("Alpine")
    const { key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "owner" })
    yield* inTab("/", async (page) => {
      await page.getByRole("link", { name: "Alerts" }).click()
      await page.getByRole("button", { name: "Create an alert…" }).click()
      const dialog = page.getByRole("dialog")
      await expect.poll(() => dialog.getByLabel("When").getByText("A limit is near").count()).toBe(0)
      await dialog.getByLabel("Name").fill("Any endpoint")
      await dialog.getByLabel("URL").fill("https://localhost:9/a-token")
      await dialog.getByRole("button", { name: "Create alert" }).click()
      await page.getByRole("cell", { name: "30 minutes" }).waitFor()
    })
    yield* inTab(
      `/orgs/${orgId}`,
      async (page) => {
        await page.getByRole("link", { name: "Alerts" }).click()
        await page.getByText("No alerts yet").waitFor()
        await page.getByRole("button", { name: "Create an alert…" }).waitFor()
      },
      key!,
    )
  })

  it.effect("an owner of another org is refused in the service's words", function* () {
    const [first, second] = [yield* createOrg("First"), yield* createOrg("Second")]
    yield* call("PATCH", `/api/v0/orgs/${first}`, { owners: ["taken"] })
    const { send } = yield* TestServer
    const request = { as: adminToken, json: { owners: ["taken"] } }
    const refused = yield* send("PATCH", `/api/v0/orgs/${second}`, request)
    expect(faultOfError(refused)).toBeUndefined()
    yield* inTab(`/orgs/${second}/settings`, async (page) => {
      await page.getByLabel("Owners of repositories").fill("taken")
      await page.getByRole("button", { name: "Save the owners" }).click()
      await expect
        .poll(() => page.getByRole("alert").textContent())
        .toBe((refused.json as { readonly error: string }).error)
    })
  })

  it.effect("the switcher opens another org by its name or its id", function* () {
    const [first, second] = [yield* createOrg("Nordlicht"), yield* createOrg("Kestrel Payments")]
    yield* inTab(`/orgs/${first}`, async (page, at) => {
      await page.getByRole("button", { name: "Nordlicht" }).click()
      const text = page.getByLabel("Name, id or line of a log")
      // The switcher shows orgs alone; one types on.
      await page.getByRole("option", { name: "Nordlicht" }).waitFor()
      await text.pressSequentially("kestrel")
      await page.getByRole("option", { name: "Kestrel Payments" }).click()
      await page.waitForURL(at(`/orgs/${second}`))
      await page.getByRole("heading", { name: "Kestrel Payments" }).waitFor()
      await page.getByRole("button", { name: "Kestrel Payments" }).click()
      await text.fill(first)
      await text.press("Enter")
      await page.waitForURL(at(`/orgs/${first}`))
    })
  })

  it.effect("the switcher finds an org that is not among the first hundred", function* () {
    const names = ["Alder Freight", ...Array.from({ length: 100 }, (_, n) => `Org ${n}`), "Zephyr Logistics"]
    const ids = yield* Effect.forEach(names, createOrg)
    for (const [i, name] of [
      [0, names[0]!],
      [101, names[101]!],
    ] as const) {
      yield* inTab(`/orgs/${ids[50]}`, async (page, at) => {
        await page.getByRole("button", { name: "Org 49" }).click()
        await page.getByLabel("Name, id or line of a log").fill(name.slice(0, 6).toLowerCase())
        await page.getByRole("option", { name }).click()
        await page.waitForURL(at(`/orgs/${ids[i]}`))
      })
    }
  })
})
