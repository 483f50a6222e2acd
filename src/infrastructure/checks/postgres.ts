import { Clock, Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"

import * as Migrations from "../database/Migrations.ts"
import * as PostgresDatabase from "../database/PostgresDatabase.ts"
import { describeSqlError } from "../database/PostgresDatabase.ts"
import { type Check, clockCheck, fail, ok, warn } from "./Check.ts"
import { checkStorage } from "./storage.ts"
import { checkSecrets } from "./secrets.ts"

/** The oldest major version of PostgreSQL that this version supports. */
const oldestMajor = 14

const cannotBeUsed = (reason: string) =>
  fail(
    "database",
    `the database of DATABASE_URL cannot be used: ${reason}`,
    "check that PostgreSQL runs, and the host, port, user and password of DATABASE_URL",
  )

const checkServer = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ask = sql<{ version: string; major: number; millis: number }>`
    SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
      (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS millis`
  // Once to connect, which takes time, and once to measure.
  yield* ask
  const sentAt = yield* Clock.currentTimeMillis
  const [server] = yield* ask
  const answeredAt = yield* Clock.currentTimeMillis
  const { major, millis, version } = server!
  return [
    major < oldestMajor
      ? fail("database", `PostgreSQL ${version} is too old`, `use PostgreSQL ${oldestMajor} or newer`)
      : ok("database", `PostgreSQL ${version}`),
    clockCheck("the database", (sentAt + answeredAt) / 2 - millis, (answeredAt - sentAt) / 2),
  ]
})

/** Checks that LISTEN receives the NOTIFY of another connection, which the deletion of a key needs. */
const checkNotifications = (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient) =>
  PostgresDatabase.subscriptions(url, sql).pipe(
    Effect.flatMap((subscribe) => subscribe("gatehouse_doctor", {})),
    Effect.scoped,
    Effect.as(ok("notifications", "LISTEN receives the NOTIFY of another connection")),
    Effect.catch((error) =>
      Effect.succeed(
        fail(
          "notifications",
          describeSqlError(error),
          "set LISTEN_URL, or DATABASE_URL without it, to PostgreSQL itself or to a pooler in session mode",
        ),
      ),
    ),
  )

/** Checks the PostgreSQL of DATABASE_URL, and the one of LISTEN_URL. Changes nothing. */
export const checkPostgres = (
  url: Redacted.Redacted<string>,
  listenUrl: Redacted.Redacted<string>,
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
  retentionDays: number | undefined,
): Effect.Effect<ReadonlyArray<Check>> =>
  Effect.gen(function* () {
    const sql = yield* PostgresDatabase.client(url)
    const pooler = yield* PostgresDatabase.poolerFault(sql)
    if (pooler !== undefined) return [fail("database", pooler, "set DATABASE_URL, or the pooler, as the message says")]
    const database = Effect.provideService(SqlClient.SqlClient, sql)
    const server = yield* database(checkServer)
    const migrations = yield* database(checkMigrations)
    const notifications = yield* checkNotifications(listenUrl, sql)
    const stored = migrations.complete
      ? [yield* database(checkSecrets(keys)), yield* database(checkStorage(retentionDays))]
      : []
    return [...server, migrations.check, notifications, ...stored]
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannotBeUsed(describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannotBeUsed("no response within 20 seconds")]),
    }),
    Effect.provide(Reactivity.layer),
  )

/** Compares the migrations of the database with those of this version. */
export const checkMigrations = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{ exists: boolean }>`SELECT to_regclass('gatehouse_migrations') IS NOT NULL AS exists`
  const applied = table!.exists ? yield* Migrations.applied : 0
  const known = yield* Migrations.newest
  if (yield* Migrations.isUnreleased) {
    const check = fail("migrations", "a version before release 1.0 made the database", "start with an empty database")
    return { check, complete: false }
  }
  return { check: compare(applied, known), complete: applied >= known }
})

const compare = (applied: number, known: number): Check => {
  if (applied === known) return ok("migrations", `all are applied, the newest has number ${known}`)
  if (applied > known) {
    const found = `the database is at migration ${applied}, but this version knows only ${known}`
    return fail("migrations", found, "start the newer version")
  }
  const found =
    applied === 0 ? "none is applied" : `the database is at migration ${applied}; this version needs ${known}`
  return warn("migrations", found, "run gatehouse migrate, or start the service, which migrates first")
}
