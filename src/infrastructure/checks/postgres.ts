import { Clock, Effect, type Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { describeSqlError } from "../database/Database.ts"
import * as PostgresDatabase from "../database/PostgresDatabase.ts"
import { type Check, fail, ok } from "./Check.ts"
import { clockCheck } from "./clock.ts"
import { checkMigrations } from "./migrations.ts"
import { checkSecrets } from "./secrets.ts"

/** What PostgreSQL this version is made for. */
const oldest = 14

const cannotBeUsed = (why: string) =>
  fail("database", `the database of DATABASE_URL cannot be used: ${why}`, "check its host, port, user and password")

const checkServer = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ask = sql<{ version: string; major: number; millis: number }>`
    SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
      (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS millis`
  // The first question has the connection's beginning in it.
  yield* ask
  const asked = yield* Clock.currentTimeMillis
  const [server] = yield* ask
  const answered = yield* Clock.currentTimeMillis
  const { major, millis, version } = server!
  return [
    major < oldest
      ? fail("database", `PostgreSQL ${version}`, `use PostgreSQL ${oldest} or newer`)
      : ok("database", `PostgreSQL ${version}`),
    clockCheck("the database", (asked + answered) / 2 - millis, (answered - asked) / 2),
  ]
})

/** Whether this process hears what another connection notifies, as the deletion of a key. */
const checkNotifications = (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient) =>
  PostgresDatabase.subscriptions(url, sql).pipe(
    Effect.flatMap((subscribe) => subscribe("gatehouse_doctor")),
    Effect.scoped,
    Effect.as(ok("notifications", "LISTEN and NOTIFY arrive")),
    Effect.catch((error) =>
      Effect.succeed(
        fail(
          "notifications",
          describeSqlError(error),
          "let DATABASE_URL lead to PostgreSQL itself, or to a pooler in session mode",
        ),
      ),
    ),
  )

/** Whether the PostgreSQL of DATABASE_URL can be used; nothing is changed in it. */
export const checkPostgres = (
  url: Redacted.Redacted<string>,
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
): Effect.Effect<ReadonlyArray<Check>> =>
  Effect.gen(function* () {
    const sql = yield* PostgresDatabase.client(url)
    const database = Effect.provideService(SqlClient.SqlClient, sql)
    const server = yield* database(checkServer)
    const migrations = yield* database(checkMigrations)
    const notifications = yield* checkNotifications(url, sql)
    const secrets = migrations.complete ? [yield* database(checkSecrets(keys))] : []
    return [...server, migrations.check, notifications, ...secrets]
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannotBeUsed(describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannotBeUsed("no answer within 20 seconds")]),
    }),
    Effect.provide(Reactivity.layer),
  )
