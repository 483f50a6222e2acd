import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import type { Page } from "playwright-core"
import { differences, type Layout, layoutOf } from "./layout.ts"
import { consoles, signedInTab, withConsole } from "./support.ts"
import { call, callFor, createOrg } from "./world.ts"

/** The layouts as they should be. `UPDATE_LAYOUTS=1` writes the file again, after a change that is wanted. */
const file = new URL("layouts.json", import.meta.url)
const isUpdate = process.env["UPDATE_LAYOUTS"] === "1"
const wanted = (): Readonly<Record<string, Layout>> => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {})

/** An org with one of each. Returns the addresses of its pages by their names. */
const makePages = Effect.gen(function* () {
  const orgId = yield* createOrg("Acme")
  const { projectId } = yield* call("POST", "/api/v0/projects", { name: "docs", orgId })
  const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
  const docsZipUrl = "https://docs.invalid/{sha}.zip"
  yield* call("PUT", `/api/v0/projects/${projectId}/docs`, { docsZipUrl, keepQuestions: true })
  const { schedule_id } = yield* callFor(orgId, "schedules/create", { workflow: "report", cron: "0 4 * * *" })
  yield* callFor(orgId, "events/publish", { type: "invoice.paid", data: { id: 1 } })
  yield* callFor(orgId, "jobs/create", { workflow: "report" })
  const { webhook_endpoint_id } = yield* callFor(orgId, "webhooks/create", {
    url: "https://localhost:9/hooks",
    signing_secret: "secret",
  })
  const org = `/orgs/${orgId}`
  return {
    orgs: "/orgs",
    org,
    projects: `${org}/projects`,
    deployments: `${org}/projects/${projectId}`,
    docs: `${org}/projects/${projectId}/docs`,
    project: `${org}/projects/${projectId}/settings`,
    keys: `${org}/keys`,
    key: `${org}/keys/${id}`,
    endpoints: `${org}/endpoints`,
    endpoint: `${org}/endpoints/${webhook_endpoint_id}`,
    deliveries: `${org}/deliveries`,
    events: `${org}/events`,
    jobs: `${org}/jobs`,
    schedules: `${org}/schedules`,
    schedule: `${org}/schedules/${schedule_id}`,
    chat: `${org}/chat`,
    portal: `${org}/portal`,
    audit: `${org}/audit`,
    settings: `${org}/settings`,
  }
})

const open = async (page: Page, address: string) => {
  await page.goto(address)
  await page.getByRole("heading", { level: 1 }).waitFor()
  await page.locator("main :is([aria-busy=true], .skeleton)").first().waitFor({ state: "detached" })
}

/** Whether a page has its layout, once what it waits for is there. */
const expectLayout = (page: Page, name: string, layout: Layout) =>
  expect.poll(async () => differences(layout, await layoutOf(page)), { message: name }).toEqual([])

/** Adds a rule to the styles of the pages that are opened from now on. */
const addRule = (page: Page, rule: string) =>
  page.route("**/*.css", async (route) => {
    const answer = await route.fetch()
    await route.fulfill({ response: answer, body: `${await answer.text()}\n${rule}` })
  })

/** Faults of styles that each would be seen by a person: a rule that is lost, moved or has another colour. */
const faults = {
  "the frame has no columns": ".layout { display: block }",
  "cards in columns are below each other": ".grid-2 { display: block }",
  "cards lose their ground": ".card { background: none }",
  "the space at the sides is lost": ".page { padding: 0 }",
  "text in dark is dark": "@media (prefers-color-scheme: dark) { :root { --text: #16202b } }",
}

withConsole("the layout of pages", consoles["the embedded database"], (it) => {
  it.effect("is the one of the reference, at 1280 and 390 pixels, in light and dark", function* () {
    const pages = yield* makePages
    const { at, page } = yield* signedInTab("/orgs")
    yield* Effect.promise(async () => {
      const found: Record<string, Layout> = {}
      for (const [name, path] of Object.entries(pages)) {
        await open(page, at(path))
        if (isUpdate) found[name] = await layoutOf(page)
        else await expectLayout(page, name, wanted()[name] ?? {})
      }
      if (isUpdate) writeFileSync(file, `${JSON.stringify(found, null, 1)}\n`)
    })
  })

  it.effect("is the same with the fonts of another machine", function* () {
    const pages = yield* makePages
    const { at, page } = yield* signedInTab("/orgs")
    yield* Effect.promise(async () => {
      await addRule(page, ":root { --font: serif; --mono: serif; letter-spacing: 0.1em }")
      for (const [name, path] of Object.entries(pages)) {
        await open(page, at(path))
        await expectLayout(page, name, wanted()[name] ?? {})
      }
    })
  })

  it.effect("differs from the reference when a rule is broken", function* () {
    const { docs, keys, settings } = yield* makePages
    const { at, page } = yield* signedInTab("/orgs")
    const pages = { docs, keys, settings }
    yield* Effect.promise(async () => {
      for (const [name, rule] of Object.entries(faults)) {
        await addRule(page, rule)
        const seen: Array<string> = []
        for (const [one, path] of Object.entries(pages)) {
          await open(page, at(path))
          seen.push(...differences(wanted()[one]!, await layoutOf(page)))
        }
        expect(seen, name).not.toEqual([])
        await page.unroute("**/*.css")
      }
    })
  })
})
