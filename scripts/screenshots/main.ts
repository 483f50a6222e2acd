/* oxlint-disable no-console -- a program for the terminal */
import { ConfigProvider, Context, Effect, Layer, Logger } from "effect"
import { HttpServer } from "effect/http"
import { SqlClient } from "effect/sql"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { chromium } from "playwright-core"
import { app } from "../../src/boot/app.ts"
import * as Config from "../../src/boot/config.ts"
import { makeDemoData } from "./demoData.ts"
import { toPalette } from "./palettePng.ts"

/**
 * `npm run screenshots [-- <folder>] [-- --all]`: pictures of the console's pages from made-up data, into docs/images.
 * Needs a built console and Chromium. `--all` also takes narrow and dark ones, into a folder of your own.
 */
const words = process.argv.slice(2)
const isAll = words.includes("--all")
const target = words.find((word) => !word.startsWith("--")) ?? join(import.meta.dirname, "../../docs/images")

/** The service in this process, with its database in memory, in open mode. Its data is gone at the end. */
const startService = Effect.gen(function* () {
  const variables = { PORT: "0", DATA_DIR: "memory", WEBHOOK_RETRY_DELAYS: "5s,5m,30m" }
  const settings = yield* Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables)))
  const context = yield* Layer.build(Layer.provide(app(settings), Logger.layer([])))
  return {
    url: HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address),
    sql: Context.get(context, SqlClient.SqlClient),
  }
})

type Ids = Effect.Success<ReturnType<typeof makeDemoData>>

/** The pages by the names of their pictures. */
const pagesOf = ({ deliveryId, docsId, endpointId, failingId, goneId, jobId, orgId, scheduleId }: Ids) => {
  const org = `/orgs/${orgId}`
  return {
    overview: "?every=hour",
    orgs: "/orgs",
    org,
    projects: `${org}/projects`,
    docs: `${org}/projects/${docsId}/docs`,
    endpoints: `${org}/endpoints`,
    endpoint: `${org}/endpoints/${endpointId}`,
    failing: `${org}/endpoints/${failingId}`,
    deactivated: `${org}/endpoints/${goneId}`,
    deliveries: `${org}/deliveries`,
    delivery: `${org}/deliveries/${deliveryId}`,
    events: `${org}/events`,
    jobs: `${org}/jobs`,
    job: `${org}/jobs/${jobId}`,
    schedules: `${org}/schedules`,
    schedule: `${org}/schedules/${scheduleId}`,
    chat: `${org}/chat`,
    portal: `${org}/portal`,
  }
}

/** Pages that look like another one; the documentation has no picture of them. */
const undocumented = ["orgs", "projects", "endpoint", "schedules"]

const sizes = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } } as const

const takePictures = (url: string, ids: Ids) =>
  Effect.promise(async () => {
    const executablePath = process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium"
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] })
    try {
      for (const colorScheme of isAll ? (["light", "dark"] as const) : (["light"] as const)) {
        for (const [size, viewport] of Object.entries(isAll ? sizes : { wide: sizes.wide })) {
          const page = await browser.newPage({
            viewport,
            colorScheme,
            reducedMotion: "reduce",
            timezoneId: "Europe/Berlin",
          })
          for (const [name, path] of Object.entries(pagesOf(ids))) {
            if (!isAll && undocumented.includes(name)) continue
            await page.goto(`${url}/console${path}`)
            await page.getByRole("heading", { level: 1 }).waitFor()
            await page.locator("[aria-busy=true], .skeleton").first().waitFor({ state: "detached" })
            await page.waitForTimeout(200)
            const picture = toPalette(await page.screenshot({ fullPage: isAll }))
            const file = isAll ? `${name}-${size}-${colorScheme}.png` : `console-${name}.png`
            writeFileSync(join(target, file), picture)
            console.log(`${file}  ${Math.round(picture.length / 1000)} kB`)
          }
          await page.close()
        }
      }
    } finally {
      await browser.close()
    }
  })

mkdirSync(target, { recursive: true })
await Effect.gen(function* () {
  const { sql, url } = yield* startService
  yield* takePictures(url, yield* makeDemoData(url, sql))
}).pipe(Effect.scoped, Effect.runPromise)
process.exit(0)
