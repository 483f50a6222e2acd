/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- it.effect is a test, and expect takes a message */
import { expect, layer } from "@effect/vitest"
import { Effect, Queue } from "effect"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { closedPort } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"

const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8")

/** The blocks of a language in a section of the README, each as it stands there. */
const blocksOf = (title: string, language: string) => {
  const section = readme.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? ""
  return [...section.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map(([, block]) => block!)
}
const commandsOf = (title: string) => blocksOf(title, "sh")

/** Runs a program to its end; gives what it printed. */
const run = (program: string, args: ReadonlyArray<string>) =>
  Effect.callback<string>((resume) => {
    const child = spawn(program, args)
    let output = ""
    child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.on("error", (error) => resume(Effect.die(error)))
    child.on("close", () => resume(Effect.succeed(output)))
  })

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

/** The receiver of the README on a port of its own; gives an effect that takes the next line that it prints. */
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
      const port = yield* closedPort
      expect(commandsOf("Receive a webhook")[0]).toBe(
        `GATEHOUSE_WEBHOOK_SECRET=${secret} npm run -s gatehouse -- listen\n`,
      )
      const { scripts } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
        scripts: Record<string, string>
      }
      expect(scripts["gatehouse"]).toBe("node src/cli/main.ts")
      const line = yield* receiver(port)
      expect(yield* line).toBe(`receiving at http://127.0.0.1:${port}`)

      const known: Record<string, string> = {}
      const answers: Array<Record<string, unknown>> = []
      const blocks = [...commandsOf("Create and validate an API key"), ...commandsOf("Receive a webhook").slice(1)]
      // Each command by itself, for the next has the ids of its answer in it; KEY stays set for all.
      const commands = blocks.flatMap((block) => block.split(/\n(?=curl)/))
      for (const command of commands) {
        const filled = command
          .replaceAll("http://127.0.0.1:3000", url)
          .replaceAll("http://127.0.0.1:4000", `http://127.0.0.1:${port}`)
          .replace(/<(\w+)>/g, (_, name: string) => known[name] ?? expect.fail(`Nothing gave ${name}: ${command}`))
          .replaceAll("$KEY", known["key"] ?? "$KEY")
        if (!filled.startsWith("curl")) continue
        const output = yield* run("sh", ["-c", filled])
        expect(output, command).toMatch(/^\{.*\}$/s)
        const answer = JSON.parse(output) as Record<string, string>
        expect(answer["code"], output).toBeUndefined()
        Object.assign(known, answer)
        answers.push(answer)
      }
      expect(answers).toHaveLength(7)
      const printed = blocksOf("Create and validate an API key", "json").map((block) => JSON.parse(block) as object)
      expect(answers.slice(0, 3).map((answer) => Object.keys(answer))).toEqual(printed.map(Object.keys))
      expect(answers[4]).toEqual({ success: true, delivered: true, status: 204, body: "", error: null })
      expect(readme).toContain(JSON.stringify(answers[4]))
      expect(yield* line).toMatch(/^verified [0-9A-Z]{26}: \{"event":"job.completed".*"workflow":"test"/)
      const told = yield* line
      expect(told).toMatch(/^verified [0-9A-Z]{26}: \{.*"workflow":"nightly-report".*"result":\{"rows":3\}/)
      expect(told).toContain(`"job_id":"${known["job_id"]}"`)
    }),
  )
})
