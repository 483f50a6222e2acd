import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { runCli } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { onPostgres, TestServer } from "../support/server.ts"

const numbers =
  '{"id":9007199254740993,"long":123456789.123456789012345,"zero":-0,"tiny":1e-400,"in":[1.0,{"__proto__":1E5}],"rawJSON":1.50}'

const tenant = Effect.gen(function* () {
  const { url } = yield* TestServer
  const env = { GATEHOUSE_URL: url }
  const org = (yield* runCli(["orgs", "create", "Acme"], { env })).out.trim()
  const token = (yield* runCli(["keys", "create", "ci", "--org", org], { env })).out.trim()
  const run = (token: Readonly<Record<string, string>>, args: ReadonlyArray<string>) =>
    Effect.map(runCli(args, { env: { ...env, ...token } }), ({ code, err, out }) => {
      expect(code, `${args.join(" ")}: ${err}`).toBe(0)
      return { out: out.trim(), err }
    })
  return {
    org,
    cli: (...args: ReadonlyArray<string>) => run({ GATEHOUSE_TOKEN: token }, args),
    admin: (...args: ReadonlyArray<string>) => run({}, args),
  }
})

/** A file that is removed with the test. */
const file = (name: string, text: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "numbers-"))),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
    ),
    (folder) => {
      const path = join(folder, name)
      writeFileSync(path, text)
      return path
    },
  )

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("numbers on the command line", (it) => {
  it.effect("a job's input, result and steps are sent and shown as they were given", function* () {
    const { cli } = yield* tenant
    const job = (yield* cli("jobs", "create", "report", "--input", numbers)).out
    expect((yield* cli("jobs", "claim")).out).toContain(numbers)
    yield* cli("jobs", "step", job, "one", "--attempt", "1", "--result", numbers)
    yield* cli("jobs", "finish", job, "--attempt", "1", "--result", "9007199254740993")
    const shown = (yield* cli("jobs", "get", job)).out
    expect(shown).toContain(`input        ${numbers}`)
    expect(shown).toMatch(/^result +9007199254740993$/m)
    expect((yield* cli("jobs", "get", job, "--json")).out).toContain(`"result":${numbers}`)
  })

  it.effect("an event type is pushed, compared and printed with the numbers of its file", function* () {
    const { cli } = yield* tenant
    const type = (id: string) =>
      `{"name":"order.paid","schemas":{"1":{"type":"object","properties":{"id":{"const":${id}}}}},"example":{"id":${id}}}`
    const pushed = (text: string) =>
      Effect.scoped(
        Effect.flatMap(file("one.json", text), (path) =>
          Effect.map(cli("event-types", "push", path), ({ err }) => err),
        ),
      )
    expect(yield* pushed(type("9007199254740993"))).toContain("1 created, 0 changed")
    expect(yield* pushed(type("9007199254740993"))).toContain("0 created, 0 changed")
    expect(yield* pushed(type("9007199254740992"))).toContain("0 created, 1 changed")
    expect(yield* pushed(type("1.0"))).toContain("0 created, 1 changed")
    const printed = (yield* cli("event-types", "get", "order.paid")).out
    expect(printed.match(/1\.0$/gm)).toHaveLength(2)
    expect(yield* pushed(printed)).toContain("0 created, 0 changed")
  })

  it.effect("settings of imported keys, filters and schedules keep their numbers", function* () {
    const { admin, cli, org } = yield* tenant
    const keys = `[{"hash":"${"a".repeat(64)}","algorithm":"sha256","name":"old","metadata":${numbers},"rateLimit":{"limit":6.0,"window":60}}]`
    yield* Effect.scoped(Effect.flatMap(file("keys.json", keys), (path) => admin("keys", "import", path, "--org", org)))
    expect((yield* admin("keys", "list", "--org", org, "--json")).out).toContain(numbers)
    const delays = ["--retry-delays", "[1.0, 6e1]"]
    const created = yield* cli("webhooks", "create", "http://127.0.0.1:9", "--metadata", numbers, ...delays)
    const endpoint = created.out.split("\n")[0]!
    expect((yield* cli("webhooks", "show", endpoint, "--json")).out).toContain(numbers)
    expect((yield* cli("webhooks", "show", endpoint, "--json")).out).toContain('"retry_delays":[1,60]')
    const schedule = (yield* cli("schedules", "create", "report", "0 4 * * *", "--input", numbers)).out
    expect((yield* cli("schedules", "get", schedule, "--json")).out).toContain(numbers)
  })
})
