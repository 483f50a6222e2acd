import { describe, expect } from "@effect/vitest"
import { ConfigProvider, Effect, Result } from "effect"
import * as Yaml from "effect/encoding/Yaml"
import { readFileSync } from "node:fs"
import { parseProviders } from "#src/boot/ciProviders.ts"
import * as Config from "#src/boot/config.ts"
import { signInWith } from "../support/identityProvider.ts"
import { it } from "../support/it.ts"
import { faultOfCall, programs, variables } from "./commands.ts"
import { type Block, blocks, pages, repository, withIds } from "./pages.ts"
import { curlRequest, operationOf } from "./requests.ts"
import { runBlock } from "./shell.ts"

const ofKind = (...languages: ReadonlyArray<string>) => blocks.filter(({ language }) => languages.includes(language))

/** The check of each language's blocks. */
const kinds: Readonly<Record<string, string>> = {
  sh: "below: run by a shell among stand-ins of its programs; examples.test.ts: the requests are sent",
  json: "below: parsed, and held to the schema of the operation that answers it",
  yaml: "below: parsed, its commands run like those of sh",
  text: "below: prose, or a stream whose events are parsed",
  ts: "types.test.ts",
  tsx: "types.test.ts",
  js: "types.test.ts; receiver.test.ts: run",
  sql: "examples.test.ts: executed on PostgreSQL",
  html: "portal.test.ts: the element has its attributes and events",
  http: "test/sdk/webhooksDocs.test.ts: the signatures are verified",
  python: "test/sdk/webhooksDocs.test.ts and test/sdk/workersDocs.test.ts: run",
  go: "test/sdk/webhooksDocs.test.ts: run",
  py: "not checked: two lines of a library that is not installed here (standardwebhooks)",
  golang: "not checked: the same in Go",
  ini: "not checked: two settings of PgBouncer, which no test has",
}

it("every block has a language whose blocks are checked, or a listed reason why not", () => {
  expect(blocks.filter(({ language }) => !(language in kinds))).toEqual([])
  // At most one block of each, so that the reason covers no other block.
  for (const language of ["py", "golang", "ini", "http", "go"]) expect(ofKind(language)).toHaveLength(1)
  expect(ofKind("python").map(({ page }) => page)).toEqual(["docs/webhooks.md", "docs/workers.md", "docs/workers.md"])
})

/** Runs shell commands, and checks the arguments of each call. */
const commandsHold = (text: string, at: string) =>
  Effect.gen(function* () {
    const { calls, errors, status, written } = runBlock(text, programs)
    expect(status, `${at}: ${errors}`).toBe(0)
    expect(calls.length, at).toBeGreaterThan(0)
    for (const call of calls) expect(yield* faultOfCall(call), `${at}: ${call.args.join(" ")}`).toBeUndefined()
    const compose = readFileSync(`${repository}deploy/compose.yaml`, "utf8")
    expect(
      written.filter((name) => !variables.includes(name) && !compose.includes(`\${${name}`)),
      at,
    ).toEqual([])
  })

// Seen failing with a misspelled path, field, flag, script and variable.
describe("shell commands", () => {
  it.live.each(ofKind("sh"))("$at", ({ at, text }) => commandsHold(text, at))
})

interface Step {
  readonly run?: string
  readonly env?: Readonly<Record<string, string>>
}

/** Every step of a workflow, at any depth. */
const stepsOf = (value: unknown): ReadonlyArray<Step> =>
  typeof value !== "object" || value === null
    ? []
    : "run" in value
      ? [value as Step]
      : Object.values(value).flatMap((inner) => stepsOf(inner))

describe("workflows", () => {
  it.live.each(ofKind("yaml"))("$at", function* ({ at, text }) {
    const parsed = Yaml.parse(text)
    expect(parsed, at).toBeTypeOf("object")
    for (const { env = {}, run = "" } of stepsOf(parsed)) {
      yield* commandsHold(run, at)
      expect(Object.keys(env).filter((name) => !variables.includes(name))).toEqual([])
    }
  })
})

/** An answer without its request, and the operation that it belongs to. */
const registered = { starts: '{"ok":true', operation: operationOf("POST", "/api/v0/register-deployment") }
/** A line of the log, which is no answer. test/infrastructure/telemetry/logLines.test.ts checks its fields. */
const logged = '{"timestamp"'

/** The operation that a block answers: usually the last one that was called before it. */
const answered = (block: Block) => {
  if (block.text.startsWith(registered.starts)) return registered.operation
  const before = blocks.slice(0, blocks.indexOf(block)).findLast(({ language }) => language === "sh")!
  const { args } = runBlock(before.text, programs).calls.findLast(({ program }) => program === "curl")!
  const { method, url } = curlRequest(args)
  return operationOf(method, url.pathname)
}

/** Whether a block is a file of CI providers, which the service reads at its start. */
const isProvidersFile = ({ text }: Block) => text.startsWith("[")

/** The configuration of an MCP client. */
const isMcpConfiguration = ({ text }: Block) => text.startsWith('{ "mcpServers"')

/** A value of CONSOLE_OIDC_ROLES. */
const isRoles = ({ page, text }: Block) => page === "docs/sign-in.md" && text.startsWith('{\n  "groups"')

describe("JSON", () => {
  it.effect.each(ofKind("json").filter(isRoles))("$at gives roles to groups", function* ({ text }) {
    const { people } = yield* Config.load.pipe(
      Effect.provide(
        ConfigProvider.layer(
          ConfigProvider.fromEnvRecord(signInWith("https://login.example.com", JSON.parse(text) as object)),
        ),
      ),
    )
    expect(people!.rules.length).toBeGreaterThan(5)
  })

  it.each(ofKind("json").filter(isMcpConfiguration))("$at names an MCP server that there is", ({ text }) => {
    const { mcpServers } = JSON.parse(withIds(text)) as { mcpServers: Record<string, { url: string }> }
    for (const { url } of Object.values(mcpServers))
      expect(operationOf("POST", new URL(url).pathname)?.path).toMatch(/\/docs\/mcp$/)
  })

  it.each(ofKind("json").filter(isProvidersFile))("$at is a file of CI providers", ({ text }) => {
    expect(Result.isSuccess(parseProviders(text, ["https://gatehouse.example.com"]))).toBe(true)
  })

  const [lines, answers] = [true, false].map((is) =>
    ofKind("json").filter(
      (block) =>
        !isRoles(block) &&
        !isProvidersFile(block) &&
        !isMcpConfiguration(block) &&
        block.text.startsWith(logged) === is,
    ),
  ) as [Array<Block>, Array<Block>]

  it.each(answers)("$at is an answer of its operation", (block) => {
    expect(answered(block)!.faultOfResult(JSON.parse(withIds(block.text)))).toBeUndefined()
  })

  it.each(lines)("$at is a line of the log", ({ text }) => {
    expect(Object.keys(JSON.parse(text) as object).slice(0, 3)).toEqual(["timestamp", "level", "message"])
  })
})

/** Pages with blocks of prose. */
const prose = ["docs/concepts.md", "README.md"]

it("no page tells its readers to run npx gatehouse, which is another package", () => {
  expect(pages.filter(({ text }) => /npx (?:-y |--yes )?gatehouse\b/.test(text)).map(({ path }) => path)).toEqual([])
})

it("every block of text is prose, or a stream of events", () => {
  for (const { at, text } of ofKind("text").filter(({ page }) => !prose.includes(page))) {
    const events = text.split("\n").filter((line) => !["", "…", "data: [DONE]"].includes(line))
    for (const event of events) {
      expect(event, at).toMatch(/^data: /)
      expect(JSON.parse(event.slice("data: ".length)), at).toHaveProperty("type")
    }
  }
})
