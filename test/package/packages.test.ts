import { afterAll, beforeAll, describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { run } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"
import { hasTools, toolPath } from "../support/tools.ts"

/** Promise (Clients in other languages): The examples of the gateway package compile in Express, Fastify and Hono. */

const repository = fileURLToPath(new URL("../../", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "gatehouse-packages-"))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const npm = (cwd: string, ...args: ReadonlyArray<string>) => {
  const { status, stderr, stdout } = spawnSync("npm", args, { cwd, encoding: "utf8", env: process.env })
  expect(status, `npm ${args.join(" ")}\n${stdout}\n${stderr}`).toBe(0)
}

/** A program of a reader for each package; it prints one line. */
const consumers: Readonly<Record<string, string>> = {
  webhooks: `
    import { type VerifiedWebhook, verifyWebhook, WebhookVerificationError } from "gatehouse-webhooks"

    const request = new Request("https://example.com", { method: "POST", body: "{}" })
    const verified: Promise<VerifiedWebhook | undefined> = verifyWebhook(request, "secret").catch((error: unknown) => {
      if (!(error instanceof WebhookVerificationError)) throw error
      console.log(error.code)
      return undefined
    })
    await verified`,
  client: `
    import { GatehouseError, makeClient, type Project } from "gatehouse-client"

    const gatehouse = makeClient({ baseUrl: process.env.URL!, credential: process.env.TOKEN })
    const project: Project = await gatehouse.projects.create({ name: "docs" })
    const { keys } = await gatehouse.keys.list({ orgId: project.orgId, limit: 10 })
    // @ts-expect-error -- there is no such field
    const wrong = gatehouse.projects.create({ name: "docs", title: "x" }).catch((error: unknown) => error)
    // @ts-expect-error -- the name is missing
    const missing = () => gatehouse.projects.create({})
    // @ts-expect-error -- a status that a request cannot have
    const state = () => gatehouse.jobs.list({ status: "done" })
    const stream = () => gatehouse.chat.answer({ messages: [{ role: "user", content: "x" }] })
    const delta = async () => { for await (const part of await stream()) return part.delta satisfies string | undefined }
    const event = async () => {
      for await (const { event, data } of await gatehouse.live.follow()) return [event satisfies string, data["jobId"]]
    }
    void event
    console.log(project.name, keys.length, ((await wrong) as GatehouseError).code, typeof missing, typeof state, typeof delta)`,
  gateway: `
    import { makeGateway, withFetch } from "gatehouse-gateway"

    const gateway = makeGateway({ url: process.env.URL!, credential: process.env.TOKEN })
    const owner = await withFetch(gateway)(new Request("https://example.com", { headers: { "x-api-key": "svc_wrong" } }))
    if (owner instanceof Response) console.log(owner.status)
    else console.log(owner.orgId satisfies string)`,
  worker: `
    import { JobFailed, startWorker, type WorkerJob } from "gatehouse-worker"
    import { type OutboxOptions, startOutbox } from "gatehouse-worker/outbox"

    const handler = async ({ attempt, input, step }: WorkerJob) => {
      if (input === null) throw new JobFailed("no input")
      return await step("double", async () => 2 * attempt)
    }
    const worker = startWorker({ baseUrl: process.env.URL!, key: "svc_wrong", handlers: { w: handler }, onError: () => {} })
    await worker.done.catch((error: Error) => console.log(error.message))
    // @ts-expect-error -- a pool is missing
    const wrong: OutboxOptions = { baseUrl: "http://127.0.0.1:3000", key: "k" }
    void wrong
    console.log(typeof startOutbox)`,
}

/** Projects of a gateway with each framework. They are compiled; test/packages runs the frameworks. */
const frameworks: Readonly<Record<string, string>> = {
  express: `
    import express from "express"
    import { makeGateway, withExpress } from "gatehouse-gateway"

    const gateway = makeGateway({ url: "http://127.0.0.1:3000", keyHeader: "x-service-key" })
    const app = express()
    app.use(withExpress(gateway))
    app.get("/items/:id", withExpress(gateway, { cost: 10 }), (request, response) => {
      response.json([request.params.id satisfies string, request.gatehouse.orgId satisfies string])
      // @ts-expect-error -- there is no such field
      response.json(request.gatehouse.organization)
    })`,
  fastify: `
    import Fastify from "fastify"
    import { makeGateway, withFastify } from "gatehouse-gateway"

    const gateway = makeGateway({ url: "http://127.0.0.1:3000", keyHeader: "x-service-key" })
    const app = Fastify()
    app.addHook("onRequest", withFastify(gateway))
    app.get<{ Params: { id: string } }>("/items/:id", { onRequest: withFastify(gateway, { cost: 10 }) }, async (request) => {
      // @ts-expect-error -- there is no such field
      const wrong = request.gatehouse.organization
      return [request.params.id satisfies string, request.gatehouse.orgId satisfies string, wrong]
    })`,
  hono: `
    import { Hono } from "hono"
    import { makeGateway, withHono } from "gatehouse-gateway"

    const gateway = makeGateway({ url: "http://127.0.0.1:3000", keyHeader: "x-service-key" })
    const app = new Hono<{ Variables: { user: string } }>()
    app.use(withHono(gateway))
    app.get("/items/:id", withHono(gateway, { cost: 10 }), (context) => {
      // @ts-expect-error -- there is no such field
      const wrong = context.get("gatehouse").organization
      return context.json([context.req.param("id") satisfies string, context.var.gatehouse.orgId satisfies string, wrong])
    })`,
}

const printed: Readonly<Record<string, string>> = {
  webhooks: "missing_header\n",
  client: "docs 0 invalid_request function function function\n",
  gateway: "401\n",
  worker: "The key is not valid.\nfunction\n",
}

/** The tarball of a package with the types of every operation, in bytes. */
const maxTarball: Readonly<Record<string, number>> = { client: 35_000 }
/** The code of a package that has two entries, or a table of the operations, in bytes. */
const maxCode: Readonly<Record<string, number>> = { worker: 33_000, client: 21_000 }

/** Lets a consumer have a package of the repository. */
const linkOf = (folder: string, name: string) => {
  const link = join(folder, "node_modules", name)
  rmSync(link, { force: true })
  symlinkSync(realpathSync(join(repository, "node_modules", name)), link)
}

const compiler = join(repository, "node_modules/typescript/bin/tsc")
const compiled = (folder: string, file: string, ...more: ReadonlyArray<string>) => {
  const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
  return run(process.execPath, [compiler, ...options, ...more, file], { cwd: folder })
}

describe.each(Object.keys(consumers))("gatehouse-%s", (name) => {
  const folder = join(scratch, name)
  let tarball = ""

  beforeAll(() => {
    mkdirSync(folder)
    // What an earlier build has left. Seen failing: it was packed.
    mkdirSync(join(repository, "packages", name, "dist"), { recursive: true })
    writeFileSync(join(repository, "packages", name, "dist/removed.js"), "")
    npm(join(repository, "packages", name), "pack", "--pack-destination", folder)
    tarball = join(
      folder,
      readdirSync(folder).find((file) => file.endsWith(".tgz"))!,
    )
    writeFileSync(join(folder, "package.json"), `{"name":"consumer","private":true,"type":"module"}`)
    npm(folder, "install", "--prefer-offline", "--no-audit", "--no-fund", tarball)
  })

  it("is one small package", () => {
    expect(readdirSync(join(folder, "node_modules")).filter((file) => !file.startsWith("."))).toEqual([
      `gatehouse-${name}`,
    ])
    expect(readdirSync(join(folder, "node_modules", `gatehouse-${name}`)).sort()).toEqual([
      "LICENSE",
      "README.md",
      "dist",
      "package.json",
    ])
    expect(statSync(tarball).size).toBeLessThan(maxTarball[name] ?? 26_000)
    const files = readdirSync(join(folder, "node_modules", `gatehouse-${name}`), { recursive: true, encoding: "utf8" })
    expect(files).not.toContain("dist/removed.js")
    const code = files.filter((file) => file.endsWith(".js"))
    const bytes = code.map((file) => statSync(join(folder, "node_modules", `gatehouse-${name}`, file)).size)
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(maxCode[name] ?? 20_000)
  })

  it.live("runs, and has the types of its page", () =>
    Effect.gen(function* () {
      const { url } = yield* TestServer
      writeFileSync(join(folder, "consumer.ts"), consumers[name]!)
      mkdirSync(join(folder, "node_modules/@types"), { recursive: true })
      linkOf(folder, "@types/node")
      const checked = yield* compiled(folder, "consumer.ts")
      expect(checked, checked.out).toMatchObject({ code: 0 })
      const env = { URL: url, TOKEN: adminToken }
      const ran = yield* run(process.execPath, ["consumer.ts"], { cwd: folder, env })
      expect(ran, ran.err).toMatchObject({ out: printed[name], code: 0 })
    }).pipe(Effect.provide(TestServer.layer(guarded))),
  )

  it.live("is loaded by require in each version of Node that its engines name", function* () {
    const { engines } = JSON.parse(readFileSync(join(repository, "packages", name, "package.json"), "utf8")) as {
      readonly engines: object
    }
    // The first versions that load an ES module with require without a flag.
    expect(engines).toEqual({ node: "^20.19.0 || >=22.12.0" })
    const source = `process.stdout.write(typeof require("gatehouse-${name}"))`
    expect(yield* run(process.execPath, ["-e", source], { cwd: folder })).toMatchObject({ out: "object", code: 0 })
  })

  it.live.each(name === "gateway" ? Object.keys(frameworks) : [])("compiles in a project of %s", function* (framework) {
    const project = join(folder, framework)
    mkdirSync(join(project, "node_modules/@types"), { recursive: true })
    cpSync(join(folder, "node_modules/gatehouse-gateway"), join(project, "node_modules/gatehouse-gateway"), {
      recursive: true,
    })
    for (const needed of [framework, "@types/node", ...(framework === "express" ? ["@types/express"] : [])]) {
      linkOf(project, needed)
    }
    writeFileSync(join(project, "package.json"), `{"private":true,"type":"module"}`)
    writeFileSync(join(project, "server.ts"), frameworks[framework]!)
    const checked = yield* compiled(project, "server.ts", "--skipLibCheck")
    expect(checked, checked.out).toMatchObject({ code: 0 })
  })

  it.live.skipIf(!hasTools)("publint and arethetypeswrong find nothing", function* () {
    const linted = yield* run(toolPath("publint"), [tarball, "--strict"], { cwd: folder })
    expect(linted, linted.out + linted.err).toMatchObject({ code: 0 })
    const typed = yield* run(toolPath("attw"), [tarball, "--profile", "esm-only"], { cwd: folder })
    expect(typed, typed.out + typed.err).toMatchObject({ code: 0 })
  })
})
