import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { TestServer } from "../support/server.ts"
import { consoles, expectAccessible, expectFits, inTab, withConsoles } from "./support.ts"
import { call, callFor, createOrg } from "./world.ts"

withConsoles("the audit log", consoles, (it) => {
  it.effect("tells in sentences who did what, with names in the place of ids", function* () {
    const orgId = yield* createOrg("Acme")
    const { id, key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
    yield* call("PATCH", `/api/v0/orgs/${orgId}/keys/${id}`, { enabled: false })
    yield* call("PATCH", `/api/v0/orgs/${orgId}/keys/${id}`, { enabled: true, name: "gateway" })
    yield* call("POST", `/api/v0/orgs/${orgId}/keys/${id}/rotate`, { overlapSeconds: 3600 })
    const { projectId } = yield* call("POST", "/api/v0/projects", { name: "docs", orgId })
    yield* call("PUT", `/api/v0/projects/${projectId}/link`, {
      provider: "github",
      hostOwner: "acme",
      hostRepo: "docs",
    })
    const hook = { url: "https://hooks.example.com/in", signing_secret: "s", description: "Billing" }
    const { webhook_endpoint_id } = yield* callFor(orgId, "webhooks/create", hook)
    const update = (changes: object) => callFor(orgId, "webhooks/update", { id: webhook_endpoint_id, ...changes })
    yield* update({ active: true })
    yield* update({ active: true, signing_secret: "t", max_per_second: 5 })
    yield* update({ url: "https://hooks.example.com/v2/in?token=t0k3n" })
    yield* call("DELETE", `/api/v0/projects/${projectId}`)
    const { projectId: site } = yield* call("POST", "/api/v0/projects", { name: "site", orgId })
    yield* call("PUT", `/api/v0/projects/${site}/docs`, { docsZipUrl: "https://docs.example.com/docs.zip" })
    yield* inTab(
      `/orgs/${orgId}/audit`,
      async (page) => {
        await page.getByText("created the org Acme.").waitFor()
        const endpoint = "Billing"
        const lines = await page.getByRole("row").getByRole("cell").filter({ hasText: "Details" }).allInnerTexts()
        expect(lines.map((line) => line.split("\n")[0])).toEqual([
          "The key gateway signed in.",
          "The administrator set where the documentation of the project site is.",
          "The administrator created the project site.",
          "The administrator deleted the project docs.",
          `The administrator changed the URL of the endpoint ${endpoint}, from https://hooks.example.com/in to https://hooks.example.com/v2/in?… (… hides what may be secret).`,
          `The administrator changed the state, max per second and signing secret of the endpoint ${endpoint}.`,
          `The administrator activated the endpoint ${endpoint}.`,
          "The administrator created a webhook endpoint at hooks.example.com.",
          "The administrator linked the project docs to acme/docs.",
          "The administrator created the project docs.",
          "The administrator rotated the key gateway; the old one stays valid for 1 h.",
          "The administrator changed the state and name of the key gateway.",
          "The administrator disabled the key gateway.",
          "The administrator created the key gateway.",
          "The administrator created the org Acme.",
        ])
        await page.getByText("state: from false to true").waitFor()
        await page.getByText("max per second: to 5").waitFor()
        expect(await page.content()).not.toContain("t0k3n")
        const deletion = page.getByRole("row").filter({ hasText: "deleted the project docs." })
        await deletion.getByText("Details").click()
        await page.getByText("project.delete").waitFor()
        await page.getByRole("link", { name: endpoint }).first().click()
        await page.getByRole("heading", { level: 1, name: "hooks.example.com/v2/in" }).waitFor()
      },
      key!,
    )
  })

  it.effect("the name in a sentence is the link, also when it is a word of the sentence", function* () {
    const orgId = yield* createOrg("Acme")
    const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "key" })
    yield* inTab(`/orgs/${orgId}/audit`, async (page) => {
      const sentence = page.getByText("created the key key")
      await sentence.waitFor()
      expect((await sentence.innerHTML()).replaceAll(/ class="[^"]*"|<.?bdi>/g, "")).toBe(
        `created the key <a href="/console/orgs/${orgId}/keys/${id}">key</a>`,
      )
    })
  })

  it.effect("a key that made a change is named, however many keys are newer", function* () {
    const { send } = yield* TestServer
    const orgId = yield* createOrg("Acme")
    const keys = `/api/v0/orgs/${orgId}/keys`
    const { key } = yield* call("POST", keys, { name: "the oldest" })
    yield* Effect.forEach(Array.from({ length: 101 }), () => call("POST", keys, { name: "newer" }))
    yield* send("POST", "/v1/schedules/create", { as: key!, json: { workflow: "report", cron: "0 4 * * *" } })
    yield* inTab(`/orgs/${orgId}/audit`, async (page) => {
      await page.getByText("The key the oldest created a schedule of report").waitFor()
    })
  })

  it.effect("entries are found by what they are about, a name, an id or a request, also far back", function* () {
    const orgId = yield* createOrg("Acme")
    const { id } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "gateway" })
    const { projectId } = yield* call("POST", "/api/v0/projects", { name: "docs", orgId })
    // More than a page of entries, so that the one about the key is not on the first.
    const rename = (n: number) => call("PATCH", `/api/v0/projects/${projectId}`, { name: `docs ${n}` })
    yield* Effect.forEach(
      Array.from({ length: 101 }, (_, n) => n),
      rename,
    )
    const { entries } = yield* call("GET", `/api/v0/orgs/${orgId}/audit?limit=1`)
    for (const endpoints of [9, null]) yield* call("PATCH", `/api/v0/orgs/${orgId}`, { limits: { endpoints } })
    const [{ requestId }] = entries as unknown as [{ readonly requestId: string }]
    yield* inTab(`/orgs/${orgId}/keys/${id}`, async (page, at) => {
      const rows = page.getByRole("table", { name: "Audit log" }).locator("tbody tr")
      await page.getByRole("link", { name: "who changed it" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/audit?text=${id}`))
      await rows.getByText("created the key gateway.").waitFor()
      await expect.poll(() => rows.count()).toBe(1)
      await expectAccessible(page)
      await expectFits(page)
      await page.getByLabel("Name, id or request").fill(requestId)
      await rows.getByText("changed the name of the project").waitFor()
      await rows.getByText("name: from docs 99 to docs 100").waitFor()
      await expect.poll(() => rows.count()).toBe(1)
      await page.getByLabel("Name, id or request").fill("limits of the org")
      await rows.getByText("Webhook endpoints: from 9 to default").waitFor()
      await page.getByLabel("Name, id or request").fill("")
      await page.getByLabel("About").selectOption("API keys")
      await rows.getByText("created the key gateway.").waitFor()
      await page.getByLabel("Name, id or request").fill("nobody")
      await page.getByRole("heading", { name: "No entry matches" }).waitFor()
      await expectAccessible(page)
    })
  })
})
