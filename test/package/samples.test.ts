import { afterAll, beforeAll, expect } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Api } from "#src/http/api/Api.ts"
import { type Document, groupsOf, languages, samplesOf } from "#src/http/server/apiReferencePage.ts"
import { run } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))
const folder = mkdtempSync(join(tmpdir(), "gatehouse-samples-"))
const document = OpenApi.fromApi(Api) as unknown as Document
const entries = groupsOf(document)
  .flatMap((group) => group.entries)
  .filter(({ isWebhook }) => !isWebhook)

/** The sample of every operation in a language. */
const samplesIn = (language: string, baseUrl = "http://127.0.0.1:3000") =>
  entries.map((entry) => ({
    id: entry.operation.operationId,
    text: samplesOf(entry, baseUrl, document.components.schemas).find((one) => one.language === language)!.text,
  }))

const has = (program: string, ...args: ReadonlyArray<string>) => {
  const is = spawnSync(program, args).status === 0
  if (!is) process.stdout.write(`samples are not run: ${program} is not there\n`)
  return is
}
const hasPython = has("python3", "--version")
const hasGo = has("go", "version")

beforeAll(() => {
  const built = spawnSync("npm", ["run", "build", "-w", "gatehouse-client"], { cwd: repository, encoding: "utf8" })
  expect(built.status, built.stdout + built.stderr).toBe(0)
  mkdirSync(join(folder, "node_modules"))
  symlinkSync(join(repository, "packages/client"), join(folder, "node_modules/gatehouse-client"))
  writeFileSync(join(folder, "package.json"), '{"type":"module"}')
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

it("every TypeScript sample compiles with the types of the client", () => {
  for (const { id, text } of samplesIn("typescript")) writeFileSync(join(folder, `${id}.ts`), text)
  const compiler = join(repository, "node_modules/typescript/bin/tsc")
  const options = { noEmit: true, strict: true, target: "es2022", module: "nodenext", types: ["node"] }
  const typeRoots = [join(repository, "node_modules/@types")]
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...options, typeRoots }, include: ["*.ts"] }),
  )
  const { stdout } = spawnSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" })
  expect(stdout).toBe("")
})

it.skipIf(!hasPython)("every Python sample is valid Python", () => {
  const read = "import ast, json, sys; [ast.parse(text) for text in json.load(sys.stdin)]"
  const input = JSON.stringify(samplesIn("python").map(({ text }) => text))
  const { status, stderr } = spawnSync("python3", ["-c", read], { input, encoding: "utf8" })
  expect(status, stderr).toBe(0)
})

it.skipIf(!hasGo)("every Go sample is valid Go, and is formatted", () => {
  for (const { id, text } of samplesIn("go")) {
    const { status, stderr, stdout } = spawnSync("gofmt", [], { input: `${text}\n`, encoding: "utf8" })
    expect([status, stdout], `${id} ${stderr}`).toEqual([0, `${text}\n`])
  }
})

/** How to run a sample. */
const programs: Readonly<Record<string, (text: string) => readonly [string, ReadonlyArray<string>]>> = {
  curl: (text) => ["bash", ["-c", text]],
  typescript: (text) => {
    writeFileSync(join(folder, "run.ts"), text)
    return [process.execPath, ["run.ts"]]
  },
  python: (text) => ["python3", ["-c", text]],
  go: (text) => {
    writeFileSync(join(folder, "run.go"), text)
    return ["go", ["run", "run.go"]]
  },
}
const isThere = (language: string) => (language === "python" ? hasPython : language !== "go" || hasGo)

it.live.each(languages.filter(({ id }) => isThere(id)))("samples in $name run", ({ id: language }) =>
  Effect.gen(function* () {
    const { url } = yield* TestServer
    const { GOCACHE, GOFLAGS, GOPATH, HOME, PATH } = process.env
    const env = { GOCACHE, GOFLAGS, GOPATH, HOME, PATH, GATEHOUSE_TOKEN: adminToken }
    // Go compiles each sample for some seconds, so only these run.
    const ids = ["projects.create", "projects.list", "orgs.create"].slice(0, language === "go" ? 1 : 3)
    for (const id of ids) {
      const { text } = samplesIn(language, url).find((one) => one.id === id)!
      const [program, args] = programs[language]!(text)
      const { code, err, out } = yield* run(program, args, { cwd: folder, env })
      expect(code, `${id} ${err}`).toBe(0)
      expect(out, id).toMatch(/"?(?:projectId|projects|orgId)"?:|'(?:projectId|projects|orgId)':/)
    }
  }).pipe(Effect.provide(TestServer.layer(guarded))),
)
