import { expect } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { it } from "vitest"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoles, inTab, withConsole } from "./support.ts"

const count = 1_100

/** Where the first row of a list is that the reader sees, and how far from the top of the window. */
const firstRow = `(() => {
  const rows = [...document.querySelectorAll("tbody tr:not(.far)")]
  const row = rows.find((row) => row.getBoundingClientRect().top >= 0)
  return [Number(row.getAttribute("aria-rowindex")) - 2, Math.round(row.getBoundingClientRect().top)]
})()`

it("an element has no style but that of styled, whose lengths have units", () => {
  const files = readdirSync("src/console", { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".tsx"),
  )
  const styles = files.filter((name) => /\sstyle=/.test(readFileSync(`src/console/${name}`, "utf8")))
  expect(files.length).toBeGreaterThan(10)
  expect(styles).toEqual([])
})

withConsole("a long list", consoles.PostgreSQL, (it) => {
  // Rows of two heights, so that no height of a row is right for all.
  it.effect("rows stay where they are while others come and go, and End reaches the last one", function* () {
    const { sql } = yield* TestServer
    const { orgId } = yield* makeTenant(adminToken)
    yield* sql`
          INSERT INTO webhook_endpoints (id, org_id, lane, url, description, active, secret, created_at, updated_at)
          SELECT id, ${orgId}, id, 'https://example.com/' || n, CASE WHEN n % 3 = 0 OR n > 700 THEN 'the endpoint number ' || n END, true, 's', now(), now()
          FROM (SELECT n, '01M8H3SDWJEA5AK5F8RZ' || lpad(n::text, 6, '0') AS id FROM generate_series(0, ${count - 1}::int) n) made`
    yield* inTab(`/orgs/${orgId}`, async (page, at) => {
      await page.route("**/v1/webhooks/list", (route) =>
        route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), limit: 1_000 }) }),
      )
      await page.goto(at(`/orgs/${orgId}/endpoints`))
      await page.evaluate("document.documentElement.style.overflowAnchor = 'none'")
      await page.getByRole("button", { name: "Show more" }).click()
      await page.locator(`table[aria-rowcount="${count + 1}"]`).waitFor()
      await page.locator("#main").focus()
      await page.keyboard.press("End")
      const last = page.locator(`tr[aria-rowindex="${count + 1}"]`)
      const isSeen = (row: { getBoundingClientRect: () => { top: number; bottom: number } }) =>
        row.getBoundingClientRect().bottom <= 720 && row.getBoundingClientRect().top > 0
      await expect.poll(() => last.evaluate(isSeen)).toBe(true)
      // A step of the wheel moves the rows by as much as it says: up through rows that were never drawn.
      await page.mouse.move(640, 450)
      for (let step = 0; step < 60; step++) {
        const [row, top] = (await page.evaluate(firstRow)) as [number, number]
        await page.mouse.wheel(0, -300)
        await expect.poll(() => page.evaluate(firstRow)).not.toEqual([row, top])
        const index = `tr[aria-rowindex="${row + 2}"]`
        await expect.poll(async () => Math.round((await page.locator(index).boundingBox())!.y) - top).toBe(300)
      }
      expect(((await page.evaluate(firstRow)) as [number])[0]).toBeLessThan(count - 250)
    })
  })

  // Seen failing: the chat offered the oldest 100 alone.
  it.effect("the newest of many projects can get a key, and its pages be asked", function* () {
    const { sql } = yield* TestServer
    const { orgId } = yield* makeTenant(adminToken)
    yield* sql`
      INSERT INTO projects (id, org_id, name, created_at, updated_at)
      SELECT '01M8H3SDWJEA5AK5F8RZ' || lpad(n::text, 6, '0'), ${orgId}, 'project ' || n, now(), now()
      FROM generate_series(1, 150) n`
    yield* inTab(`/orgs/${orgId}/chat?pages=stored`, async (page, at) => {
      const asked = page.getByLabel("Project", { exact: true })
      await expect.poll(() => asked.locator("option").last().textContent()).toBe("project 150")
      await page.goto(at(`/orgs/${orgId}/keys?new=1`))
      const owner = page.getByLabel("Belongs to", { exact: true })
      await expect.poll(() => owner.locator("option", { hasText: "project 150" }).count()).toBe(1)
    })
  })
})
