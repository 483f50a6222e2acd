import { PgClient } from "@effect/sql-pg"
import { Effect, Exit, Redacted, Scope as EffectScope } from "effect"
import { Reactivity } from "effect/reactivity"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { cpuOf } from "./cpu.ts"
import { freePort, start } from "./process.ts"
import type { Scope } from "./scope.ts"

export type Query = (text: string, values?: ReadonlyArray<unknown>) => Promise<ReadonlyArray<Record<string, unknown>>>

/** A PostgreSQL server for one scenario. */
export interface Postgres {
  /** Creates an empty database; returns its URL. */
  readonly database: (name: string) => Promise<string>
  /** A connection to the database of a URL, until the scope closes. */
  readonly connect: (url: string) => Promise<Query>
  /** CPU seconds so far of all its processes. */
  readonly cpu: () => number
}

/** A folder for the files of a scenario, which is removed when the scope closes. */
export const folder = (scope: Scope): string => {
  const path = mkdtempSync(join(tmpdir(), "gatehouse-bench-"))
  scope.defer(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Starts a PostgreSQL server from the npm package's binaries. Every subject of a scenario has a database on it. */
export const startPostgres = async (scope: Scope): Promise<Postgres> => {
  // PostgreSQL runs as another user, which gets a folder of its own; the log is elsewhere.
  const data = folder(scope)
  const port = await freePort()
  const log = join(folder(scope), "postgres.log")
  const server = await start(scope, {
    command: [process.execPath, fileURLToPath(new URL("./postgresServer.ts", import.meta.url))],
    environment: { PORT: String(port), FOLDER: data },
    log,
    ready: () => existsSync(log) && readFileSync(log, "utf8").includes("ready\n"),
  })
  const url = (name: string) => `postgres://postgres:password@127.0.0.1:${port}/${name}`
  const connect = async (to: string): Promise<Query> => {
    const lifetime = EffectScope.makeUnsafe()
    const sql = await Effect.runPromise(
      // An idle connection stays open: a transaction of it may be forgotten for minutes.
      PgClient.make({ url: Redacted.make(to), minConnections: 1, maxConnections: 1 }).pipe(
        Effect.provide(Reactivity.layer),
        EffectScope.provide(lifetime),
      ),
    )
    scope.defer(() => Effect.runPromise(EffectScope.close(lifetime, Exit.void)))
    return (text, values = []) => Effect.runPromise(sql.unsafe<Record<string, unknown>>(text, values))
  }
  const admin = await connect(url("postgres"))
  return {
    connect,
    database: async (name) => {
      await admin(`CREATE DATABASE ${name}`)
      return url(name)
    },
    cpu: () => cpuOf(server.pid),
  }
}
