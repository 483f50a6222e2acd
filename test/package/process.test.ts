import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { main, spawnCli } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { until } from "../support/wait.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))
const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string
}

it.live.each([
  { args: ["--version"], code: 0, out: `gatehouse v${version}\n`, err: "" },
  {
    args: ["bogus"],
    code: 2,
    out: "",
    err: 'gatehouse: Unknown subcommand "bogus" for "gatehouse"; see gatehouse --help\n',
  },
  {
    args: ["serve"],
    env: { HOST: "0.0.0.0" },
    code: 1,
    out: "",
    err: "gatehouse: HOST is 0.0.0.0, but ADMIN_TOKEN is not set: anyone who reaches the server could manage it. Set ADMIN_TOKEN, or HOST=127.0.0.1\n",
  },
])("gatehouse $args ends with $code and at most one line", ({ args, code, env, err, out }) =>
  Effect.map(spawnCli(args, env === undefined ? {} : { env }), (ended) => expect(ended).toEqual({ code, err, out })),
)

it.live("serve listens, and stops in order on request", () =>
  Effect.promise(async () => {
    const env = { PATH: process.env["PATH"], PORT: "0", DATA_DIR: "memory", LOG_FORMAT: "json" }
    const child = spawn(process.execPath, [main, "serve"], { env })
    try {
      let log = ""
      child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()))
      await new Promise<void>((resolve, reject) => {
        child.stdout.on("data", (chunk: Buffer) => {
          log += chunk.toString()
          if (log.includes("listens on")) resolve()
        })
        child.once("exit", () => reject(new Error(log)))
      })
      child.kill("SIGTERM")
      expect(await once(child, "exit"), log).toEqual([0, null])
    } finally {
      child.kill("SIGKILL")
    }
  }),
)

// Seen failing without `exec` in the script: npm ended its shell, and the service kept running.
it.live("npm start leaves no process when it is stopped", function* () {
  const { HOME, PATH } = process.env
  const env = { HOME, PATH, PORT: "0", DATA_DIR: "memory", LOG_FORMAT: "json" }
  const child = spawn("npm", ["start"], { cwd: repository, env, detached: true })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      // The whole process group, including what npm left.
      try {
        process.kill(-child.pid!, "SIGKILL")
      } catch {}
    }),
  )
  const url = yield* Effect.promise(
    () =>
      new Promise<string>((resolve, reject) => {
        let log = ""
        const read = (chunk: Buffer) => {
          log += chunk.toString()
          const [, found] = /listens on (http:\/\/127\.0\.0\.1:\d+)/.exec(log) ?? []
          if (found !== undefined) resolve(found)
        }
        child.stdout.on("data", read)
        child.stderr.on("data", read)
        child.once("exit", () => reject(new Error(log)))
      }),
  )
  child.kill("SIGTERM")
  yield* Effect.promise(() => once(child, "exit"))
  const answers = Effect.promise(() => globalThis.fetch(`${url}/healthz`).then(Boolean, () => false))
  yield* until("the service to stop", answers, (isThere) => !isThere)
})

// Less than ten seconds on an idle machine, mostly the start of the service.
it.live("the demo runs to its end", function* () {
  const { code, err, out } = yield* spawnCli(["demo"])
  expect(code, err).toBe(0)
  const steps = out.split("\n").slice(0, 8)
  expect(steps.map((line) => line.slice(0, 23).trim())).toEqual([
    "1  The service",
    "2  A project",
    "3  An API key",
    "4  Validated",
    "5  A CI run registers",
    "6  A webhook endpoint",
    "7  A job, finished",
    "8  Delivered, verified",
  ])
  expect(out).toMatch(/8 {2}Delivered, verified\s+job.completed of \w{26}: signature, time and body are correct\n/)
  expect(out).toMatch(/main of octo-org\/docs is the deployment \w{26};/)
  expect(out).toContain("a stand-in for GitHub")
  expect(out + err).not.toMatch(/svc_\w{42}|whsec_/)
})
