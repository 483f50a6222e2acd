import { Clock, Effect, type Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { describeSqlError } from "../database/Database.ts"
import { distributionOf } from "../database/citus/placements.ts"
import * as PostgresDatabase from "../database/PostgresDatabase.ts"
import { type Check, fail, ok } from "./Check.ts"
import { clockCheck } from "./clock.ts"
import { checkMigrations } from "./migrations.ts"
import { checkBuckets } from "./buckets.ts"
import { checkSizes } from "./bucketSizes.ts"
import { checkSecrets } from "./secrets.ts"
import { checkStorage } from "./storage.ts"

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
    const database = Effect.provideService(SqlClient.SqlClient, sql)
    const server = yield* database(checkServer)
    const migrations = yield* database(checkMigrations)
    const notifications = yield* checkNotifications(listenUrl, sql)
    const distribution = yield* database(distributionOf)
    const buckets = distribution === null ? [] : yield* database(checkBuckets(url, distribution))
    // The other checks need every bucket.
    const isComplete = migrations.complete && buckets.every(({ state }) => state === "ok")
    const isDistributed = distribution !== null
    const stored = isComplete
      ? [
          ...(isDistributed ? yield* database(checkSizes) : []),
          yield* database(checkSecrets(keys, distribution?.buckets)),
          yield* database(checkStorage(retentionDays, { isDistributed })),
        ]
      : []
    return [...server, migrations.check, notifications, ...buckets, ...stored]
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannotBeUsed(describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannotBeUsed("no answer within 20 seconds")]),
    }),
    Effect.provide(Reactivity.layer),
  )
