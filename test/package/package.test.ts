import { afterAll, beforeAll, expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import {
  chmodSync,
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { freshPostgres } from "../support/databases.ts"
import { run } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { encryptionKey } from "../support/server.ts"
import { slowness } from "../support/slowness.ts"
import { hasTools, toolPath } from "../support/tools.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "gatehouse-package-"))
/** An empty folder with the installed tarball. */
const installed = join(scratch, "installed")
/** The files of the image under /app. */
const image = join(scratch, "image")

const npm = (cwd: string, ...args: ReadonlyArray<string>) => {
  const { status, stderr, stdout } = spawnSync("npm", args, { cwd, encoding: "utf8", env: process.env })
  expect(status, `npm ${args.join(" ")}\n${stdout}\n${stderr}`).toBe(0)
  return stdout
}

beforeAll(() => {
  npm(repository, "pack", "--pack-destination", scratch)
  mkdirSync(installed)
  writeFileSync(join(installed, "package.json"), `{"name":"consumer","private":true,"type":"module"}`)
  const [tarball] = readdirSync(scratch).filter((name) => name.endsWith(".tgz"))
  npm(installed, "install", "--omit=dev", "--prefer-offline", "--no-audit", "--no-fund", join(scratch, tarball!))
}, 300_000 * slowness)

afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const filesOf = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name))

/** Starts the service; returns its address once it listens. Kills it when the scope closes. */
const started = (program: string, args: ReadonlyArray<string>, options: Parameters<typeof spawn>[2]) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] })
      const url = await new Promise<string>((resolve, reject) => {
        let log = ""
        const read = (chunk: Buffer) => {
          log += chunk.toString()
          const [, found] = /listens on (http:\/\/127\.0\.0\.1:\d+|http:\/\/0\.0\.0\.0:\d+)/.exec(log) ?? []
          if (found !== undefined) resolve(found.replace("0.0.0.0", "127.0.0.1"))
        }
        child.stdout!.on("data", read)
        child.stderr!.on("data", read)
        child.once("exit", () => reject(new Error(log)))
      })
      return { child, url }
    }),
    ({ child }) => Effect.sync(() => void child.kill("SIGKILL")),
  )

const command = join(installed, "node_modules/.bin/gatehouse")
const gatehouse = (args: ReadonlyArray<string>, options: Parameters<typeof run>[2] = {}) =>
  run(command, args, { cwd: installed, ...options })

it("is small, and has only the files of the repository that it names", () => {
  const bytes = filesOf(join(installed, "node_modules")).reduce((sum, path) => sum + lstatSync(path).size, 0)
  expect(bytes).toBeLessThan(150_000_000)
  expect(readdirSync(join(installed, "node_modules/gatehouse-server")).sort()).toEqual([
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "bin",
    "deploy",
    "dist",
    "docs",
    "package.json",
  ])
  // "#src/…" is for the tests: it names no file of the package.
  const javascript = filesOf(join(installed, "node_modules/gatehouse-server/dist")).filter((path) =>
    path.endsWith(".js"),
  )
  expect(javascript.filter((path) => /"#src\/|from "[^"]*\.ts"/.test(readFileSync(path, "utf8")))).toEqual([])
})

it.live("its commands work in an empty folder: one serves, and the others call it", function* () {
  const { version } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8")) as { version: string }
  expect(yield* run("npx", ["--no-install", "gatehouse", "--version"], { cwd: installed })).toMatchObject({
    out: `gatehouse v${version}\n`,
    code: 0,
  })
  const env = { PATH: process.env["PATH"], PORT: "0", LOG_FORMAT: "json" }
  const { child, url } = yield* started(command, ["serve"], { cwd: installed, env })
  const project = yield* gatehouse(["projects", "create", "docs"], { env: { GATEHOUSE_URL: url } })
  expect(project, project.err).toMatchObject({ out: expect.stringMatching(/^\w{26}\n$/), code: 0 })
  const key = yield* gatehouse(["keys", "create", "ci", "--project", project.out.trim(), "--url", url])
  const valid = yield* gatehouse(["keys", "validate", "--json"], { env: { GATEHOUSE_URL: url }, stdin: key.out })
  expect(JSON.parse(valid.out)).toMatchObject({ projectId: project.out.trim() })
  child.kill("SIGTERM")
  expect(yield* Effect.promise(() => once(child, "exit"))).toEqual([0, null])
  expect(readdirSync(join(installed, "data")).sort()).toEqual(["encryption.key", "lock", "postgres"])
})

it.live.skipIf(!hasTools)("publint and arethetypeswrong find nothing", function* () {
  const tarball = join(
    scratch,
    readdirSync(scratch).find((name) => name.endsWith(".tgz"))!,
  )
  const linted = yield* run(toolPath("publint"), [tarball, "--strict"])
  expect(linted, linted.out + linted.err).toMatchObject({ code: 0 })
  const typed = yield* run(toolPath("attw"), [tarball, "--profile", "esm-only"])
  expect(typed, typed.out + typed.err).toMatchObject({ code: 0 })
})

const consumer = `
import { Effect } from "effect"
import { FetchHttpClient } from "effect/http"
import { Api } from "gatehouse-server/api"
import * as Gatehouse from "gatehouse-server/client"
import gatehouse from "gatehouse-server/vite"
import { verifyWebhook, type WebhookEvent } from "gatehouse-server/webhooks"

const program = Effect.gen(function* () {
  const client = yield* Gatehouse.make({ baseUrl: "http://127.0.0.1:3000" })
  const { projectId } = yield* client.projects.create({ payload: { name: "docs" } })
  // @ts-expect-error -- there is no such field
  yield* client.projects.create({ payload: { title: "docs" } })
  return projectId satisfies string
})
export const run = (): Promise<string> => Effect.runPromise(Effect.provide(program, FetchHttpClient.layer))
export const verify = async (body: string): Promise<WebhookEvent> => (await verifyWebhook({ headers: {}, body }, "s")).event
const said = [typeof Gatehouse.make, Object.keys(Api.groups).length > 5, gatehouse({ strict: true }).name, typeof verify]
process.stdout.write(said.join(" "))
`

it.live("its entries can be imported, with types", function* () {
  writeFileSync(join(installed, "consumer.ts"), consumer)
  // The types that a consumer has, because Vite is an optional peer.
  mkdirSync(join(installed, "node_modules/@types"), { recursive: true })
  for (const name of ["vite", "@types/node"]) {
    rmSync(join(installed, "node_modules", name), { recursive: true, force: true })
    symlinkSync(realpathSync(join(repository, "node_modules", name)), join(installed, "node_modules", name))
  }
  for (const [module, resolution] of [
    ["nodenext", "nodenext"],
    ["esnext", "bundler"],
  ]) {
    const args = [
      "--noEmit",
      "--strict",
      "--target",
      "es2024",
      "--types",
      "node",
      "--skipLibCheck",
      "--module",
      module!,
      "--moduleResolution",
      resolution!,
      "consumer.ts",
    ]
    const checked = yield* run(process.execPath, [join(repository, "node_modules/typescript/bin/tsc"), ...args], {
      cwd: installed,
    })
    expect(checked, checked.out).toMatchObject({ code: 0 })
  }
  const imported = yield* run(process.execPath, ["consumer.ts"], { cwd: installed })
  expect(imported, imported.err).toMatchObject({ out: "function true gatehouse function", code: 0 })
})

const vites = hasTools ? ["vite-5", "vite-6", "vite-7"] : []
it.live.each(vites)("the plugin runs in %s, and has its types", function* (vite) {
  const { peerDependencies } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8")) as {
    readonly peerDependencies: object
  }
  expect(peerDependencies).toEqual({ vite: ">=5" })
  const site = join(scratch, vite)
  mkdirSync(join(site, "node_modules"), { recursive: true })
  const link = (name: string, target: string) => symlinkSync(realpathSync(target), join(site, "node_modules", name))
  link("vite", join(repository, "tools/node_modules", vite))
  cpSync(join(installed, "node_modules/gatehouse-server"), join(site, "node_modules/gatehouse-server"), {
    recursive: true,
  })
  link("effect", join(installed, "node_modules/effect"))
  mkdirSync(join(site, "node_modules/@types"))
  link("@types/node", join(repository, "node_modules/@types/node"))
  writeFileSync(join(site, "package.json"), `{"private":true,"type":"module"}`)
  writeFileSync(join(site, "index.html"), `<script type="module" src="/main.js"></script>`)
  writeFileSync(join(site, "main.js"), `document.title = "docs"`)
  const config = `
      import gatehouse from "gatehouse-server/vite"
      import { defineConfig } from "vite"
      export default defineConfig({ plugins: [gatehouse({ url: "http://127.0.0.1:9" })] })`
  writeFileSync(join(site, "vite.config.ts"), config)
  const compiler = join(repository, "node_modules/typescript/bin/tsc")
  const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
  const args = [compiler, ...options, "--skipLibCheck", "vite.config.ts"]
  const checked = yield* run(process.execPath, args, { cwd: site })
  expect(checked, checked.out).toMatchObject({ code: 0 })
  const env = { ...process.env, GITHUB_ACTIONS: "true", ACTIONS_ID_TOKEN_REQUEST_URL: "" }
  const built = yield* run(process.execPath, [join(site, "node_modules/vite/bin/vite.js"), "build"], {
    cwd: site,
    env,
  })
  expect(built, built.err).toMatchObject({ code: 0 })
  expect(built.out + built.err).toContain('Add "permissions: id-token: write"')
})

it.live(
  "the image's steps work: production dependencies only, a user that can write nothing, its health check",
  function* () {
    const dockerfile = readFileSync(join(repository, "Dockerfile"), "utf8")
    const [, install] = /^RUN npm (ci --omit=dev.*)$/m.exec(dockerfile)!
    const [, check] = /^HEALTHCHECK .* CMD (\[.*\])$/m.exec(dockerfile)!
    const [, entry] = /^ENTRYPOINT (\[.*\])$/m.exec(dockerfile)!
    const [, defaults] = /^CMD (\[.*\])$/m.exec(dockerfile)!
    mkdirSync(image)
    for (const file of ["package.json", "package-lock.json", "LICENSE"])
      cpSync(join(repository, file), join(image, file))
    npm(image, ...install!.split(" "), "--prefer-offline", "--no-audit", "--no-fund")
    cpSync(join(installed, "node_modules/gatehouse-server/dist"), join(image, "dist"), { recursive: true })
    for (const path of [scratch, image]) chmodSync(path, 0o755)

    const [program, ...args] = [...(JSON.parse(entry!) as Array<string>), ...(JSON.parse(defaults!) as Array<string>)]
    expect(program).toBe("node")
    const user = process.getuid?.() === 0 ? { uid: 1000, gid: 1000 } : {}
    const env = {
      NODE_ENV: "production",
      HOST: "0.0.0.0",
      PORT: "0",
      DATABASE_URL: yield* freshPostgres("empty"),
      ENCRYPTION_KEY: encryptionKey,
      ADMIN_TOKEN: "a-token-of-the-package's-test",
    }
    const { child, url } = yield* started(process.execPath, args, { cwd: image, env, ...user })
    const [, ...healthcheck] = JSON.parse(check!) as Array<string>
    const health = (port: string) => run(process.execPath, healthcheck, { env: { PORT: port } })
    expect((yield* health(new URL(url).port)).code).toBe(0)
    child.kill("SIGTERM")
    expect(yield* Effect.promise(() => once(child, "exit"))).toEqual([0, null])
    expect((yield* health(new URL(url).port)).code).toBe(1)
    expect(readdirSync(image).sort()).toEqual(["LICENSE", "dist", "node_modules", "package-lock.json", "package.json"])
  },
)
