import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { run } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { TestServer } from "../support/server.ts"
import { makeTenant } from "../http/tenants.ts"
import { env, isMissing, type Language, languages, prepared, svixLibraries } from "./languages.ts"

/** Promise (Moving to Gatehouse) */

/**
 * Promise (Clients in other languages): Clients that `openapi-typescript`, `openapi-python-client`, `oapi-codegen` and
 * `openapi-generator` (Java) generate compile, and read responses, nulls, pages and errors with their types.
 */

const here = fileURLToPath(new URL(".", import.meta.url))
/** A copy of the language's folder with the service's document. */
const folderOf = Effect.fnUntraced(function* ({ name }: Language) {
  const { send } = yield* TestServer
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), `gatehouse-${name}-`))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true })),
  )
  cpSync(join(here, name), folder, { recursive: true })
  symlinkSync(fileURLToPath(new URL("../../tools/node_modules", import.meta.url)), join(folder, "node_modules"))
  writeFileSync(join(folder, "openapi.json"), (yield* send("GET", "/openapi.json")).text)
  return folder
})

/** What every client reads of the service. */
const story = {
  project: ["docs", null],
  validated: ["gateway", ["docs.*"], 1_000_000_000_000, true],
  cleared: [null, true],
  keys: ["backend", "gateway"],
  delivery: ["invoice.paid", "delivered", 1, null, [200], { amount: 42, note: null }],
  job: ["completed", { pages: [1, 2] }, { rows: 3 }, null],
  errors: [
    [404, "not_found"],
    [404, "not_found"],
    [400, "invalid_request"],
    [400, "invalid_request"],
    [401, "unauthorized"],
  ],
}

layer(TestServer.layer(), { excludeTestServices: true })("clients that are generated from the document", (it) => {
  for (const language of languages) {
    it.effect.skipIf(isMissing(`the client in ${language.name}`, join(here, language.name), language.check))(
      `${language.name} compiles and tells the story`,
      function* (context) {
        const { url } = yield* TestServer
        const receiver = yield* makeReceiver()
        const cwd = yield* folderOf(language)
        const options = { cwd, env: { ...env, GATEHOUSE_URL: url, RECEIVER_URL: receiver.url } }
        yield* prepared(context, language.prepare, options)
        const [program, ...args] = language.story
        const told = yield* run(program, args, options)
        expect(told.code, told.out + told.err).toBe(0)
        expect(JSON.parse(told.out)).toEqual(story)
        expect(receiver.received.map(({ headers }) => headers["x-event-type"])).toEqual(["invoice.paid"])
      },
    )
  }

  for (const { library, ...language } of svixLibraries) {
    it.effect.skipIf(isMissing(`svix in ${library}`, join(here, language.name), language.check))(
      `svix in ${library} verifies what a receiver of Svix is sent`,
      function* (context) {
        const receiver = yield* makeReceiver()
        const tenant = yield* makeTenant()
        const made = yield* tenant.call("webhooks/create", {
          url: receiver.url,
          generate_signing_secret: true,
          payload: "data",
          header_names: "svix",
        })
        yield* tenant.call("events/publish", { type: "user_created", data: { text: "ü 😀", at: 1.5 } })
        yield* receiver.arrived(1)
        const options = { cwd: yield* folderOf(language), env }
        yield* prepared(context, language.prepare, options)
        const { body, headers } = receiver.received[0]!
        const [program, ...args] = language.story
        const verify = (text: string) =>
          run(program, args, {
            ...options,
            stdin: JSON.stringify({ secret: made["signing_secret"], headers, body: text }),
          })
        const good = yield* verify(body.toString())
        expect(good.code, good.err).toBe(0)
        expect((yield* verify(`${body.toString()} `)).code).not.toBe(0)
      },
    )
  }
})
