import { Context, Effect, Layer, type Scope } from "effect"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type BrowserContext, chromium, type Page } from "playwright-core"
import { slowness } from "./slowness.ts"

const executablePath = process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium"

/** Whether a browser is installed; CHROMIUM_PATH names another one. */
export const hasBrowser = existsSync(executablePath)
if (!hasBrowser) process.stdout.write(`browser tests are skipped: ${executablePath} is not there (CHROMIUM_PATH)\n`)

const options = {
  executablePath,
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
}

/** A tab that waits as long as other waits of the tests. */
const newPage = async (context: BrowserContext) => {
  context.setDefaultTimeout(60_000 * slowness)
  return context.pages()[0] ?? (await context.newPage())
}

/** Closes tabs. A request that a test passes on, and that is under way, is no error of the test. */
export const closeTabs = async (context: BrowserContext) => {
  await Promise.all(context.pages().map((page) => page.unrouteAll({ behavior: "ignoreErrors" })))
  await context.close()
}

/** A tab of a headless Chromium with its own profile, until the scope closes. */
export const browserPage = Effect.acquireRelease(
  Effect.promise(async () => {
    const profile = mkdtempSync(join(tmpdir(), "gatehouse-browser-"))
    const context = await chromium.launchPersistentContext(profile, options)
    return { page: await newPage(context), context, profile }
  }),
  ({ context, profile }) =>
    Effect.promise(async () => {
      await closeTabs(context)
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
    }),
).pipe(Effect.map(({ page }) => page))

/** The zone of the readers: five and a half hours before UTC. */
const timezoneId = "Asia/Kolkata"

/** A browser for several tests. */
export class Browser extends Context.Service<
  Browser,
  {
    /** A tab with cookies of its own, which ends with the scope. */
    readonly open: Effect.Effect<Page, never, Scope.Scope>
  }
>()("test/Browser") {
  static readonly layer = Layer.effect(
    Browser,
    Effect.gen(function* () {
      const browser = yield* Effect.acquireRelease(
        Effect.promise(() => chromium.launch(options)),
        (browser) => Effect.promise(() => browser.close()),
      )
      const context = Effect.acquireRelease(
        Effect.promise(() => browser.newContext({ permissions: ["clipboard-read", "clipboard-write"], timezoneId })),
        (context) => Effect.promise(() => closeTabs(context)),
      )
      return Browser.of({ open: Effect.flatMap(context, (context) => Effect.promise(() => newPage(context))) })
    }),
  )
}
