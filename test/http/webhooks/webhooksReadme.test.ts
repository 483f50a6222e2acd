import { expect } from "@effect/vitest"
import { Effect, Queue } from "effect"
import { spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { welcomeText } from "#src/boot/app.ts"
import { it, layer } from "../../support/it.ts"
import { closedPort } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"

const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8")

/** The blocks of a language in a section of a page, unchanged. */
const blocksOf = (page: string, title: string, language = "sh") => {
  const section = read(page).split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? ""
  return [...section.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map(([, block]) => block!)
}

/** Runs a program to its end; returns its output. */
const run = (args: ReadonlyArray<string>, environment: Readonly<Record<string, string>>) =>
  Effect.callback<string>((resume) => {
    const child = spawn("bash", ["--norc", "-O", "expand_aliases", "-euo", "pipefail", "-c", ...args], {
      env: { PATH: process.env["PATH"], HOME: tmpdir(), ...environment },
    })
    let output = ""
    child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.on("error", (error) => resume(Effect.die(error)))
    child.on("close", () => resume(Effect.succeed(output)))
  })

/** An empty folder in which the package of gateways can be imported. */
const gatewayFolder = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = mkdtempSync(join(tmpdir(), "gatehouse-gateway-"))
    const at = join(folder, "node_modules/gatehouse-gateway")
    mkdirSync(at, { recursive: true })
    writeFileSync(join(at, "package.json"), '{"type":"module","exports":"./index.js"}')
    const source = read("packages/gateway/src/index.ts")
    writeFileSync(join(at, "index.js"), stripTypeScriptTypes(source))
    return folder
  }),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

/** The receiver of the README on a free port; returns an effect that takes the next line of its output. */
const receiver = Effect.fnUntraced(function* (port: number) {
  const lines = yield* Queue.unbounded<string>()
  const env = { PATH: process.env["PATH"], GATEHOUSE_WEBHOOK_SECRET: secret }
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, ["src/cli/main.ts", "listen", "--port", String(port)], { env })
      for (const stream of [child.stdout, child.stderr]) {
        stream.on("data", (chunk: Buffer) =>
          chunk
            .toString()
            .trim()
            .split("\n")
            .forEach((line) => Queue.offerUnsafe(lines, line)),
        )
      }
      return child
    }),
    (child) => Effect.sync(() => void child.kill()),
  )
  return Queue.take(lines)
})

/** Every block of a page for a shell, unchanged. */
const allBlocksOf = (page: string) =>
  [...read(page).matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) => block!).join("")

it("the README shows the lines that a first start prints", () => {
  const settings = { adminTokens: undefined, databaseUrl: undefined, dataDir: "./data" }
  const [shown] = blocksOf("README.md", "Start Gatehouse", "text")
  expect(welcomeText("http://127.0.0.1:3000", settings)).toContain(shown!.trimEnd())
})

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("the README", (it) => {
  it.effect("its commands lead from nothing to a verified delivery at the receiver of the command line", function* () {
    const { url } = yield* TestServer
    const [port, gatewayPort] = [yield* closedPort, yield* closedPort]
    const [listen, publish] = blocksOf("README.md", "Receive a webhook")
    const alias = "alias gatehouse='npm run -s gatehouse --'\n"
    expect(listen).toBe(`${alias}GATEHOUSE_WEBHOOK_SECRET=${secret} gatehouse listen\n`)
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> }
    expect(scripts["gatehouse"]).toBe("node src/cli/main.ts")
    const line = yield* receiver(port)
    expect(yield* line).toBe(`receiving at http://127.0.0.1:${port}`)

    const here = (text: string) =>
      text
        .replaceAll("http://127.0.0.1:3000", url)
        .replaceAll("http://127.0.0.1:4000", `http://127.0.0.1:${port}`)
        .replaceAll("8080", String(gatewayPort))
    // Pasted unchanged into one shell.
    const [validate] = blocksOf("README.md", "Validate an API key")
    const script = `${here(`${publish!}\n${validate!}`)}\necho "KEY=$GATEHOUSE_TOKEN"`
    const output = yield* run([script], { GATEHOUSE_URL: url })
    const [answer] = output.split("\n").flatMap((text) => (/^\{.*\}$/.test(text) ? [JSON.parse(text) as object] : []))
    const [shown] = blocksOf("README.md", "Validate an API key", "json")
    expect(Object.keys(answer ?? {}), output).toEqual(Object.keys(JSON.parse(shown!) as object))
    expect(yield* line).toMatch(
      /^verified [0-9A-Z]{26}: \{"event":"invoice.paid".*"data":\{"invoice":"in_42","amount":1200\}/,
    )

    // The gateway runs in a folder of its own, with the current package.
    const [gateway, ask] = blocksOf("docs/packages.md", "Try a gateway")
    const folder = yield* gatewayFolder
    const [, program] = /<<'END'\n(.*)^END$/ms.exec(gateway!)!
    writeFileSync(join(folder, "gateway.mjs"), here(program!))
    yield* Effect.acquireRelease(
      Effect.sync(() => spawn(process.execPath, ["gateway.mjs"], { cwd: folder, stdio: "inherit" })),
      (child) => Effect.sync(() => void child.kill()),
    )
    const [, key] = /^KEY=(.*)$/m.exec(output)!
    const asked = run([here(ask!)], { GATEHOUSE_TOKEN: key! })
    const { projectId } = answer as { readonly projectId: string }
    yield* until("the gateway's answer", asked, (text) => text === `Hello, ${projectId}\n`)
    expect(yield* run([here(ask!)], { GATEHOUSE_TOKEN: "wrong" })).toContain('"code":"unauthorized"')
  })

  it.effect(
    "the tutorial's commands continue from there: a job's webhook, a schedule, a limited key, a linked project",
    function* () {
      const { url } = yield* TestServer
      const port = yield* closedPort
      const line = yield* receiver(port)
      yield* line
      const [, publish] = blocksOf("README.md", "Receive a webhook")
      const script = `${publish!.replaceAll("http://127.0.0.1:4000", `http://127.0.0.1:${port}`)}\n${allBlocksOf("docs/tutorial.md")}`
      const output = yield* run([script], { GATEHOUSE_URL: url })
      expect(yield* line, output).toContain('"event":"invoice.paid"')
      expect(yield* line, output).toMatch(/^verified [0-9A-Z]{26}: .*"job.completed".*"rows":3/)
      expect(output).toMatch(/^state +completed$/m)
      expect(output.match(/rate limit/gi), output).toHaveLength(1)
      expect(output).toMatch(/octo-org/)
    },
  )
})
