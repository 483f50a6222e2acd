import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, signedInTab, withConsoles } from "./support.ts"
import { call, createOrg } from "./world.ts"
import { webhookWorld } from "./webhookWorld.ts"

/** Promise (Secrets are shown once): A whole key that somebody pastes into *Find* is in no address. */

const unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"

const search = async (page: Page, text: string) => {
  await page.getByRole("button", { name: "Find", exact: true }).click()
  const dialog = page.getByRole("dialog", { name: "Find" })
  await dialog.getByLabel("Name, id or line of a log").fill(text)
  await dialog.getByLabel("Name, id or line of a log").press("Enter")
  return dialog
}

withConsoles("finding by id", consoles, (it) => {
  it.effect(
    "an id, a header or a line of a log opens the page of what has it; other orgs' ids open nothing",
    function* () {
      const world = yield* webhookWorld
      const endpoint = yield* world.endpoint()
      const event_id = yield* world.publish("invoice.paid")
      const job = yield* world.finished()
      const { schedule_id } = yield* world.call("schedules/create", { workflow: "report", cron: "0 4 * * *" })
      const keysPath = `/api/v0/orgs/${world.orgId}/keys`
      // Its own, so that the data of an earlier run are no other answers.
      const tag = world.orgId.slice(-8).toLowerCase()
      const { id: key } = yield* call("POST", keysPath, {
        name: `oldest ${tag} of many`,
        externalId: `customer_${tag}`,
      })
      // More keys than a page of them, and more newer orgs than are asked for names.
      yield* Effect.forEach(Array.from({ length: 100 }), () => call("POST", keysPath, { name: "old" }))
      const listed = world.deliveries({ event_id })
      const [delivery] = yield* until("the delivery", listed, (found) => found.length === 1)
      const other = yield* makeTenant(adminToken)
      const otherJob = yield* other.finished()
      yield* Effect.forEach(Array.from({ length: 25 }), () => createOrg("newer"), { discard: true })
      const { at, page } = yield* signedInTab(world.path("/keys"))
      yield* Effect.promise(async () => {
        const pasted = {
          [`webhook-id: ${delivery!.delivery_id}`]: `/deliveries/${delivery!.delivery_id}`,
          [`2026-11-23 took event "${event_id.toLowerCase()}", answered 200`]: `/events/${event_id}`,
          [job]: `/jobs/${job}`,
          [endpoint]: `/endpoints/${endpoint}`,
          [String(schedule_id)]: `/schedules/${schedule_id}`,
          [String(key)]: `/keys/${key}`,
          [`org=${world.orgId} key=${unknown} job=${job}`]: `/jobs/${job}`,
        }
        for (const [text, path] of Object.entries(pasted)) {
          const dialog = await search(page, text)
          await page.waitForURL(at(world.path(path)))
          await dialog.waitFor({ state: "detached" })
        }
        const missing = await search(page, unknown)
        await missing.getByText(`has the id ${unknown}`).waitFor()
        await expect.poll(() => missing.getByRole("button", { name: "Open" }).isDisabled()).toBe(true)
        await expectAccessible(page)
        await page.keyboard.press("Escape")
        const elsewhere = await search(page, otherJob)
        await page.waitForURL(at(`/orgs/${other.orgId}/jobs/${otherJob}`))
        await elsewhere.waitFor({ state: "detached" })
        await page.goto(at(world.path("/keys")))
        const none = await search(page, "an invoice, or what it was")
        await none.getByText("Nothing has this name, and the text has no id.").waitFor()
        await page.keyboard.press("Escape")
        for (const name of [`Oldest ${tag}`, `customer_${tag.slice(0, -1)}`]) {
          const called = await search(page, name)
          await called.getByRole("option", { name: `oldest ${tag} of many` }).click()
          await page.waitForURL(at(world.path(`/keys/${key}`)))
        }
        // A look-up that fails is not told as one that found nothing.
        const full = { error: "The disk is full.", code: "unavailable" }
        await page.route(/owns=|text=/, (route) => route.fulfill({ status: 503, json: full }))
        const failed = await search(page, job)
        await failed.getByText("The disk is full.").waitFor()
        await failed.getByLabel("Name, id or line of a log").fill("nobody has this")
        await failed.getByText("Not everything could be asked").waitFor()
        await page.keyboard.press("Escape")
        await page.unroute(/owns=|text=/)
        await search(page, "Publish an")
        await page.getByRole("dialog", { name: "Publish an event" }).waitFor()
        await page.keyboard.press("Escape")
        // From the overview, and where the navigation is a rail or a menu.
        await page.goto(at("/"))
        // Keys that are pressed before the script runs are lost.
        await page.getByRole("heading", { level: 1 }).waitFor()
        for (const width of [1024, 390]) {
          await page.setViewportSize({ width, height: 800 })
          await page.keyboard.press("Control+k")
          await page.getByRole("option", { name: "Orgs" }).waitFor()
          await page.keyboard.press("Escape")
        }
        await page.setViewportSize({ width: 1280, height: 800 })
        const dialog = page.getByRole("dialog", { name: "Find" })
        await page.keyboard.press("Control+k")
        await dialog.getByLabel("Name, id or line of a log").waitFor()
        await page.keyboard.press("Control+k")
        await expect.poll(() => page.getByRole("dialog").count()).toBe(1)
        await page.keyboard.press("Escape")
        await dialog.waitFor({ state: "detached" })
        await expectAccessible(page)
        await expectFits(page)
      })
    },
  )

  it.effect("a whole key, a project, an org and a request are found, and no address has the key", function* () {
    const { send } = yield* TestServer
    const { key, keyId, orgId } = yield* makeTenant(adminToken)
    const other = yield* makeTenant(adminToken)
    const { projectId } = yield* call("POST", "/api/v0/projects", { name: "handbook", orgId })
    const off = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "off", enabled: false })
    const { entries } = yield* call("GET", `/api/v0/orgs/${orgId}/audit?limit=1`)
    const [{ requestId }] = entries as unknown as [{ readonly requestId: string }]
    const { at, page } = yield* signedInTab(`/orgs/${orgId}/endpoints`)
    const urls: Array<string> = []
    page.on("request", (request) => void urls.push(request.url()))
    yield* Effect.promise(async () => {
      const goes = async (text: string, path: string) => {
        const dialog = await search(page, text)
        await page.waitForURL(at(path))
        urls.push(page.url())
        await dialog.waitFor({ state: "detached" })
      }
      await goes(`Authorization: Bearer ${key}`, `/orgs/${orgId}/keys/${keyId}`)
      await goes(other.key, `/orgs/${other.orgId}/keys/${other.keyId}`)
      await goes(`took project=${projectId}`, `/orgs/${orgId}/projects/${projectId}`)
      await goes(orgId, `/orgs/${orgId}`)
      // A key that is refused is found by its prefix.
      await goes(off.key!, `/orgs/${orgId}/keys?text=${off.key!.slice(0, 12)}`)
      await page.getByRole("link", { name: "off", exact: true }).waitFor()
      await page.goto(at("/"))
      await page.getByRole("heading", { level: 1 }).waitFor()
      await goes(`12:00 requestId=${requestId} 200`, `/orgs/${orgId}/audit?text=${requestId}`)
      await page.getByText("created the key off").waitFor()
    })
    for (const secret of [key, other.key, off.key!]) {
      expect(urls.filter((url) => url.includes(secret.slice(-20)))).toEqual([])
    }
    expect((yield* send("POST", "/api/v0/keys/validate", { json: { key } })).status).toBe(200)
  })

  it.effect(
    "projects, endpoints and workflows are found by their names from the overview, and from another org",
    function* () {
      const world = yield* webhookWorld
      const tag = `k${world.orgId.slice(-6).toLowerCase()}`
      const id = yield* world.endpoint({ description: `${tag.toUpperCase()} payments` })
      const { projectId } = yield* call("POST", "/api/v0/projects", { name: `${tag}-docs`, orgId: world.orgId })
      const { schedule_id } = yield* world.call("schedules/create", {
        workflow: `${tag}-report`,
        cron: "0 4 * * *",
      })
      // Seen failing: only the newest 20 orgs were asked.
      yield* Effect.forEach(Array.from({ length: 21 }), (_, n) => createOrg(`Later ${n}`))
      const other = yield* makeTenant(adminToken)
      const { at, page } = yield* signedInTab("/")
      yield* Effect.promise(async () => {
        for (const from of ["/", `/orgs/${other.orgId}/keys`]) {
          for (const [text, path] of [
            [`${tag} pay`, `/endpoints/${id}`],
            [`${tag}-docs`, `/projects/${projectId}`],
            [`${tag}-rep`, `/schedules/${schedule_id}`],
          ] as const) {
            await page.goto(at(from))
            await page.getByRole("heading", { level: 1 }).waitFor()
            await page.getByRole("button", { name: "Find", exact: true }).click()
            await page.getByLabel("Name, id or line of a log").fill(text)
            await page
              .getByRole("option", { name: new RegExp(tag, "i") })
              .first()
              .click()
            await page.waitForURL(at(world.path(path)))
          }
        }
        // At 360 pixels, a long name is whole.
        await page.setViewportSize({ width: 360, height: 800 })
        await page.keyboard.press("Control+k")
        await page.getByLabel("Name, id or line of a log").fill("daily")
        await page.getByLabel("Name, id or line of a log").fill(`${tag}-report`)
        const label = page
          .getByRole("option", { name: /every day at 4:00/ })
          .locator("span")
          .first()
        await expect.poll(() => label.evaluate((one) => one.scrollWidth - one.clientWidth)).toBe(0)
        await expect.poll(() => label.innerText()).toBe(`${tag}-report · every day at 4:00`)
        await expectAccessible(page)
      })
    },
  )

  it.effect("an address with an id that nothing has says so, with a heading and a way back", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    const lists = {
      deliveries: "Delivery",
      events: "Event",
      jobs: "Job",
      endpoints: "Endpoint",
      schedules: "Schedule",
    }
    const { at, page } = yield* signedInTab(`/orgs/${orgId}/keys`)
    yield* Effect.promise(async () => {
      for (const [list, title] of Object.entries(lists)) {
        await page.goto(at(`/orgs/${orgId}/${list}/${unknown}`))
        await page.getByRole("alert").getByText("There is no such").waitFor()
        await expect.poll(() => page.title()).toBe(`${title} · Gatehouse`)
        await expectAccessible(page)
        await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link").click()
        await page.waitForURL(at(`/orgs/${orgId}/${list}`))
      }
    })
  })
})
