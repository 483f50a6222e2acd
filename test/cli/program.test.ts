import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { request } from "node:http"
import { gatehouse } from "#src/cli/gatehouse.ts"
import { main, run, runCli } from "../support/cli.ts"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { encryptionKey } from "../support/server.ts"

it.live.each([
  { args: ["--version"], code: 0, out: "gatehouse v0.0.0\n", err: "" },
  { args: ["--help"], code: 0, out: "USAGE", err: "" },
  { args: [], code: 2, out: "", err: "SUBCOMMANDS" },
  { args: ["projects", "list", "--bogus"], code: 2, out: "", err: "--bogus" },
  {
    args: ["webhooks", "creat"],
    code: 2,
    out: "",
    err: `gatehouse: Unknown subcommand "creat" for "gatehouse webhooks" (did you mean create?); see gatehouse webhooks --help\n`,
  },
  {
    args: ["migrate"],
    env: { DATABASE_URL: "x" },
    code: 1,
    out: "",
    err: "gatehouse: DATABASE_URL must be a PostgreSQL URL",
  },
  // Seen failing: it connected, sent rows, and ended with the stack of a RangeError.
  { args: ["outbox", "run", "--metrics-port", "70000"], code: 2, out: "", err: "Expected a port from 0" },
  { args: ["register"], code: 0, out: "", err: "This is not a CI run: there is nothing to register.\n" },
])("gatehouse $args ends with $code", function* ({ args, code, env, err, out }) {
  const ended = yield* runCli(args, env === undefined ? {} : { env })
  expect(ended.code, ended.err).toBe(code)
  if (out === "") expect(ended.out).toBe("")
  else expect(ended.out).toContain(out)
  if (err === "") expect(ended.err).toBe("")
  else expect(ended.err).toContain(err)
})

// Seen failing: every command loaded a driver of PostgreSQL, an HTTP client and the words of twelve languages.
it.live("a command loads only what commands need", function* () {
  const printing = `import { registerHooks } from "node:module"
      registerHooks({ load: (url, context, next) => (process.stderr.write(url + "\\n"), next(url, context)) })`
  const loading = `data:text/javascript,${encodeURIComponent(printing)}`
  const { err } = yield* run(process.execPath, ["--import", loading, main, "--version"])
  const packages = new Set(Array.from(err.matchAll(/node_modules\/((?:@[^/]+\/)?[^/]+)/g), ([, name]) => name!))
  const ofService = [
    "@effect/sql-pg",
    "@electric-sql/pglite",
    "@orama/stemmers",
    "@orama/stopwords",
    "ai",
    "minisearch",
    "undici",
  ]
  expect([...packages]).toContain("effect")
  expect(ofService.filter((name) => packages.has(name))).toEqual([])
})

// Seen failing: it was 0 for each, so that a script removed the old ENCRYPTION_KEY after a `reencrypt` that was cut
// off.
it.live.each([
  { args: ["secrets", "reencrypt"], code: 130 },
  { args: ["migrate"], code: 130 },
  { args: ["audit", "export", "--org", "o"], code: 130 },
  { args: ["api", "GET", "/api/v0/orgs"], code: 130 },
  { args: ["webhooks", "test", "e"], code: 130 },
  { args: ["listen", "--port", "0"], code: 0 },
])("gatehouse $args ends with $code when a signal stops it", function* ({ args, code }) {
  const silent = yield* makeReceiver({ mute: true })
  const env = {
    PATH: process.env["PATH"],
    GATEHOUSE_URL: silent.url,
    GATEHOUSE_TOKEN: "svc_x",
    DATABASE_URL: `postgres://u:p@127.0.0.1:${silent.port}/d`,
    ENCRYPTION_KEY: encryptionKey,
  }
  const child = spawn(process.execPath, [main, ...args], { env })
  const receives = Effect.promise(() => once(child.stderr, "data"))
  const ended = once(child, "exit")
  yield* args[0] === "listen" ? receives : silent.accepted(1)
  child.kill("SIGTERM")
  expect((yield* Effect.promise(() => ended))[0]).toBe(code)
})

// Seen failing: the exit code was 0, and an export on a full disk looked complete.
it.live("a command whose output cannot be written fails; a reader that has left is no failure", function* () {
  const to = (target: string) => run("/bin/sh", ["-c", `"$0" "$1" --version ${target}`, process.execPath, main])
  expect(yield* to("> /dev/full")).toEqual({
    out: "",
    err: "gatehouse: Standard output cannot be written (ENOSPC). Free space there, and run the command again\n",
    code: 1,
  })
  expect(yield* to("| true")).toEqual({ out: "", err: "", code: 0 })
})

/** Runs a command whose reader has what it wants after one line. `onUrl` gets the address that it prints. */
const readOnce = (args: ReadonlyArray<string>, env: NodeJS.ProcessEnv, onUrl: (url: string) => void = () => {}) =>
  Effect.promise(async () => {
    const child = spawn("/bin/sh", ["-c", '"$0" "$@" | head -1', process.execPath, main, ...args], { env })
    child.stderr.on("data", (text: Buffer) => onUrl(/http:\S+/.exec(text.toString())?.[0] ?? ""))
    await once(child, "exit")
  })

// Seen failing: it read every page of the list.
it.live("a list ends when its reader has left", function* () {
  const service = yield* makeReceiver()
  const page = {
    status: 200,
    headers: { "content-type": "application/json" },
    body: '{"jobs":[],"next_cursor":"01KAHBMKZ3D2X7S5QN8W4V6R9T"}',
  }
  const pages = 300
  service.behave(() => (service.received.length < pages ? page : { status: 500, body: "" }))
  const env = { PATH: process.env["PATH"], GATEHOUSE_URL: service.url, GATEHOUSE_TOKEN: "svc_x" }
  yield* readOnce(["jobs", "list", "--all", "--json"], env)
  expect(service.received.length).toBeLessThan(pages)
})

// Seen failing: it received without end.
it.live("listen ends when its reader has left", function* () {
  /** Sends one webhook after the other, until nobody receives them. */
  const send = (url: string) => {
    const sent = request(url, { method: "POST" }, (response) => response.resume().once("end", () => send(url)))
    sent.on("error", () => {}).end("{}")
  }
  yield* readOnce(["listen", "--port", "0"], { PATH: process.env["PATH"] }, (url) => {
    if (url.startsWith("http://127.0.0.1")) send(url)
  })
})

it.live("migrate updates a database, and a second run changes nothing", function* () {
  const env = { DATABASE_URL: yield* freshPostgres("empty"), ENCRYPTION_KEY: encryptionKey }
  const first = yield* runCli(["migrate"], { env })
  expect(first).toMatchObject({
    out: expect.stringMatching(/^The database is at migration \d+, the newest\.\n$/),
    code: 0,
  })
  expect(first.err).toContain("Migration 1 applied: schema")
  const again = yield* runCli(["migrate", "--json"], { env })
  expect(again).toEqual({ out: expect.stringMatching(/^\{"migration":\d+\}\n$/), err: "", code: 0 })
})

const shells = [
  { shell: "bash", check: ["-n"] },
  { shell: "zsh", check: ["-n"] },
  { shell: "fish", check: ["--no-execute"] },
] as const

it.live.each(shells)(
  "completions for $shell name every command and are valid in its language",
  function* ({ check, shell }) {
    const { code, out } = yield* runCli(["--completions", shell])
    expect(code).toBe(0)
    for (const word of ["serve", "doctor", "validate", "deliveries", "gatehouse", "json"]) {
      expect(out).toContain(word)
    }
    // Skips the check if the shell is not installed.
    const checked = spawnSync(shell, check, { input: out })
    if (checked.error === undefined) expect(checked.status, checked.stderr.toString()).toBe(0)
  },
)

it("docs/cli.md has every command", () => {
  const page = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8")
  const rows = page.split("\n").filter((line) => line.startsWith("| `"))
  for (const { name, subcommands } of gatehouse.subcommands.flatMap(({ commands }) => commands)) {
    const row = rows.find((line) => line.startsWith(`| \`${name}`))
    expect(row, name).toBeDefined()
    for (const inner of subcommands.flatMap(({ commands }) => commands))
      expect(row).toMatch(new RegExp(`\\b${inner.name}\\b`))
  }
})
