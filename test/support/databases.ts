import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Queue, Redacted, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient, SqlError } from "effect/sql"
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inject } from "vitest"
import { Database } from "../../src/infrastructure/database/Database.ts"
import { Notifications } from "../../src/infrastructure/database/Notifications.ts"

/** The migrated database on the test server, from which new ones are copied. */
export const TEMPLATE = "gatehouse_template"

/** The URL of another database on the same server. */
export const inDatabase = (url: string, name: string) => {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

/** A client of the server in the URL. */
export const adminClient = (url: string) =>
  PgClient.make({ url: Redacted.make(url), maxConnections: 2 }).pipe(Effect.provide(Reactivity.layer))

let made = 0

/**
 * Creates a database on the run's PostgreSQL, migrated or empty, and drops it when the scope closes. Returns its URL.
 * Takes about 50 ms.
 */
export const freshPostgres = Effect.fn("freshPostgres")(function* (kind: "migrated" | "empty" = "migrated") {
  const url = inject("postgresUrl")
  const name = `test_${process.pid}_${process.env.VITEST_POOL_ID ?? 0}_${made++}`
  // Each statement has its own client: an idle client has no connection after a minute, and opens none while its scope
  // closes.
  const run = (statement: (admin: SqlClient.SqlClient) => Effect.Effect<unknown, SqlError.SqlError>) =>
    Effect.scoped(Effect.flatMap(adminClient(url), statement))
  yield* Effect.acquireRelease(
    run(
      (admin) => admin`CREATE DATABASE ${admin(name)} TEMPLATE ${admin(kind === "migrated" ? TEMPLATE : "template1")}`,
    ),
    () => Effect.orDie(run((admin) => admin`DROP DATABASE ${admin(name)} WITH (FORCE)`)),
  )
  return inDatabase(url, name)
})

/** Creates a DATA_DIR with a migrated database, or empty, and removes it when the scope closes. */
export const freshFolder = (kind: "migrated" | "empty" = "migrated") =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const folder = mkdtempSync(join(tmpdir(), "gatehouse-data-"))
      if (kind === "migrated") cpSync(inject("embeddedTemplate"), folder, { recursive: true })
      return folder
    }),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true })),
  )

/** Whether the embedded database in DATA_DIR was shut down in order, according to its control file. */
export const isShutDown = (dataDir: string) =>
  readFileSync(join(dataDir, "postgres/global/pg_control")).readInt32LE(16) === 1

/**
 * Both databases, each new and migrated wherever the layer is provided. Run a suite on both with
 * `describe.each(Object.entries(databases))`.
 */
export const databases = {
  embedded: Layer.unwrap(Effect.map(freshFolder(), (dataDir) => Database.layer({ dataDir }))),
  postgres: Layer.unwrap(
    Effect.map(freshPostgres(), (url) => Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })),
  ),
}

/** PostgreSQL with one node, which gets every new org. */
export const databaseWithNode = Layer.unwrap(
  Effect.gen(function* () {
    const [url, node] = [yield* freshPostgres(), yield* freshPostgres()]
    yield* Effect.scoped(Effect.flatMap(adminClient(url), (sql) => sql`INSERT INTO open_nodes (name) VALUES ('node')`))
    const nodes = new Map([["node", Redacted.make(node)]])
    return Database.layer({ databaseUrl: Redacted.make(url), nodes, dataDir: "unused" })
  }),
)

/** Listens to a channel; returns an effect that takes the next notification: `Up`, `Down` or a payload. */
export const heard = Effect.fn("heard")(function* (channel: string) {
  const told = yield* Queue.unbounded<string>()
  const { listen } = yield* Notifications
  yield* listen(channel).pipe(
    Stream.runForEach((event) => Queue.offer(told, event._tag === "Message" ? event.payload : event._tag)),
    Effect.forkScoped,
  )
  return Queue.take(told)
})
