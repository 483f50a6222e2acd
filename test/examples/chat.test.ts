import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import type { AddressInfo } from "node:net"
import { makeSite, type SiteOptions } from "../../examples/chat/server.ts"
import { browserPage, hasBrowser } from "../support/browser.ts"
import { docsPages } from "../support/docs.ts"
import { it } from "../support/it.ts"
import { modelServer } from "../support/modelServer.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"
import { must } from "../http/operations.ts"

/** The site of the example on a free port. */
const site = (options: Omit<SiteOptions, "docsPages">) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = await makeSite({ ...options, docsPages })
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
      return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
    }),
    ({ server }) => Effect.sync(() => (server.closeAllConnections(), server.close())),
  )

describe.skipIf(!hasBrowser)("the example in a browser", () => {
  it.live(
    "asks with useChat in guarded mode, shows the answer, and keeps the key and the pages out of the browser",
    () =>
      Effect.gen(function* () {
        const { send, url } = yield* TestServer
        const create = (path: string, json: object) => must(send, "POST", path, { json, as: adminToken })
        const { projectId } = yield* create("/api/v0/projects", { name: "docs" })
        const { key } = yield* create("/api/v0/keys", { name: "site", projectId })
        const { url: home } = yield* site({ gatehouse: url, key })
        const page = yield* browserPage
        yield* Effect.promise(async () => {
          const faults: Array<string> = []
          const sent: Array<string> = []
          page.on("pageerror", (error) => void faults.push(error.message))
          page.on("console", (message) => void (message.type() === "error" && faults.push(message.text())))
          page.on(
            "request",
            (request) => void sent.push(request.url() + JSON.stringify(request.headers()) + request.postData()),
          )
          await page.goto(`${home}/guides/keys`)
          await page.getByLabel("Question").fill("How do I rotate a key?")
          await page.getByRole("button", { name: "Ask" }).click()
          const answer = page.locator('article[data-role="assistant"]')
          await answer.getByText("Create a second key, put it into use everywhere").waitFor()
          expect(await answer.textContent()).toMatch(/word for word:\s*API keys › Rotating a key \(guides\/keys\)/)
          expect(await answer.locator("blockquote").count()).toBeGreaterThan(0)
          const source = answer.getByRole("list", { name: "Sources" }).getByRole("link").first()
          expect(await source.getAttribute("href")).toBe(`${home}/guides/keys`)
          if (process.env["SCREENSHOT"]) await page.screenshot({ path: process.env["SCREENSHOT"] })

          // The second question is sent with the whole conversation.
          await page.getByLabel("Question").fill("And how long are webhooks retried?")
          await page.getByRole("button", { name: "Ask" }).click()
          await page.getByText("for three days in all").waitFor()
          expect(await page.locator("article").count()).toBe(4)
          expect(sent.at(-1)).toContain("How do I rotate a key?")
          expect(sent.join("\n")).not.toContain(key)
          expect(sent.join("\n")).not.toContain("docsPages")
          expect(faults).toEqual([])
        })
      }).pipe(Effect.provide(TestServer.layer(guarded)), Effect.scoped),
  )

  it.live("shows a model's answer while it arrives, stops it, and shows an error", function* () {
    const model = yield* modelServer
    yield* Effect.gen(function* () {
      const { url } = yield* TestServer
      const { url: home } = yield* site({ gatehouse: url })
      const page = yield* browserPage
      const ask = async (question: string) => {
        await page.getByLabel("Question").fill(question)
        await page.getByRole("button", { name: "Ask" }).click()
      }
      model.behave({ stall: "The first token. And" })
      yield* Effect.promise(async () => {
        await page.goto(home)
        expect(await page.locator(".samples button").count()).toBe(3)
        await ask("hello")
        await page.getByText("The first token").waitFor()
        await page.getByRole("status").getByText("Writing…").waitFor()
        // The question stays in place, however long the answer is.
        const form = (await page.locator("form").boundingBox())!
        expect(form.y + form.height).toBeLessThanOrEqual(page.viewportSize()!.height)
        await page.getByRole("button", { name: "Stop" }).click()
        await page.getByRole("button", { name: "Ask" }).waitFor()
      })
      // The reader's stop reached the model.
      yield* model.allClosed
      model.behave({ say: ["In", " full."] })
      yield* Effect.promise(async () => {
        await ask("again")
        await page.getByText("In full.").waitFor()
      })
      model.behave({ status: 500 }, { status: 500 }, { breakAfter: "x" })
      yield* Effect.promise(async () => {
        await ask("and now?")
        const alert = page.getByRole("alert")
        await alert.waitFor()
        expect(await alert.textContent()).toBe("The language model failed; try again.")
      })
    }).pipe(Effect.provide(TestServer.layer({ AI_BASE_URL: model.url, AI_MODEL: "some-model" })))
  })
})
