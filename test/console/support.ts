import { Effect, Layer } from "effect"
import type { Page } from "playwright-core"
import { describe, expect, inject } from "vitest"
import { ConsoleFolder } from "#src/http/server/console.ts"
import { Browser, hasBrowser } from "../support/browser.ts"
import { layer, type TestsWith } from "../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer, type Environment } from "../support/server.ts"

export { expectAccessible, expectFits, painted, typeInto } from "./checks.ts"
export { hasBrowser }

const consoleFolder = Layer.effect(
  ConsoleFolder,
  Effect.sync(() => inject("consoleFolder")),
)
const withBrowser = <E, R>(server: Layer.Layer<TestServer, E, R>) =>
  Layer.merge(Layer.provide(server, consoleFolder), Browser.layer)

/** A service with the built console in guarded mode, and a browser; receivers of webhooks may be on this machine. */
export const consoleWith = <R>(
  environment: Effect.Effect<Environment, never, R>,
  database: "embedded" | "postgres",
) => {
  const all = Effect.map(environment, (more) => ({ ...guarded, ALLOW_PRIVATE_NETWORKS: "true", ...more }))
  return withBrowser(
    TestServer.layer(
      Effect.flatMap(all, (all) =>
        database === "embedded" ? Effect.succeed({ ...all, ...embedded }) : onPostgres(all),
      ),
    ),
  )
}

/** The same in open mode, where nobody has to sign in. */
export const openConsole = withBrowser(TestServer.layer({}))

/** The same over each database: each story runs on both. */
export const consoles = {
  "the embedded database": consoleWith(Effect.succeed({}), "embedded"),
  PostgreSQL: consoleWith(Effect.succeed({}), "postgres"),
}

/** Tests with a console; skipped where there is no browser. */
export const withConsole = <R, E>(name: string, console: Layer.Layer<R, E>, tests: (it: TestsWith<R>) => void) =>
  describe.skipIf(!hasBrowser)("in a browser", () => {
    layer(console, { excludeTestServices: true })(name, tests)
  })

/** The same over each of several consoles. The tests also get the name of its database. */
export const withConsoles = <R, E, Database extends string>(
  name: string,
  consoles: Readonly<Record<Database, Layer.Layer<R, E>>>,
  tests: (it: TestsWith<R>, database: Database) => void,
) => {
  for (const [database, console] of Object.entries<Layer.Layer<R, E>>(consoles)) {
    withConsole(`${name}, over ${database}`, console, (it) => tests(it, database as Database))
  }
}

/** What the browser says of an answer that is not 2xx; pages show those themselves. */
export const isAnswer = (text: string) => text.startsWith("Failed to load resource: the server responded")

/**
 * A tab at the service, signed out. When its scope closes, it must have had no fault: no exception, nothing refused by
 * the content security policy, no missing file, no request to another server.
 */
export const openTab = Effect.gen(function* () {
  const { url } = yield* TestServer
  const browser = yield* Browser
  const faults: Array<string> = []
  const page = yield* Effect.acquireRelease(browser.open, () =>
    Effect.sync(() => expect(faults, "faults of the page").toEqual([])),
  )
  page.on("pageerror", (error) => void faults.push(error.message))
  page.on(
    "console",
    (message) => void (message.type() === "error" && !isAnswer(message.text()) && faults.push(message.text())),
  )
  page.on("request", (request) => void (request.url().startsWith(url) || faults.push(`asked ${request.url()}`)))
  page.on("response", (answer) => {
    if (answer.status() >= 400 && answer.url().includes("/console")) faults.push(`${answer.status()} ${answer.url()}`)
  })
  return { page, at: (path: string) => `${url}/console${path}` }
})

const navigation = (page: Page) => page.getByRole("navigation", { name: "Pages" }).waitFor({ state: "attached" })

/** Signs in at a page, as a person does; it is the page that opens then. */
export const signIn = async (page: Page, address: string, credential = adminToken) => {
  await page.goto(address)
  await page.getByLabel("The administrator's token, or an API key").fill(credential)
  await page.getByRole("button", { name: "Sign in" }).click()
  await navigation(page)
}

/** A tab with a session of a credential, at the page of a path below /console. */
export const signedInTab = Effect.fnUntraced(function* (path: string, credential = adminToken) {
  const { url } = yield* TestServer
  const tab = yield* openTab
  yield* Effect.promise(async () => {
    const headers = { authorization: `Bearer ${credential}` }
    const signedIn = await tab.page.context().request.post(`${url}/api/v0/sessions`, { headers })
    expect(signedIn.status(), await signedIn.text()).toBe(200)
    await tab.page.goto(tab.at(path))
    await navigation(tab.page)
  })
  return tab
})

/** Runs the steps of a story in a tab with a session. */
export const inTab = Effect.fnUntraced(function* (
  path: string,
  story: (page: Page, at: (path: string) => string) => Promise<unknown>,
  credential = adminToken,
) {
  const { at, page } = yield* signedInTab(path, credential)
  yield* Effect.promise(() => story(page, at))
}, Effect.scoped)
