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
const file = (name: string, text: string | Buffer) =>
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

// Seen failing: the last of two members was sent, and each wrong byte became U+FFFD.
layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("JSON on the command line", (it) => {
  it.effect("a member that is there twice, and bytes that are not UTF-8, are refused as in a request", function* () {
    const { url } = yield* TestServer
    const { org } = yield* tenant
    const refused = Effect.fnUntraced(function* (reason: string, ...args: ReadonlyArray<string>) {
      const { code, err } = yield* runCli([...args, "--org", org], { env: { GATEHOUSE_URL: url } })
      expect([code, err], args.join(" ")).toEqual([2, expect.stringContaining(reason)])
    })
    const twice = '{"a":1,"b":{"a":2,"c":[{"a":3,"\\u0061":4}]}}'
    const once = '{"a":{"a":1},"b":[{"a":1},{"a":2}],"c":"\\"a\\":1,\\"a\\":2"}'
    yield* refused('"a" is there twice', "jobs", "create", "w", "--input", twice)
    yield* refused('"a" is there twice', "events", "publish", "a.b", "--data", twice)
    yield* refused('"a" is there twice', "keys", "create", "k", "--metadata", twice)
    yield* refused('"a" is there twice', "jobs", "create", "w", "--input", `@${yield* file("twice.json", twice)}`)
    const type = '{"name":"a.b","description":"x","description":"y"}'
    yield* refused('"description" is there twice', "event-types", "push", yield* file("type.json", type))
    const keys = `[{"hash":"${"a".repeat(64)}","algorithm":"sha256","name":"x","name":"y"}]`
    yield* refused('"name" is there twice', "keys", "import", yield* file("keys.json", keys))
    const latin1 = yield* file("latin1.json", Buffer.from('"\u00e9"', "latin1"))
    yield* refused("not UTF-8", "jobs", "create", "w", "--input", `@${latin1}`)
    const taken = yield* runCli(["jobs", "create", "w", "--input", once, "--org", org], { env: { GATEHOUSE_URL: url } })
    expect([taken.code, taken.err]).toEqual([0, expect.stringContaining("queued")])
  })
})

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
