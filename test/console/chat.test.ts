import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { must } from "../http/operations.ts"
import { signIn } from "../http/sessions/signedIn.ts"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { makeReceiver } from "../support/receiver.ts"
import { until } from "../support/wait.ts"
import { zip } from "../support/zip.ts"
import { consoles, expectAccessible, expectFits, inTab, withConsoles } from "./support.ts"
import { expectShownAsText, hostile } from "./webhookWorld.ts"

withConsoles("the chat playground", consoles, (it) => {
  it.effect("answers from the given pages, and shows what it quotes and from where", function* () {
    const { orgId } = yield* makeTenant(adminToken)
    yield* inTab(`/orgs/${orgId}/chat`, async (page) => {
      await page.getByRole("heading", { name: "Ask something that the pages answer" }).waitFor()
      await expectAccessible(page)
      await expectFits(page)
      await page.getByLabel("Question").fill("How long is a delivery retried?")
      await page.route("**/api/svc/chat", (route) => route.fulfill({ status: 502, body: "<h1>Bad gateway</h1>" }))
      await page.keyboard.press("Enter")
      await page.getByRole("alert").waitFor()
      await expect.poll(() => page.getByLabel("Question").inputValue()).toBe("How long is a delivery retried?")
      await page.unroute("**/api/svc/chat")
      await page.keyboard.press("Enter")
      await page.getByRole("heading", { name: "Found and quoted" }).waitFor()
      await page.getByText("retried for three days").first().waitFor()
      await page.getByText("guides/webhooks").first().waitFor()
      await expectAccessible(page)
      await page.getByLabel("Markdown").fill(`--- hostile\n# Zebras\n\nZebras have stripes ${hostile}.\n`)
      await page.getByRole("button", { name: "New chat" }).click()
      await page.getByLabel("Question").fill("Do zebras have stripes?")
      await page.keyboard.press("Enter")
      await expectShownAsText(page, /Zebras have stripes/)
      // What was searched for, and why nothing was found.
      await page.getByLabel("Question").fill("Do penguins fly?")
      await page.keyboard.press("Enter")
      await page.getByText("No page has penguins").waitFor()
      // Markdown is elements, and its HTML is text.
      await page
        .getByLabel("Markdown")
        .fill(
          "--- list\n# Penguins\n\nPenguins eat **fish**:\n\n- `krill`\n- [squid](https://example.com/squid)\n\n| a | b |\n| - | - |\n| `<b>` | 2 |\n",
        )
      await page.getByRole("button", { name: "New chat" }).click()
      await page.getByLabel("Question").fill("What do penguins eat?")
      await page.keyboard.press("Enter")
      const answer = page.locator(".markdown")
      await answer.locator("strong", { hasText: "fish" }).waitFor()
      await expect.poll(() => answer.locator("li code").textContent()).toBe("krill")
      await expect.poll(() => answer.getByRole("cell").first().textContent()).toBe("<b>")
      await expectAccessible(page)
      await expectFits(page)
    })
  })

  it.effect("asks the stored pages of a project with the session of the reader, and of no other org", function* () {
    const { send } = yield* TestServer
    const { key: orgKey, orgId } = yield* makeTenant(adminToken)
    const other = yield* makeTenant(adminToken)
    const host = yield* makeReceiver()
    host.behave({ status: 200, body: zip([{ path: "keys.md", content: "# Keys\n\nRotate a key in two steps." }]) })
    const projectOf = Effect.fnUntraced(function* (orgId: string) {
      const made = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs", orgId }, as: adminToken })
      const path = `/api/v0/projects/${made["projectId"]}/docs`
      const json = { docsZipUrl: `${host.url}/docs.zip`, keepQuestions: true }
      yield* must(send, "PUT", path, { json, as: adminToken })
      const read = must(send, "GET", path, { as: adminToken })
      yield* until("the documentation", read, (docs) => docs["state"] === "stored")
      return { projectId: String(made["projectId"]), path }
    })
    const { path, projectId } = yield* projectOf(orgId)
    const foreign = yield* projectOf(other.orgId)
    for (const credential of [adminToken, orgKey]) {
      yield* inTab(
        `/orgs/${orgId}/chat?pages=stored`,
        async (page, at) => {
          const options = page.getByLabel("Project", { exact: true }).locator("option")
          await options.first().waitFor({ state: "attached" })
          await expect.poll(() => options.allTextContents()).toEqual(["docs"])
          await page.getByLabel("Question").fill("How do I rotate a key?")
          await page.keyboard.press("Enter")
          await page.getByText("Rotate a key in two steps.").first().waitFor()
          await expectAccessible(page)
          // What is asked is shown, also when it is none of the choices.
          await page.goto(at(`/orgs/${orgId}/chat?pages=stored&project=${foreign.projectId}`))
          await expect.poll(() => options.allTextContents()).toContain("docs")
          await expect.poll(() => page.getByLabel("Project", { exact: true }).inputValue()).toBe(foreign.projectId)
        },
        credential,
      )
    }
    const { headers } = yield* signIn(orgKey)
    const ask = (projectId: string) =>
      send("POST", "/api/svc/chat", {
        json: { messages: [{ role: "user", content: "hello" }], projectId },
        headers,
      })
    expect((yield* ask(foreign.projectId)).status).toBe(404)
    expect((yield* ask(projectId)).status).toBe(200)
    // What was tried here is no question of a reader.
    expect(yield* must(send, "GET", `${path}/questions`, { as: adminToken })).toMatchObject({ questions: [] })
  })
})
