import { PgClient } from "@effect/sql-pg"
import { Cause, Context, Deferred, Effect, Fiber, Layer, Metric, Queue, Redacted, Result, Schedule } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { type DatabaseState, DatabaseSize, Readiness } from "../../domain/activity/ServiceStates.ts"
import { parseDatabaseUrl } from "./DatabaseUrl.ts"
import { connectionsMax, isTransient, orUnavailable } from "./orUnavailable.ts"
import * as EmbeddedDatabase from "./embedded/EmbeddedDatabase.ts"
import * as Migrations from "./Migrations.ts"
import * as Nodes from "./Nodes.ts"
import * as Notifications from "./Notifications.ts"
import * as PostgresDatabase from "./PostgresDatabase.ts"
import { StartupError } from "../StartupError.ts"

/** Chooses the database. */
interface DatabaseOptions {
  /** A PostgreSQL URL. Default: the embedded database in `dataDir`. */
  readonly databaseUrl?: Redacted.Redacted<string> | undefined
  /** The same database at the address for LISTEN. Default: `databaseUrl`. */
  readonly listenUrl?: Redacted.Redacted<string> | undefined
  /** Other PostgreSQL databases, by name, that have the rows of some orgs. Default: none. */
  readonly nodes?: ReadonlyMap<string, Redacted.Redacted<string>> | undefined
  /** The folder of the embedded database, or `memory` to keep nothing. */
  readonly dataDir: string
}

/** The kind and the readiness of the database behind the repositories. */
export class Database extends Context.Service<
  Database,
  {
    readonly kind: "postgres" | "embedded"
    /**
     * Succeeds if the database answers and has all migrations. Returns whether it is writable, which a standby and a
     * read-only database are not, and what makes the service slower. Fails within two seconds otherwise, also when a
     * pooler in between breaks the service.
     */
    readonly ready: Effect.Effect<DatabaseState, Unavailable>
  }
>()("gatehouse/infrastructure/Database") {
  /**
   * Connects to the database of the options and migrates it. Provides `SqlClient`, `PgClient`, `Notifications` and
   * `Database`. Fails with a one-line `StartupError`. Bind the result to a const: layers are shared by reference.
   */
  static readonly layer = (
    options: DatabaseOptions,
  ): Layer.Layer<Database | PgClient.PgClient | SqlClient.SqlClient | Notifications.Notifications, StartupError> =>
    Layer.effectContext(
      options.databaseUrl === undefined
        ? embedded(options.dataDir)
        : postgres(options.databaseUrl, options.listenUrl ?? options.databaseUrl, options.nodes ?? new Map()),
    ).pipe(Layer.provide(Reactivity.layer))
}

/**
 * The client of the embedded database: one connection, because the engine has one session. Statements outside a
 * transaction share it in a pipeline.
 */
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

/** Listens to channels of the embedded database. */
export const embeddedSubscriptions = (
  database: Pick<EmbeddedDatabase.EmbeddedDatabase, "subscribe">,
  sql: PgClient.PgClient,
): Notifications.Subscribe<Error | SqlError.SqlError> =>
  Effect.fnUntraced(function* (channel: string, { proofs = false }: Notifications.ListenOptions) {
    const notifications = yield* Queue.unbounded<Notifications.Notification, Error>()
    let lost: Error | undefined
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        database.subscribe({
          onNotification: (name, payload) =>
            name === channel && Queue.offerUnsafe(notifications, Notifications.Notification.Message({ payload })),
          onLost: (cause) => {
            lost = cause
            Queue.failCauseUnsafe(notifications, Cause.fail(cause))
          },
        }),
      ),
      (stop) => Effect.sync(stop),
    )
    yield* sql`LISTEN ${sql(channel)}`
    // If the engine was lost before the answer to LISTEN, a new engine may have answered: fail, so that the caller
    // retries.
    if (lost !== undefined) return yield* Effect.fail(lost)
    // No other process changes this database, so what this process has heard is always current.
    if (proofs) Queue.offerUnsafe(notifications, Notifications.Notification.Proof({ sentAt: Infinity }))
    return Queue.take(notifications)
  })

const embedded = Effect.fn("Database.embedded")(function* (dataDir: string) {
  const database = yield* EmbeddedDatabase.make(dataDir)
  const sql = yield* embeddedClient(database).pipe(cannotStart("DATA_DIR"))
  yield* Migrations.migrate.pipe(Effect.provideService(SqlClient.SqlClient, sql), cannotStart("DATA_DIR"))
  yield* EmbeddedDatabase.maintenance.pipe(Effect.provideService(SqlClient.SqlClient, sql), Effect.forkScoped)

  return yield* provide("embedded", sql, Notifications.make(embeddedSubscriptions(database, sql)))
})

const postgres = Effect.fn("Database.postgres")(function* (
  url: Redacted.Redacted<string>,
  listenUrl: Redacted.Redacted<string>,
  nodeUrls: ReadonlyMap<string, Redacted.Redacted<string>>,
) {
  yield* PostgresDatabase.migrationClient(url).pipe(
    Effect.flatMap((sql) =>
      Effect.provideService(Effect.andThen(Migrations.migrate, Nodes.checkNames(nodeUrls)), SqlClient.SqlClient, sql),
    ),
    Effect.scoped,
    // A service that starts together with PostgreSQL is often ready before it.
    Effect.tapError((error) => {
      const fault = SqlError.isSqlError(error) ? PostgresDatabase.describeSqlError(error) : error.message
      const at = Result.match(parseDatabaseUrl(Redacted.value(url)), {
        onSuccess: ({ name }) => ` at ${name}`,
        onFailure: () => "",
      })
      return Effect.logWarning(`The database${at} cannot be used yet: ${fault}`)
    }),
    Effect.retry({
      while: (error) => SqlError.isSqlError(error) && isTransient(error) && error.reason._tag !== "AuthenticationError",
      schedule: Schedule.max([Schedule.spaced("1 second"), Schedule.recurs(20)]),
    }),
    cannotStart("DATABASE_URL"),
  )
  const sql = yield* PostgresDatabase.client(url).pipe(cannotStart("DATABASE_URL"))
  const { faults, listening } = yield* watchPoolers(sql)
  const subscribe = yield* PostgresDatabase.subscriptions(listenUrl, sql, listening)
  const notifications = Notifications.make(subscribe)
  const nodes = yield* Nodes.make(sql, nodeUrls, notifications).pipe(cannotStart("DATABASE_URL"))
  const provided = yield* provide("postgres", sql, notifications, faults)
  yield* Metric.update(connectionsMax, PostgresDatabase.poolSize * (1 + nodes.all.length))
  return Context.add(provided, Nodes.Nodes, nodes)
})

/** What is wrong between the service and a database that answers, in sentences. */
interface Faults {
  /** The service does not work. */
  readonly pooler?: string | undefined
  /** The service works, but slower. */
  readonly listening?: string | undefined
}

/** Looks for a pooler that breaks the service, at the start and every minute, and logs what it finds. */
const watchPoolers = Effect.fnUntraced(function* (sql: PgClient.PgClient) {
  let found: Faults = {}
  const notice = (kind: keyof Faults) => (fault: string | undefined) =>
    Effect.suspend(() => {
      const isNew = fault !== undefined && fault !== found[kind]
      found = { ...found, [kind]: fault }
      return isNew ? Effect.logError(fault) : Effect.void
    })
  const checked = yield* Deferred.make<void>()
  yield* PostgresDatabase.poolerFault(sql).pipe(
    Effect.timeout("5 seconds"),
    Effect.flatMap(notice("pooler")),
    Effect.catchCause((cause) => Effect.logDebug("Cannot look for a pooler", cause)),
    Effect.ensuring(Deferred.succeed(checked, undefined)),
    Effect.repeat(Schedule.spaced("1 minute")),
    Effect.forkScoped,
  )
  return { faults: Effect.map(Deferred.await(checked), () => found), listening: notice("listening") }
})

const provide = Effect.fnUntraced(function* (
  kind: "postgres" | "embedded",
  sql: PgClient.PgClient,
  notifications: Notifications.Notifications["Service"],
  faults: Effect.Effect<Faults> = Effect.succeed({}),
) {
  yield* Metric.update(connectionsMax, kind === "postgres" ? PostgresDatabase.poolSize : 1)
  const compare = yield* Migrations.makeCompare
  const notReady = new Unavailable({
    error: "The database does not answer, or its migrations are not applied.",
  })
  // A standby sets this in every transaction, too.
  const writable = Effect.map(
    sql<{ writable: boolean }>`SELECT current_setting('transaction_read_only') = 'off' AS writable`,
    ([row]) => ({ writable: row!.writable }),
  )
  const query = compare.pipe(
    Effect.provideService(SqlClient.SqlClient, sql),
    Effect.filterOrFail(
      ({ fault }) => fault === undefined,
      ({ fault }) => new Unavailable({ error: `${fault}.` }),
    ),
    // A newer database is ready: a replica of the next version may have migrated it.
    Effect.filterOrFail(({ applied, known }) => applied >= known),
    Effect.andThen(writable),
    Effect.timeout("2 seconds"),
  )
  const ready = Effect.gen(function* () {
    const { listening, pooler } = yield* faults
    if (pooler !== undefined) return yield* new Unavailable({ error: pooler })
    // Detached, because interrupting a query on a dead connection takes longer than its deadline.
    const state = yield* Effect.flatMap(Effect.forkDetach(query), Fiber.join)
    return { ...state, ...(listening === undefined ? {} : { warning: listening }) }
  }).pipe(
    Effect.timeout("2 seconds"),
    Effect.tapCause((cause) => Effect.logDebug("Not ready", cause)),
    Effect.catchIf(
      (error) => !(error instanceof Unavailable),
      () => Effect.fail(notReady),
    ),
    Effect.catchDefect(() => Effect.fail(notReady)),
  )
  return Context.make(Database, Database.of({ kind, ready })).pipe(
    Context.add(PgClient.PgClient, sql),
    Context.add(SqlClient.SqlClient, sql),
    Context.add(Notifications.Notifications, notifications),
  )
})

/** Turns an SQL error into a `StartupError` that names the variable of the database. */
const cannotStart =
  (variable: "DATABASE_URL" | "DATA_DIR") =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.mapError(effect, (error) =>
      SqlError.isSqlError(error)
        ? new StartupError({
            message: `Cannot use the database of ${variable}: ${PostgresDatabase.describeSqlError(error)}. Correct ${variable}, or run gatehouse doctor`,
            cause: error,
          })
        : (error as Exclude<E, SqlError.SqlError>),
    )

/** The service is ready if the database is. */
export const readiness = Layer.effect(
  Readiness,
  Effect.map(Database, ({ ready }) => Readiness.of({ check: ready })),
)

/** The size of a database, in bytes. PostgreSQL adds up the sizes of its files. */
export const databaseBytes = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ bytes: number }>`SELECT pg_database_size(current_database())::float8 AS bytes`,
    ([row]) => row!.bytes,
  )

export const databaseSize = Layer.effect(
  DatabaseSize,
  Effect.map(Effect.all([SqlClient.SqlClient, Nodes.Nodes]), ([sql, nodes]) =>
    DatabaseSize.of({
      bytes: Effect.map(
        Nodes.everywhere(sql, nodes, (one) => orUnavailable(databaseBytes(one))),
        (sizes) => sizes.reduce((sum, bytes) => sum + bytes, 0),
      ),
    }),
  ),
)
