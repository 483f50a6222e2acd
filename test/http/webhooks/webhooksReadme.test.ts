/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- it.effect is a test, and expect takes a message */
import { expect, layer } from "@effect/vitest"
import { Effect, Queue } from "effect"
import { spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { closedPort } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"

const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8")

/** The blocks of a language in a section of the README, unchanged. */
const blocksOf = (title: string, language: string) => {
  const section = readme.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? ""
  return [...section.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map(([, block]) => block!)
}
const commandsOf = (title: string) => blocksOf(title, "sh")

/** Runs a program to its end; returns its output. */
const run = (program: string, args: ReadonlyArray<string>) =>
  Effect.callback<string>((resume) => {
    const child = spawn(program, args)
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
    const source = readFileSync(new URL("../../../packages/gateway/src/index.ts", import.meta.url), "utf8")
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

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("the README", (it) => {
  it.effect("its commands lead from nothing to a verified delivery at the receiver of the command line", () =>
    Effect.gen(function* () {
      const { url } = yield* TestServer
      const [port, gatewayPort] = [yield* closedPort, yield* closedPort]
      expect(commandsOf("Receive a webhook")[0]).toBe(
        `GATEHOUSE_WEBHOOK_SECRET=${secret} npm run -s gatehouse -- listen\n`,
      )
      const { scripts } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
        scripts: Record<string, string>
      }
      expect(scripts["gatehouse"]).toBe("node src/cli/main.ts")
      const line = yield* receiver(port)
      expect(yield* line).toBe(`receiving at http://127.0.0.1:${port}`)

      const [validate, gateway, ask] = commandsOf("Validate an API key")
      const here = (text: string) =>
        text
          .replaceAll("http://127.0.0.1:3000", url)
          .replaceAll("http://127.0.0.1:4000", `http://127.0.0.1:${port}`)
          .replaceAll("8080", String(gatewayPort))
      // Pasted unchanged into one shell.
      const pasted = [...commandsOf("Receive a webhook").slice(1), validate!].join("\n")
      const script = `${here(pasted)}\necho "KEY=$KEY"`
      // Through a pipe: here standard error is a socket, which tee cannot open by its name.
      const output = yield* run("bash", ["-c", 'bash -euo pipefail -c "$1" 2>&1 | cat', "bash", script])
      const answers = output.split("\n").flatMap((text) => (/^\{.*\}$/.test(text) ? [JSON.parse(text) as object] : []))
      expect(answers, output).toHaveLength(8)
      for (const answer of answers) expect(answer).not.toHaveProperty("code")
      const said = { success: true, event: "job.completed", delivered: true, status: 204, body: "", error: null }
      expect(answers[3]).toEqual({ ...said, payload: expect.stringContaining('"workflow":"test"') })
      const [shown] = readme.split("\n").filter((text) => text.startsWith('{"success":true,"event"'))
      const withoutIds = (text: string) => text.replace(/("(job_id|nonce)\\":\\")\w+/g, "$1")
      expect(withoutIds(shown!)).toBe(withoutIds(JSON.stringify(answers[3])))
      expect(Object.keys(answers[7]!)).toEqual(
        Object.keys(JSON.parse(blocksOf("Validate an API key", "json")[0]!) as object),
      )

      // The gateway runs in a folder of its own, with the current package.
      const folder = yield* gatewayFolder
      const [, program] = /<<'END'\n(.*)^END$/ms.exec(gateway!)!
      writeFileSync(join(folder, "gateway.mjs"), here(program!))
      yield* Effect.acquireRelease(
        Effect.sync(() => spawn(process.execPath, ["gateway.mjs"], { cwd: folder, stdio: "inherit" })),
        (child) => Effect.sync(() => void child.kill()),
      )
      const [, key] = /^KEY=(.*)$/m.exec(output)!
      const asked = run("bash", ["-c", `KEY=${key}\n${here(ask!)}`])
      const { projectId } = answers[7] as { readonly projectId: string }
      yield* until("the gateway's answer", asked, (text) => text === `Hello, ${projectId}\n`)
      expect(yield* run("bash", ["-c", `KEY=wrong\n${here(ask!)}`])).toContain('"code":"unauthorized"')

      expect(yield* line).toMatch(/^verified [0-9A-Z]{26}: \{"event":"job.completed".*"workflow":"test"/)
      const lines = [yield* line, yield* line].sort((one) => (one.includes('"event":"invoice.paid"') ? -1 : 1))
      expect(lines[0]).toMatch(
        /^verified [0-9A-Z]{26}: \{"event":"invoice.paid".*"data":\{"invoice":"in_42","amount":1200\}/,
      )
      expect(lines[0]).toContain(`"event_id":"${(answers[4] as { readonly event_id: string }).event_id}"`)
      expect(lines[1]).toMatch(/^verified [0-9A-Z]{26}: \{.*"workflow":"nightly-report".*"result":\{"rows":3\}/)
      expect(lines[1]).toContain(`"job_id":"${(answers[5] as { readonly job_id: string }).job_id}"`)
    }),
  )
})
