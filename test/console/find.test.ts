/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { describe } from "vitest"
import { makeTenant } from "../http/tenants.ts"
import { adminToken } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { consoles, expectAccessible, expectFits, hasBrowser, signedInTab } from "./support.ts"
import { call } from "./world.ts"
import { webhookWorld } from "./webhookWorld.ts"

const unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"

const search = async (page: Page, text: string) => {
  await page.getByRole("button", { name: "Find by id" }).click()
  const dialog = page.getByRole("dialog", { name: "Find by id" })
  await dialog.getByLabel("Id").fill(text)
  await dialog.getByLabel("Id").press("Enter")
  return dialog
}

describe.skipIf(!hasBrowser).each(Object.entries(consoles))("finding by id, over %s", (_, console) => {
  layer(console, { excludeTestServices: true })((it) => {
    it.effect("an id, a header or a line of a log opens the page of what has it; other orgs' ids open nothing", () =>
      Effect.gen(function* () {
        const world = yield* webhookWorld
        const endpoint = yield* world.endpoint()
        const event_id = yield* world.publish("invoice.paid")
        const job = yield* world.finished()
        const { schedule_id } = yield* world.call("schedules/create", { workflow: "report", cron: "0 4 * * *" })
        const { id: key } = yield* call("POST", `/api/v0/orgs/${world.orgId}/keys`, { name: "gateway" })
        const listed = world.deliveries({ event_id })
        const [delivery] = yield* until("the delivery", listed, (found) => found.length === 1)
        const other = yield* makeTenant(adminToken)
        const otherJob = yield* other.finished()
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
          for (const missing of [unknown, otherJob]) {
            const dialog = await search(page, missing)
            await dialog.getByText(`of this org has the id ${missing}`).waitFor()
            expect(await dialog.getByRole("button", { name: "Find" }).isDisabled()).toBe(true)
            await expectAccessible(page)
            await page.keyboard.press("Escape")
          }
          const begun = await search(page, "01KAHB")
          await begun.getByText("this one has 6 so far").waitFor()
          await page.keyboard.press("Escape")
          const short = await search(page, "invoice")
          await short.getByText("This text has no id to look for.").waitFor()
          await page.keyboard.press("Escape")
          const dialog = await search(page, "an invoice, or what it was")
          await dialog.getByText("This text has no id to look for.").waitFor()
          await page.keyboard.press("Escape")
          await dialog.waitFor({ state: "detached" })
          await page.keyboard.press("Control+k")
          await dialog.getByLabel("Id").waitFor()
          await page.keyboard.press("Control+k")
          expect(await page.getByRole("dialog").count()).toBe(1)
          await page.keyboard.press("Escape")
          await dialog.waitFor({ state: "detached" })
          await expectAccessible(page)
          await expectFits(page)
        })
      }).pipe(Effect.scoped),
    )

    it.effect("an address with an id that nothing has says so, with a heading and a way back", () =>
      Effect.gen(function* () {
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
            expect(await page.title()).toBe(`${title} · Gatehouse`)
            await expectAccessible(page)
            await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link").click()
            await page.waitForURL(at(`/orgs/${orgId}/${list}`))
          }
        })
      }).pipe(Effect.scoped),
    )
  })
})
