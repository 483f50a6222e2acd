import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { must } from "../http/operations.ts"
import { makeReceiver } from "../support/receiver.ts"
import { TestServer } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { zip } from "../support/zip.ts"
import { expectAccessible, expectFits, inTab, withConsoles } from "./support.ts"
import { expectShownAsText, hostile } from "./webhookWorld.ts"
import { call, consolesWithCi, createOrg, repositoryOf } from "./world.ts"

const pages = zip([
  { path: "guides/keys.md", content: "# Keys\n\n## Rotation\n\nTo rotate a key, create a second one." },
  { path: "guides/limits.md", content: "# Limits\n\nA key has a limit of requests." },
])

/** A project with a current deployment and a key, a host of its zip, and readers. */
const makeWorld = Effect.gen(function* () {
  const { send } = yield* TestServer
  const host = yield* makeReceiver()
  host.behave({ status: 200, body: pages })
  const orgId = yield* createOrg("Acme")
  const run = yield* repositoryOf(orgId)
  const { projectId } = yield* run("1", { sha: "a".repeat(40) })
  const { key } = yield* call("POST", "/api/v0/keys", { name: "site", projectId })
  const api = `/api/v0/projects/${projectId}/docs`
  const stored = until("the documentation", call("GET", api), (docs) => docs["state"] === "stored")
  const kept = (count: number) =>
    until(
      "the questions",
      call("GET", `${api}/questions`),
      ({ questions }) => (questions as unknown as ReadonlyArray<unknown>).length === count,
    )
  /** Asks as a reader of the site; returns the id of the answer. */
  const ask = Effect.fnUntraced(function* (content: string) {
    const answer = yield* send("POST", "/api/svc/chat", { json: { messages: [{ role: "user", content }] }, as: key })
    expect(answer.status).toBe(200)
    return /"messageId":"(\w+)"/.exec(answer.text)?.[1]
  })
  const rate = (messageId: string, thumb: "up" | "down") =>
    must(send, "POST", "/api/svc/chat/feedback", { json: { messageId, thumb }, as: key! })
  const url = `${host.url}/docs-{sha}.zip`
  return {
    orgId,
    projectId,
    key: key!,
    api,
    host,
    url,
    stored,
    kept,
    ask,
    rate,
    path: `/orgs/${orgId}/projects/${projectId}/docs`,
  }
})

const rowWith = (page: Page, text: string) => page.getByRole("row").filter({ hasText: text })

withConsoles("documentation of a project", consolesWithCi, (it) => {
  it.effect("is stored, shown with its addresses, changed after a failed fetch, and removed", function* () {
    const { api, host, orgId, projectId, url } = yield* makeWorld
    yield* inTab(`/orgs/${orgId}/projects/${projectId}`, async (page, at) => {
      await page.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Documentation" }).click()
      await page.getByRole("heading", { name: "This project stores no documentation" }).waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await page.getByRole("button", { name: "Store documentation" }).click()
      await expectAccessible(page)
      await page.getByLabel("URL of the zip").fill(url.replace("{sha}", "{branch}"))
      await page.getByRole("button", { name: "Save and fetch" }).click()
      await page.getByRole("alert").getByText("URL of the zip").waitFor()
      await page.getByLabel("URL of the zip").fill(url)
      await page.getByLabel("Address of the site").fill("https://docs.example.com/")
      await page.getByRole("button", { name: "Save and fetch" }).click()
      // Without a reload.
      await page.getByText("Stored", { exact: true }).waitFor()
      await page.getByRole("region", { name: "Stored pages" }).getByText("2", { exact: true }).waitFor()
      await page.getByRole("link", { name: "main at aaaaaaa" }).waitFor()
      expect(host.received.map((request) => request.path)).toEqual([`/docs-${"a".repeat(40)}.zip`])
      const copied = async (name: string) => {
        await page.getByRole("button", { name }).click()
        return await page.evaluate("navigator.clipboard.readText()")
      }
      const { origin } = new URL(at("/"))
      expect(await copied("Copy the address of the MCP server")).toBe(`${origin}${api}/mcp`)
      expect(await copied("Copy the address of llms.txt")).toBe(`${origin}${api}/llms.txt`)
      const config = JSON.parse(String(await copied("Copy: Configuration of an MCP client")))
      expect(config.mcpServers["docs"]).toEqual({
        type: "http",
        url: `${origin}${api}/mcp`,
        headers: { Authorization: "Bearer svc_…" },
      })
      await expectAccessible(page)
      await expectFits(page)

      host.behave({ status: 404 })
      await page.getByText("anyone read the pages: press Edit.").waitFor()
      await page.getByRole("button", { name: "Edit" }).click()
      await page.getByLabel("Anyone may read the stored pages, without a key").check()
      await page.getByRole("button", { name: "Save and fetch" }).click()
      await page.getByText("The documentation could not be fetched").waitFor()
      await page.getByText("was answered with the status 404").waitFor()
      await page.getByText("Until then, chats use the pages below.").waitFor()
      await page.getByText("Nobody needs a key: the pages are public.").waitFor()
      await expectAccessible(page)
      await expectFits(page)
      host.behave({ status: 200, body: pages })
      await page.getByRole("button", { name: "Fetch again" }).click()
      await page.getByText("The documentation could not be fetched").waitFor({ state: "detached" })
      await page.getByText("Stored", { exact: true }).waitFor()

      await page.getByRole("button", { name: "Remove documentation" }).click()
      await page.getByLabel("Type docs to confirm").fill("docs")
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click()
      await page.getByRole("heading", { name: "This project stores no documentation" }).waitFor()
    })
    const { send } = yield* TestServer
    expect((yield* send("GET", `${api}/llms.txt`)).status).toBe(401)
  })

  it.effect("an owner turns questions on, and sees what found nothing, what is asked most, and feedback", function* () {
    const { api, ask, kept, orgId, path, rate, stored, url } = yield* makeWorld
    const { sql } = yield* TestServer
    yield* call("PUT", api, { docsZipUrl: url })
    yield* stored
    const { key } = yield* call("POST", `/api/v0/orgs/${orgId}/keys`, { name: "owner" })
    yield* inTab(
      path,
      async (page) => {
        await page.getByRole("heading", { name: "Questions are not kept" }).waitFor()
        await page.getByRole("button", { name: "Keep questions" }).click()
        await page.getByRole("dialog").getByRole("button", { name: "Keep questions" }).click()
        await page.getByRole("heading", { name: "Every question found something in this time" }).waitFor()
      },
      key!,
    )
    yield* stored
    yield* ask("Who bakes marzipanbread?")
    yield* ask("who bakes marzipanbread")
    const helped = yield* ask("How do I rotate a key?")
    const old = yield* ask("Zzyzzx in Terraform?")
    yield* ask(`Where is ${hostile}?`)
    yield* kept(5)
    yield* rate(helped!, "up")
    yield* sql`UPDATE docs_questions SET asked_at = asked_at - interval '40 days' WHERE id = ${old!}`
    yield* inTab(
      path,
      async (page) => {
        await rowWith(page, "who bakes marzipanbread").getByText("2", { exact: true }).waitFor()
        await expect.poll(() => rowWith(page, "How do I rotate").count()).toBe(0)
        await expect.poll(() => rowWith(page, "Terraform").count()).toBe(0)
        await expectShownAsText(page, hostile)
        await expectAccessible(page)
        await expectFits(page)
        await page.getByRole("group", { name: "Range" }).getByRole("button", { name: "Any time" }).click()
        await rowWith(page, "Terraform").waitFor()
        await page.getByRole("button", { name: "Most asked" }).click()
        await rowWith(page, "How do I rotate a key?").waitFor()
        await page.getByRole("button", { name: "Helpful", exact: true }).click()
        await rowWith(page, "who bakes").waitFor({ state: "detached" })
        await rowWith(page, "How do I rotate a key?").getByText("Has a source").waitFor()
        await page.reload()
        await rowWith(page, "How do I rotate a key?").waitFor()
        await expect.poll(() => page.getByRole("row").count()).toBe(2)
        await expectAccessible(page)
        await page.getByRole("button", { name: "Not helpful" }).click()
        await page.getByRole("heading", { name: "No answer was rated not helpful" }).waitFor()
        await page.getByRole("button", { name: "Erase" }).click()
        await page.getByLabel("Type docs to confirm").fill("docs")
        await page.getByRole("dialog").getByRole("button", { name: "Erase" }).click()
        await page.getByRole("button", { name: "Most asked" }).click()
        await page.getByRole("heading", { name: "Nobody has asked anything" }).waitFor()
      },
      key!,
    )
  })

  it.effect("the playground asks what is stored, with the session of the reader", function* () {
    const { api, key, orgId, path, projectId, stored, url } = yield* makeWorld
    yield* call("PUT", api, { docsZipUrl: url })
    yield* stored
    yield* inTab(path, async (page, at) => {
      await page.getByRole("link", { name: "Ask in the playground" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/chat?pages=stored&project=${projectId}`))
      await page.getByLabel("Question").fill("How do I rotate a key?")
      await page.keyboard.press("Enter")
      await page.getByText("create a second one").first().waitFor()
      await page.getByText("guides/keys").first().waitFor()
      await expectAccessible(page)
      await expectFits(page)
    })
    // Whoever has signed in with a key of the project needs no other one.
    yield* inTab(
      `/orgs/${orgId}/chat?pages=stored`,
      async (page) => {
        await page.getByLabel("Question").fill("How do I rotate a key?")
        await page.keyboard.press("Enter")
        await page.getByText("create a second one").first().waitFor()
        await expect.poll(() => page.getByLabel("Project", { exact: true }).count()).toBe(0)
      },
      key,
    )
  })
})
