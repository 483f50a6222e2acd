import { Effect, Logger, Redacted } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import type { TestProject } from "vitest/node"
import { Database } from "../../src/infrastructure/database/Database.ts"
import { adminClient, inDatabase, TEMPLATE } from "./databases.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** A PostgreSQL server for the run, with a migrated database named `TEMPLATE`. */
    readonly postgresUrl: string
    /** A folder with a migrated embedded database, to copy. */
    readonly embeddedTemplate: string
  }
}

/**
 * Provides one PostgreSQL server for the whole run: TEST_DATABASE_URL, or one that it starts from the npm package's
 * binaries.
 */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-test-"))
  const { stop, url } = await server()
  const unwatch = watch(url, () => {
    process.stderr.write(
      `\nThe tests' PostgreSQL is gone: nothing listens on ${new URL(url).host}. The run ends here.\n`,
    )
    rmSync(folder, { recursive: true, force: true })
    process.exit(1)
  })
  await Effect.runPromise(prepare(url, join(folder, "embedded")).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
  project.provide("postgresUrl", url)
  project.provide("embeddedTemplate", join(folder, "embedded"))
  return async () => {
    unwatch()
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

/**
 * Calls back once nothing listens at the URL any more; returns how to stop. A busy server still accepts connections.
 */
const watch = (url: string, gone: () => void) => {
  const { hostname, port } = new URL(url)
  const timer = setInterval(() => {
    const socket = connect(Number(port || 5432), hostname, () => socket.destroy())
    socket.on("error", ({ code }: NodeJS.ErrnoException) => {
      if (code === "ECONNREFUSED") gone()
    })
  }, 200)
  return () => clearInterval(timer)
}

const server = async () => {
  if (process.env.TEST_DATABASE_URL) return { url: process.env.TEST_DATABASE_URL, stop: async () => {} }
  const child = spawn(process.execPath, [fileURLToPath(new URL("./postgresServer.ts", import.meta.url))])
  const ended = once(child, "exit")
  let log = ""
  child.stderr.on("data", (chunk) => (log += chunk))
  const url = await Promise.race([
    once(child.stdout, "data").then(([line]) => String(line).trim()),
    ended.then(() => {
      throw new Error(`PostgreSQL did not start; set TEST_DATABASE_URL to use another server.\n${log}`)
    }),
  ])
  return {
    url,
    stop: async () => {
      child.stdin.end()
      await ended
    },
  }
}
