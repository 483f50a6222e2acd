import { assert } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { existsSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import type { CDPSession, Page } from "playwright-core"
import { freshPostgres } from "../support/databases.ts"
import { browserPage, hasBrowser } from "../support/browser.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { makeTenant, makeVerifier, onPostgres } from "./support.ts"

/**
 * Promise (Console): A list of 10,000 deliveries that stays open at 100 deliveries a second asks at most twice a
 * second, and its memory is flat.
 */

/** How long the page stays open. Without it, the test is skipped: it needs a built console and a quiet machine. */
const minutes = Number(process.env.CONSOLE_MINUTES ?? 0)
const isBuilt = existsSync(new URL("../../dist/console/index.html", import.meta.url))

const wantedRows = 10_000
const perSecond = 100
const mebibyte = 1024 * 1024

/** The bytes that the scripts of the page hold, after a collection. */
const heapOf = async (session: CDPSession) => {
  await session.send("HeapProfiler.collectGarbage")
  const { metrics } = await session.send("Performance.getMetrics")
  return metrics.find(({ name }) => name === "JSHeapUsedSize")!.value / mebibyte
}

/** Counts the requests of the page that no click has asked for. */
const liveRequests = (page: Page) => {
  let count = 0
  page.on("request", (request) => {
    const isData = /\/(api|v1)\//.test(request.url()) && !request.url().includes("/live")
    if (isData && !(request.postData() ?? "").includes('"cursor"')) count++
  })
  return () => count
}

const rowCount = `Number(document.querySelector("table[aria-rowcount]")?.getAttribute("aria-rowcount") ?? 0) - 1`

/** Presses "Show more" until so many rows are loaded; returns how long that took. */
const loadRows = `new Promise((resolve) => {
  const since = performance.now()
  const step = () => {
    if (${rowCount} >= ${wantedRows}) return resolve(performance.now() - since)
    const more = document.querySelector(".table-foot button")
    if (more !== null && !more.disabled) more.click()
    setTimeout(step, 5)
  }
  step()
})`

/** How long the frame of the console takes to be painted at 50 kB a second, while no operation has answered. */
const firstPaint = async (page: Page, url: string) => {
  const session = await page.context().newCDPSession(page)
  await session.send("Network.enable")
  await session.send("Network.emulateNetworkConditions", {
    offline: false,
    latency: 0,
    downloadThroughput: 50_000,
    uploadThroughput: 50_000,
  })
  await page.route("**/api/**", () => undefined)
  await page.goto(url, { waitUntil: "commit" })
  const painted = () => page.evaluate("performance.getEntriesByName('first-paint')[0]?.startTime ?? 0")
  while ((await painted()) === 0) await sleep(50)
  const paint = Number(await painted())
  assert.isTrue(await page.evaluate("document.querySelector('.layout > .sidebar').getBoundingClientRect().width > 0"))
  return paint
}

it.live.skipIf(minutes === 0 || !isBuilt || !hasBrowser)(
  `the console under ${perSecond} deliveries a second for ${minutes} minutes: ${wantedRows} rows, few requests, a flat heap`,
  function* () {
    const service = yield* startService(onPostgres(yield* freshPostgres()).environment)
    const verifier = yield* makeVerifier()
    const tenant = yield* makeTenant(() => service)
    yield* tenant.endpoint(`${verifier.url}/a`)
    const publish = service.send("POST", "/v1/events/publish-batch", {
      json: { events: Array.from({ length: perSecond }, (_, data) => ({ type: "invoice.paid", data })) },
      headers: { "x-api-key": tenant.key },
    })
    for (let n = 0; n < wantedRows + 500; n += perSecond) {
      yield* publish
      yield* verifier.arrived(n + perSecond)
    }
    const slow = yield* browserPage
    yield* service.send("GET", "/console")
    const paint = yield* Effect.promise(() => firstPaint(slow, `${service.url}/console`))
    yield* Effect.promise(() => slow.close())
    yield* Effect.forkScoped(Effect.repeat(publish, Schedule.fixed("1 second")))
    const page = yield* browserPage
    const session = yield* Effect.promise(() => page.context().newCDPSession(page))
    const requests = liveRequests(page)
    const loaded = yield* Effect.promise(async () => {
      await session.send("Performance.enable")
      await page.goto(`${service.url}/console/orgs/${tenant.orgId}/deliveries`)
      await page.locator("tbody a.main").nth(99).waitFor()
      await page.locator(".sidebar-foot .badge:visible", { hasText: "Live" }).waitFor()
      const before = requests()
      const took = Number(await page.evaluate(loadRows))
      return { took, perSecond: (requests() - before) / (took / 1_000), heap: await heapOf(session) }
    })
    const say = (text: string) => process.stdout.write(`${text}\n`)
    say(`the frame at 50 kB a second: painted after ${Math.round(paint)} ms`)
    say(
      `${wantedRows} rows: ${(loaded.took / 1_000).toFixed(1)} s, ${loaded.perSecond.toFixed(1)} requests a second beside them, heap ${loaded.heap.toFixed(0)} MiB`,
    )
    const shown = yield* Effect.promise(async () => {
      await page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
      await sleep(1_000)
      return Number(await page.evaluate("document.querySelectorAll('tbody a.main').length"))
    })
    const heaps: Array<number> = []
    const [since, from, arrived] = [performance.now(), requests(), verifier.receipts.length]
    for (let minute = 0; minute < minutes; minute++) {
      yield* Effect.promise(async () => {
        await sleep(60_000)
        heaps.push(await heapOf(session))
      })
      say(`minute ${minute + 1}: heap ${heaps.at(-1)!.toFixed(1)} MiB`)
    }
    const seconds = (performance.now() - since) / 1_000
    const asked = (requests() - from) / seconds
    const rate = (verifier.receipts.length - arrived) / seconds
    say(
      `${minutes} minutes at ${rate.toFixed(0)} deliveries a second: ${asked.toFixed(2)} requests a second, ${shown} rows in the page`,
    )
    assert.isBelow(paint, 1_500)
    assert.isBelow(loaded.took, 10_000)
    assert.isAtMost(loaded.perSecond, 2.5)
    assert.isAtMost(asked, 2)
    assert.isBelow(shown, 400)
    assert.isBelow(Math.max(...heaps), 100)
    // Grows by no more than the noise of a collection: the last third beside the first.
    const third = Math.max(1, Math.floor(heaps.length / 3))
    const mean = (of: ReadonlyArray<number>) => of.reduce((sum, one) => sum + one, 0) / of.length
    assert.isBelow(mean(heaps.slice(-third)), mean(heaps.slice(0, third)) * 1.1)
  },
  minutes * 60_000 + 300_000,
)
