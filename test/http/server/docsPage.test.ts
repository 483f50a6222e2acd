/* oxlint-disable vitest/no-standalone-expect -- it.live is a test */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { browserPage, hasBrowser } from "../../support/browser.ts"
import { TestServer } from "../../support/server.ts"

describe.skipIf(!hasBrowser)("/docs in a browser", () => {
  it.live(
    "shows the operations under its own content security policy, from files of this server",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestServer
        const page = yield* browserPage
        yield* Effect.promise(async () => {
          const faults: Array<string> = []
          const asked: Array<string> = []
          page.on("pageerror", (error) => void faults.push(error.message))
          page.on("console", (message) => void (message.type() === "error" && faults.push(message.text())))
          page.on("request", (request) => void asked.push(request.url()))
          await page.goto(`${url}/docs`)
          await page.getByText("Validate an API key").first().waitFor()
          // The samples of one language, selected without a script.
          const visible = (language: string) => page.locator(`.sample.${language}:visible`).count()
          expect([(await visible("curl")) > 10, await visible("go")]).toEqual([true, 0])
          await page.getByLabel("Go", { exact: true }).check()
          expect([await visible("curl"), (await visible("go")) > 10]).toEqual([0, true])
          for (const width of [390, 768, 1200]) {
            await page.setViewportSize({ width, height: 844 })
            expect(await page.evaluate("document.documentElement.scrollWidth"), String(width)).toBe(width)
          }
          // A browser requests /favicon.ico some time after the page, unless the page names an icon.
          expect(await page.locator('head link[rel="icon"]').getAttribute("href")).toMatch(/^data:image\/svg\+xml,/)
          expect(faults).toEqual([])
          expect(asked.filter((one) => !/^(data|blob):/.test(one) && !one.startsWith(url))).toEqual([])
        })
      }).pipe(Effect.scoped, Effect.provide(TestServer.layer({}))),
    60_000,
  )
})
