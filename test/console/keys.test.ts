import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { TestServer } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, painted, inTab, withConsoles } from "./support.ts"
import { call, createOrg } from "./world.ts"

/** Promise (Secrets are shown once): A key is shown once, and not in the page afterwards. */

const validate = (key: string, fields: object = {}) =>
  Effect.flatMap(TestServer, ({ send }) => send("POST", "/api/v0/keys/validate", { json: { key, ...fields } }))

withConsoles("keys", consoles, (it) => {
  it.effect("a key is created with limits and permissions, shown once, and copied", function* () {
    const orgId = yield* createOrg("Acme")
    let copied = ""
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      await page.getByText("There is no key yet").waitFor()
      await page.getByRole("button", { name: "Create key" }).click()
      await page.getByLabel("Name", { exact: true }).fill("gateway")
      await page.getByText("End, credits and more").click()
      await page.getByLabel("Rate limit").fill("600")
      await page.getByLabel("Credits").fill("1000")
      await page.getByLabel("refilled to").fill("5000")
      await page.getByLabel("Permissions").fill("models.gpt-5.use\nfiles.*")
      await page.getByLabel("External id").last().fill("customer_42")
      const create = page.getByRole("dialog").getByRole("button", { name: "Create key" })
      await page.getByLabel("Metadata").fill("[1]")
      await page.getByText("Enter a JSON object").waitFor()
      await expect.poll(() => create.isDisabled()).toBe(true)
      await page.getByLabel("Metadata").fill('{"plan":"pro"}')
      await create.click()
      await page.getByText("It is not shown again").waitFor()
      const secret = await page.locator("[data-secret]").textContent()
      await page.getByRole("button", { name: "Copy the key" }).click()
      copied = await page.evaluate("navigator.clipboard.readText()")
      expect(copied).toBe(secret)
      // Escape does not close what is shown once, however often somebody presses it.
      for (let i = 0; i < 3; i++) await page.keyboard.press("Escape")
      await expect.poll(() => page.getByRole("button", { name: "Done" }).isDisabled()).toBe(true)
      await page.getByLabel("I have copied the key").check()
      await page.getByRole("button", { name: "Done" }).click()
      await page.getByRole("link", { name: "gateway" }).waitFor()
      expect(await page.content()).not.toContain(copied)
    })
    const valid = yield* validate(copied, { details: true, permissions: ["files.read"] })
    expect(valid.json).toMatchObject({
      orgId,
      projectId: "",
      name: "gateway",
      permissions: ["models.gpt-5.use", "files.*"],
      externalId: "customer_42",
      metadata: { plan: "pro" },
      credits: 999,
    })
    const { keys } = yield* call("GET", `/api/v0/orgs/${orgId}/keys`)
    expect(keys).toMatchObject([
      {
        rateLimit: { limit: 600, window: 60 },
        credits: { refill: { amount: 5000, every: "month" } },
        enabled: true,
      },
    ])
  })

  it.effect("a form says why it waits, and names fields as people count them", function* () {
    const orgId = yield* createOrg("Acme")
    for (const name of ["docs", "shop"]) yield* call("POST", "/api/v0/projects", { name, orgId })
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      const projects = Promise.withResolvers<void>()
      await page.route("**/api/v0/projects?*", async (route) => {
        await projects.promise
        await route.continue()
      })
      await page.getByRole("button", { name: "Create key" }).click()
      const dialog = page.getByRole("dialog")
      const create = dialog.getByRole("button", { name: "Create key" })
      // While the projects are on their way, the key is not one of the whole org.
      await dialog.getByLabel("Belongs to", { exact: true }).waitFor()
      await expect.poll(() => create.isDisabled()).toBe(true)
      projects.resolve()
      await dialog.getByText("Choose whom the key is for.").waitFor()
      await expect.poll(() => create.isDisabled()).toBe(true)
      await dialog.getByLabel("Belongs to", { exact: true }).selectOption("Project shop")
      await dialog.getByText("Choose whom the key is for.").waitFor({ state: "detached" })
      await dialog.getByLabel("Name").fill("gateway")
      await dialog.getByLabel("Permissions").fill("files.read\nFiles!")
      await create.click()
      await dialog.getByRole("alert").getByText("The second permission must").waitFor()
      await expectAccessible(page)
      // What is on its way stays in sight: nobody would see the new key.
      const sent = Promise.withResolvers<void>()
      await page.route("**/api/v0/projects/*/keys", async (route) => {
        await sent.promise
        await route.continue()
      })
      await dialog.getByLabel("Permissions").fill("files.read")
      await create.click()
      await dialog.getByRole("button", { name: "One moment…" }).waitFor()
      await page.keyboard.press("Escape")
      sent.resolve()
      await dialog.getByText("It is not shown again").waitFor()
    })
  })

  it.effect("a key has roles and networks, new keys the prefix of the org, and imported ones say so", function* () {
    const orgId = yield* createOrg("Acme")
    const keys = `/api/v0/orgs/${orgId}/keys`
    const hash = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    yield* call("POST", `${keys}/import`, { keys: [{ hash, algorithm: "sha256", name: "from elsewhere" }] })
    let secret = ""
    yield* inTab(`/orgs/${orgId}/settings`, async (page, at) => {
      await page.getByLabel("Prefix of new keys").fill("acme_live")
      await page.getByRole("button", { name: "Save the prefix" }).click()
      await page.getByRole("status").getByText("The prefix is saved.").waitFor()
      await page.goto(at(`/orgs/${orgId}/keys`))
      await page
        .getByRole("row", { name: /from elsewhere/ })
        .getByText("Imported")
        .waitFor()
      await page.getByRole("button", { name: "Add role" }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByLabel("Role", { exact: true }).fill("reader")
      await dialog.getByLabel("Permissions").fill("files.read")
      await dialog.getByRole("button", { name: "Save role" }).click()
      await page.getByRole("table", { name: "Roles" }).getByText("files.read").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await page.getByRole("button", { name: "Create key" }).click()
      await dialog.getByLabel("Name").fill("gateway")
      await dialog.getByRole("button", { name: "Add reader" }).click()
      await dialog.getByText("End, credits and more").click()
      await dialog.getByLabel("Allowed networks").fill("203.0.113.0/24")
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Create key" }).click()
      secret = (await page.locator("[data-secret]").textContent())!
      await page.getByLabel("I have copied the key").check()
      await page.getByRole("button", { name: "Done" }).click()
      await page.getByRole("link", { name: "gateway" }).click()
      await page.getByText("203.0.113.0/24").waitFor()
      await page.getByText("reader", { exact: true }).waitFor()
      await page.goto(at(`/orgs/${orgId}/keys`))
      await page.getByRole("button", { name: "Edit the role reader" }).click()
      await dialog.getByLabel("Permissions").fill("files.*")
      await dialog.getByRole("button", { name: "Save role" }).click()
      await page.getByRole("table", { name: "Roles" }).getByText("files.*").waitFor()
    })
    expect(secret).toMatch(/^acme_live_/)
    const asked = { permissions: ["files.write"], clientIp: "203.0.113.9" }
    expect((yield* validate(secret, asked)).status).toBe(200)
    expect((yield* validate(secret, { ...asked, clientIp: "198.51.100.1" })).status).toBe(403)
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      await page.getByRole("button", { name: "Delete the role reader" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Delete role" }).click()
      await page.getByText("A role is a set of permissions").waitFor()
    })
    expect((yield* validate(secret, asked)).status).toBe(403)
  })

  it.effect("keys of a file are checked, then imported, and those that are here stay", function* () {
    const orgId = yield* createOrg("Acme")
    const one = (n: number) => ({ hash: String(n).padStart(64, "0"), algorithm: "sha256", name: `old ${n}` })
    yield* call("POST", `/api/v0/orgs/${orgId}/keys/import`, { keys: [one(1)] })
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      await page.getByRole("button", { name: "Import keys" }).click()
      const dialog = page.getByRole("dialog", { name: "Import keys" })
      const choose = (text: string) =>
        dialog.getByLabel("File").setInputFiles({
          name: "keys.json",
          mimeType: "application/json",
          buffer: Buffer.from(text),
        })
      await choose("[")
      await dialog.getByText("Not valid JSON").waitFor()
      // What a browser says when somebody closes its choice of files.
      await dialog.getByLabel("File").dispatchEvent("cancel")
      await choose(JSON.stringify([{ ...one(1), hash: "short" }]))
      await dialog.getByRole("alert").getByText("hash").waitFor()
      await choose(JSON.stringify({ keys: [one(1), one(2), one(3)] }))
      await dialog.getByText("2 keys can be imported, 1 is here already.").waitFor()
      await expectAccessible(page)
      await dialog.getByRole("button", { name: "Import 2 keys" }).click()
      await page.getByRole("status").getByText("2 keys are imported.").waitFor()
      await page.getByRole("link", { name: "old 3" }).waitFor()
      await expectFits(page)
    })
  })

  it.effect("keys are found by when they were last used", function* () {
    const { sql } = yield* TestServer
    const orgId = yield* createOrg("Acme")
    const used = Effect.fnUntraced(function* (name: string, days: number) {
      const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name })
      const at = new Date(Date.now() - days * 86_400_000)
      yield* sql`UPDATE api_keys SET last_used_at = ${at} WHERE org_id = ${orgId} AND id = ${id!}`
    })
    yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "new" })
    yield* used("busy", 1)
    yield* used("old", 40)
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      const found = page.getByRole("table", { name: "API keys" }).locator("tbody a.main")
      for (const [label, names] of [
        ["Never", ["new"]],
        ["In the last 7 days", ["busy"]],
        ["Not in 30 days", ["old", "new"]],
        ["Not in 90 days", ["new"]],
      ] as const) {
        await page.getByLabel("Last used").selectOption(label)
        await expect.poll(() => found.allTextContents()).toEqual(names)
      }
      // At 360 pixels the filters that are not set are folded, and their button says how many are.
      await page.setViewportSize({ width: 360, height: 800 })
      const unfold = page.getByRole("button", { name: "Filters (1 set)" })
      await unfold.waitFor()
      await expect.poll(() => page.getByLabel("External id").isVisible()).toBe(false)
      await unfold.click()
      await expect.poll(() => page.getByLabel("External id").isVisible()).toBe(true)
      await expectAccessible(page)
    })
  })

  it.effect("a key is rotated with an overlap that is seen to run, and the old one works meanwhile", function* () {
    const orgId = yield* createOrg("Acme")
    const { id, key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "ci" })
    let fresh = ""
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page, at) => {
      await page.getByRole("button", { name: "Rotate" }).click()
      await page.getByLabel("The old key stays valid for").selectOption("1 hour")
      await page.getByRole("button", { name: "Rotate key" }).click()
      fresh = (await page.locator("[data-secret]").textContent())!
      await page.getByLabel("I have copied the key").check()
      await page.getByRole("button", { name: "Done" }).click()
      await page.waitForURL((url) => url.href !== at(`/orgs/${orgId}/keys/${id}`))
      await page.goto(at(`/orgs/${orgId}/keys/${id}`))
      const shown = page.getByText(/This key ends in 59 min/)
      const first = await shown.textContent()
      await page.getByText(first!).waitFor({ state: "detached" })
      await shown.waitFor()
      // A key is rotated once: its replacement is rotated next.
      await expect.poll(() => page.getByRole("button", { name: "Rotate" }).count()).toBe(0)
      await page.getByRole("link", { name: "its replacement" }).click()
      await page.getByRole("button", { name: "Rotate" }).waitFor()
    })
    for (const one of [key!, fresh]) expect((yield* validate(one)).status).toBe(200)
  })

  it.effect("a key whose name nobody sees has a link, and a click beside a form keeps what is typed", function* () {
    const orgId = yield* createOrg("Acme")
    const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: " \u200b" })
    yield* inTab(`/orgs/${orgId}/keys`, async (page) => {
      const dialog = page.getByRole("dialog")
      const create = page.getByRole("button", { name: "Create key" }).first()
      await create.click()
      await dialog.getByLabel("Name").fill("gateway")
      await page.mouse.click(3, 3)
      await expect.poll(() => dialog.getByLabel("Name").inputValue()).toBe("gateway")
      await page.keyboard.press("Escape")
      await create.click()
      await dialog.getByLabel("Name").waitFor()
      await page.mouse.click(3, 3)
      await dialog.waitFor({ state: "detached" })
      await page.getByRole("link", { name: id! }).click()
      await page.getByRole("heading", { name: "Settings" }).waitFor()
    })
  })

  it.effect("a key of a project names the project", function* () {
    const orgId = yield* createOrg("Acme")
    const { projectId } = yield* call("POST", "/api/v0/projects", { name: "handbook", orgId })
    const { id } = yield* call("POST", "/api/v0/keys", { name: "ci", projectId })
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page, at) => {
      await page.getByRole("link", { name: "handbook" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/projects/${projectId}`))
    })
  })

  it.effect("a key is changed, disabled, enabled and deleted, and its replicas know", function* () {
    const orgId = yield* createOrg("Acme")
    const { id, key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, {
      name: "mobile",
      credits: { remaining: 100 },
      permissions: ["files.read"],
    })
    expect((yield* validate(key!)).status).toBe(200)
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page) => {
      await page.getByRole("button", { name: "Edit" }).click()
      await page.getByLabel("Name").fill("mobile app")
      await page.getByLabel("Permissions").fill("")
      await page.getByRole("button", { name: "Save" }).click()
      await page.getByRole("heading", { name: "mobile app", exact: true }).waitFor()
      await page.getByRole("button", { name: "Disable" }).click()
      await page.getByRole("dialog").getByRole("button", { name: "Disable key" }).click()
      await page.getByText("This key is disabled").waitFor()
    })
    // What the form did not touch is not sent: a use meanwhile is not undone.
    const { keys } = yield* call("GET", `/api/v0/orgs/${orgId}/keys`)
    expect(keys).toMatchObject([{ name: "mobile app", permissions: [], enabled: false, credits: { remaining: 99 } }])
    expect((yield* validate(key!)).status).toBe(401)
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page) => {
      await page.getByRole("button", { name: "Enable" }).click()
      await page.getByRole("button", { name: "Disable" }).waitFor()
    })
    expect((yield* validate(key!)).status).toBe(200)
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page, at) => {
      await page.getByRole("button", { name: "Delete" }).click()
      await page.getByLabel("Type mobile app to confirm").fill("mobile app")
      await page.getByRole("button", { name: "Delete key" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/keys`))
      await page.getByText("There is no key yet").waitFor()
      await page.goto(at(`/orgs/${orgId}/keys/${id}`))
      await page.getByText("The org has no such key.").waitFor()
    })
    expect((yield* validate(key!)).status).toBe(401)
  })

  it.effect("usage appears without a reload, as a chart with a table; keys are found by external id", function* () {
    const orgId = yield* createOrg("Acme")
    const keys = `/api/v0/orgs/${orgId}/keys`
    const { id, key } = yield* call("POST", keys, { name: "of customer 1", externalId: "customer_1" })
    yield* call("POST", keys, { name: "of customer 2", externalId: "customer_2" })
    yield* Effect.forEach(Array.from({ length: 3 }), () => validate(key!, { cost: 5 }))
    yield* until(
      "the usage",
      call("GET", `${keys}/${id}/usage`),
      ({ usage }) => (usage as unknown as ReadonlyArray<{ readonly valid: number }>).at(-1)!.valid === 3,
    )
    yield* inTab(`/orgs/${orgId}/keys?externalId=customer_1`, async (page) => {
      const key = page.getByRole("row").filter({ hasText: "of customer 1" })
      await key.getByRole("cell", { name: "Unlimited" }).nth(1).waitFor()
      await expect.poll(() => page.getByRole("link", { name: "of customer 2" }).count()).toBe(0)
      await page.getByRole("link", { name: "of customer 1" }).click()
      await page.getByRole("img", { name: "Validations: Valid 3, Limited 0, Forbidden 0" }).waitFor()
      await page.getByRole("img", { name: "Cost of valid validations: Cost 15" }).waitFor()
      // A chart that appears below a pointer at rest shows no card; one that moves, that of the hour below it.
      const chart = page.getByRole("figure", { name: "Validations", exact: true })
      const plot = chart.getByRole("img")
      const expectCard = (text: RegExp) => expect.poll(() => chart.getByRole("status").innerText()).toMatch(text)
      const hour = /^\w{3} \d+, \d\d:\d\d .M\s+/
      const of = (valid: number) => new RegExp(`${hour.source}Valid\\s+${valid}\\s+Limited\\s+0`)
      await chart.locator("svg g").nth(3).hover()
      await expectCard(of(0))
      await page.reload()
      await page.getByRole("img", { name: "Validations: Valid 3, Limited 0, Forbidden 0" }).waitFor()
      await chart.locator(".marked").waitFor({ state: "detached" })
      await expectCard(/^$/)
      // A tap shows the values of an hour, and they stay.
      const tap = (type: string) =>
        page.evaluate(`document.querySelectorAll("figure[aria-label=Validations] svg g")[3].dispatchEvent(
              new PointerEvent("${type}", { bubbles: true, pointerType: "touch" }))`)
      for (const type of ["pointerdown", "pointerleave", "click"]) await tap(type)
      await expectCard(of(0))
      // The arrow keys walk over the hours, and Escape leaves them.
      await page.reload()
      await plot.press("ArrowLeft")
      await expectCard(of(3))
      await plot.press("ArrowLeft")
      await expectCard(of(0))
      await plot.press("End")
      await expectCard(of(3))
      await expectAccessible(page)
      await plot.press("Escape")
      await expectCard(/^$/)
      await expect.poll(() => plot.evaluate((one) => one.matches(":focus"))).toBe(true)
      // The axis has four to six names that do not touch, and neighbours are in one line.
      for (const range of ["Last 24 hours", "Last 30 days"]) {
        await page.getByRole("button", { name: range }).click()
        for (const width of [390, 768, 1280, 1920, 3840]) {
          await page.setViewportSize({ width, height: 900 })
          await page.evaluate(painted)
          const names = await Promise.all((await chart.locator(".axis-x span").all()).map((one) => one.boundingBox()))
          expect(names.length, `${range} at ${width}`).toBeGreaterThanOrEqual(4)
          expect(names.length, `${range} at ${width}`).toBeLessThanOrEqual(6)
          for (const [i, name] of names.slice(1).entries())
            expect(name!.x, `${range} at ${width}`).toBeGreaterThan(names[i]!.x + names[i]!.width)
        }
        const [first, second] = await Promise.all(
          (await page.locator(".plot svg").all()).map((one) => one.boundingBox()),
        )
        expect([second!.y, second!.height, second!.width]).toEqual([first!.y, first!.height, first!.width])
      }
      await expectFits(page)
      await page.getByText("Show as a table").first().click()
      await page
        .getByRole("region", { name: "Validations, as a table" })
        .getByRole("cell", { name: "3", exact: true })
        .waitFor()
    })
  })

  it.effect(
    "keys are found by a name, a prefix or an id; a pasted key leaves only its prefix in the address",
    function* () {
      const orgId = yield* createOrg("Acme")
      const { key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
      const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "Mobile" })
      yield* inTab(`/orgs/${orgId}/keys`, async (page, at) => {
        const found = page.getByRole("table", { name: "API keys" }).locator("tbody a.main")
        const field = page.getByLabel("Name, prefix or id")
        for (const [text, name] of [
          ["mob", "Mobile"],
          [key!.slice(0, 8), "gateway"],
          [id!, "Mobile"],
        ] as const) {
          await field.fill(text)
          await expect.poll(() => found.allTextContents()).toEqual([name])
        }
        await field.fill(`Bearer ${key}`)
        await expect.poll(() => found.allTextContents()).toEqual(["gateway"])
        expect(page.url()).toBe(at(`/orgs/${orgId}/keys?text=${key!.slice(0, 12)}`))
        await expectAccessible(page)
        await expectFits(page)
        await field.fill("nobody's")
        await page.getByRole("heading", { name: "No key matches" }).waitFor()
      })
    },
  )
})
