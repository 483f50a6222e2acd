import { PgClient } from "@effect/sql-pg"
import { Cause, Context, Effect, Fiber, Layer, Metric, Queue, Redacted, Schedule } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { connectionsMax } from "./databaseMetrics.ts"
import * as EmbeddedDatabase from "./embedded/EmbeddedDatabase.ts"
import { upkeep } from "./embedded/EmbeddedUpkeep.ts"
import * as Migrations from "./Migrations.ts"
import * as Notifications from "./Notifications.ts"
import { isPassing } from "./orUnavailable.ts"
import * as PostgresDatabase from "./PostgresDatabase.ts"
import { StartupError } from "../StartupError.ts"

/** Where the data is. */
export interface DatabaseOptions {
  /** A PostgreSQL URL; absent: the embedded database in `dataDir`. */
  readonly databaseUrl?: Redacted.Redacted<string> | undefined
  /** The embedded database's folder, or `memory` to keep nothing. */
  readonly dataDir: string
}

/** The database behind the repositories: which one it is, and whether it can be used just now. */
export class Database extends Context.Service<
  Database,
  {
    readonly kind: "postgres" | "embedded"
    /**
     * Succeeds when the database answers and its migrations are in, and says whether it can be written; fails, within
     * two seconds, when not. A standby, and a database that was made read-only, cannot be written.
     */
    readonly ready: Effect.Effect<{ readonly writable: boolean }, Unavailable>
  }
>()("gatehouse/infrastructure/Database") {
  /**
   * The database that the options name, migrated, as `SqlClient`, `PgClient`, `Notifications` and `Database`; closed in the
   * opposite order. Fails with a `StartupError` of one line. Bind the result to a const: layers are shared by reference.
   */
  static readonly layer = (
    options: DatabaseOptions,
  ): Layer.Layer<Database | PgClient.PgClient | SqlClient.SqlClient | Notifications.Notifications, StartupError> =>
    Layer.effectContext(
      options.databaseUrl === undefined ? embedded(options.dataDir) : postgres(options.databaseUrl),
    ).pipe(Layer.provide(Reactivity.layer))
}

/** The client of the embedded database: one connection, as the engine has one session; what has no transaction shares it in a pipeline. */
export const embeddedClient = (database: EmbeddedDatabase.EmbeddedDatabase) =>
  PgClient.make({
    stream: database.connect,
    ssl: false,
    username: "postgres",
    connectTimeout: "30 seconds",
    minConnections: 1,
    maxConnections: 1,
    multiplex: true,
    multiplexConcurrency: 1024,
  })

/** How a channel of the embedded database is heard. */
export const embeddedSubscriptions = (
  database: Pick<EmbeddedDatabase.EmbeddedDatabase, "subscribe">,
  sql: PgClient.PgClient,
): Notifications.Subscribe<Error | SqlError.SqlError> =>
  Effect.fnUntraced(function* (channel: string) {
    const heard = yield* Queue.unbounded<string, Error>()
    let lost: Error | undefined
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        database.subscribe({
          onNotification: (name, payload) => name === channel && Queue.offerUnsafe(heard, payload),
          onLost: (cause) => {
            lost = cause
            Queue.failCauseUnsafe(heard, Cause.fail(cause))
          },
        }),
      ),
      (stop) => Effect.sync(stop),
    )
    yield* sql`LISTEN ${sql(channel)}`
    // An engine was lost before LISTEN was answered, and another one may have answered: subscribe again, without an `Up`.
    if (lost !== undefined) return yield* Effect.fail(lost)
    return Queue.take(heard)
  })

const embedded = Effect.fn("Database.embedded")(function* (dataDir: string) {
  const database = yield* EmbeddedDatabase.make(dataDir)
  const sql = yield* embeddedClient(database).pipe(cannotStart("DATA_DIR"))
  yield* Migrations.migrate.pipe(Effect.provideService(SqlClient.SqlClient, sql), cannotStart("DATA_DIR"))
  yield* upkeep.pipe(Effect.provideService(SqlClient.SqlClient, sql), Effect.forkScoped)

  return yield* provide("embedded", sql, Notifications.make(embeddedSubscriptions(database, sql)))
})

const postgres = Effect.fn("Database.postgres")(function* (url: Redacted.Redacted<string>) {
  yield* PostgresDatabase.migrationClient(url).pipe(
    Effect.flatMap((sql) => Effect.provideService(Migrations.migrate, SqlClient.SqlClient, sql)),
    Effect.scoped,
    // Started together with the server, the service is often the first to be up.
    Effect.tapError((error) => {
      const fault = SqlError.isSqlError(error) ? describeSqlError(error) : error.message
      return Effect.logWarning(`The database at ${new URL(Redacted.value(url)).host} cannot be used yet: ${fault}`)
    }),
    Effect.retry({
      while: (error) => SqlError.isSqlError(error) && isPassing(error) && error.reason._tag !== "AuthenticationError",
      schedule: Schedule.max([Schedule.spaced("1 second"), Schedule.recurs(20)]),
    }),
    cannotStart("DATABASE_URL"),
  )
  const sql = yield* PostgresDatabase.client(url).pipe(cannotStart("DATABASE_URL"))
  return yield* provide("postgres", sql, Notifications.make(yield* PostgresDatabase.subscriptions(url, sql)))
})

const provide = Effect.fnUntraced(function* (
  kind: "postgres" | "embedded",
  sql: PgClient.PgClient,
  notifications: Notifications.Notifications["Service"],
) {
  yield* Metric.update(connectionsMax, kind === "postgres" ? PostgresDatabase.poolSize : 1)
  const known = yield* Migrations.newest
  const notReady = new Unavailable({ error: "The database does not answer, or its migrations are not in." })
  // It is on in every transaction of a standby, too.
  const writable = Effect.map(
    sql<{ writable: boolean }>`SELECT current_setting('transaction_read_only') = 'off' AS writable`,
    ([row]) => ({ writable: row!.writable }),
  )
  const asked = Migrations.applied.pipe(
    Effect.provideService(SqlClient.SqlClient, sql),
    // Newer is well: a replica of the next version may have come up beside this one.
    Effect.filterOrFail((there) => there >= known),
    Effect.andThen(writable),
    Effect.timeout("2 seconds"),
  )
  // Detached: on a connection gone silent the question takes longer to take back than to ask.
  const ready = Effect.forkDetach(asked).pipe(
    Effect.flatMap(Fiber.join),
    Effect.timeout("2 seconds"),
    Effect.catchCause((cause) => Effect.andThen(Effect.logDebug("Not ready", cause), Effect.fail(notReady))),
  )
  return Context.make(Database, Database.of({ kind, ready })).pipe(
    Context.add(PgClient.PgClient, sql),
    Context.add(SqlClient.SqlClient, sql),
    Context.add(Notifications.Notifications, notifications),
  )
})

/** Names the variable that the database comes from. */
const cannotStart =
  (variable: "DATABASE_URL" | "DATA_DIR") =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.mapError(effect, (error) =>
      SqlError.isSqlError(error)
        ? new StartupError({
            message: `The database of ${variable} cannot be used: ${describeSqlError(error)}`,
            cause: error,
          })
        : (error as Exclude<E, SqlError.SqlError>),
    )

/** What the database, or the way there, said. */
export const describeSqlError = (error: SqlError.SqlError) => {
  const { code, message } = error.reason.cause as { readonly code?: string; readonly message?: string }
  return message || code || error.message
}
