/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, layer } from "@effect/vitest"
import { Effect } from "effect"
import { describe } from "vitest"
import { must } from "../http/operations.ts"
import { makeTenant } from "../http/tenants.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoles, expectAccessible, expectFits, hasBrowser, inTab } from "./support.ts"
import { expectShownAsText, hostile } from "./webhookWorld.ts"

describe.skipIf(!hasBrowser).each(Object.entries(consoles))("the chat playground, over %s", (_, console) => {
  layer(console, { excludeTestServices: true })((it) => {
    it.effect("answers from the given pages, and shows what it quotes and from where", () =>
      Effect.gen(function* () {
        const { orgId } = yield* makeTenant(adminToken)
        const { send } = yield* TestServer
        const post = (path: string, json: object) => must(send, "POST", path, { json, as: adminToken })
        const { projectId } = yield* post("/api/v0/projects", { name: "docs", orgId })
        const { key } = yield* post("/api/v0/keys", { name: "chat", projectId })
        yield* inTab(`/orgs/${orgId}/chat`, async (page) => {
          await page.getByRole("heading", { name: "Ask something that the pages answer" }).waitFor()
          await expectAccessible(page)
          await expectFits(page)
          const ask = page.getByRole("button", { name: "Ask" })
          await page.getByLabel("Question").fill("How long is a delivery retried?")
          expect(await ask.isDisabled()).toBe(true)
          await page.getByLabel("Project key").fill("svc_wrong")
          await ask.click()
          await page.getByRole("alert").waitFor()
          await page.getByLabel("Project key").fill(key!)
          await page.getByLabel("Question").fill("How long is a delivery retried?")
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
          // The key is nowhere but in the memory of this page.
          await page.reload()
          expect(await page.getByLabel("Project key").inputValue()).toBe("")
          expect(await page.evaluate("JSON.stringify([localStorage, sessionStorage])")).not.toContain("svc_")
        })
      }),
    )
  })
})
