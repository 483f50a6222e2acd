import { Effect } from "effect"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { chromium } from "playwright-core"

const executablePath = process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium"

/** Whether there is a browser to drive; CHROMIUM_PATH names another than the system's. */
export const hasBrowser = existsSync(executablePath)
if (!hasBrowser) process.stdout.write(`browser tests are skipped: ${executablePath} is not there (CHROMIUM_PATH)\n`)

/** A tab of a headless Chromium with a profile of its own, which ends with the scope. */
export const browserPage = Effect.acquireRelease(
  Effect.promise(async () => {
    const profile = mkdtempSync(join(tmpdir(), "gatehouse-browser-"))
    const context = await chromium.launchPersistentContext(profile, {
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
    })
    const page = context.pages()[0] ?? (await context.newPage())
    return { page, context, profile }
  }),
  ({ context, profile }) =>
    Effect.promise(async () => {
      await context.close()
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
    }),
).pipe(Effect.map(({ page }) => page))
