import { PgClient, PgConnection } from "@effect/sql-pg"
import { Deferred, Effect, Exit, Fiber, Queue, Random, RcRef, Redacted, Schedule, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import { SqlError } from "effect/sql"
import type { Subscribe } from "./Notifications.ts"
import { planSettings } from "./planSettings.ts"

const connection = (url: Redacted.Redacted<string>, applicationName: string): PgConnection.Config => ({
  url,
  ...placeOf(new URL(Redacted.value(url))),
  applicationName,
  connectTimeout: "4 seconds",
  keepAlive: "5 seconds",
})

/**
 * Where the database is, for its spans: of a url alone they would tell PostgreSQL's defaults. What is encoded is left to
 * the driver.
 */
const placeOf = ({ hostname, pathname, port }: URL) => ({
  ...(/^[\w.-]+$/.test(hostname) ? { host: hostname } : {}),
  ...(port === "" ? {} : { port: Number(port) }),
  ...(/^\/[^%]+$/.test(pathname) ? { database: pathname.slice(1) } : {}),
})

/** How many connections the pool of requests and workers opens at most. */
export const poolSize = 10

/**
 * The client of requests and workers: a pool. Not multiplexed: a connection that carries one statement can be given up
 * with it, so the time-out of a repository's operation also ends a connection gone silent, and a slow statement holds
 * up no other.
 */
export const client = (url: Redacted.Redacted<string>) =>
  PgClient.make({
    ...connection(url, "gatehouse"),
    minConnections: 1,
    maxConnections: poolSize,
    startupParameters: {
      // Lets go of what a replica that is gone without a word has locked.
      idle_in_transaction_session_timeout: "10000",
      ...planSettings,
    },
  })

/** The client of migrations: one connection, transactions as long as they take. */
export const migrationClient = (url: Redacted.Redacted<string>) =>
  PgClient.makeClient(connection(url, "gatehouse migrations"))

const PROBE = "gatehouse_probe"

const lost = (message: string) =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause: new Error(message), message, operation: "listen" }),
  })

interface Listener {
  readonly connection: PgConnection.PgConnection
  /** Fails when the connection is not certainly alive any more. */
  readonly lost: Effect.Effect<never, SqlError.SqlError>
}

/** Opens a connection in the scope, and proves that it hears what another one says. */
const hearing = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  sql: SqlClient.SqlClient,
  scope: Scope.Scope,
) {
  const pinned = yield* PgConnection.make(connection(url, "gatehouse notifications")).pipe(
    Effect.flatMap((unpinned) => unpinned.pin),
    Scope.provide(scope),
  )
  // Behind a pooler that lends connections by the transaction, LISTEN succeeds and nothing is ever heard.
  const probes = yield* pinned.listen(PROBE)
  const probe = String(yield* Random.nextInt)
  yield* sql`SELECT pg_notify(${PROBE}, ${probe})`
  yield* Effect.repeat(Queue.take(probes), { until: ({ payload }) => payload === probe })
  return { pinned, probes }
})

/** A connection for listening, which is asked for a sign of life every second. */
const listener = Effect.fnUntraced(function* (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient) {
  // A scope of its own: to close it breaks the connection, and with it whatever still waits for an answer on it.
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const sever = Scope.close(scope, Exit.void)
  const { pinned, probes } = yield* hearing(url, sql, scope).pipe(
    Effect.timeoutOrElse({
      duration: "5 seconds",
      orElse: () =>
        Effect.fail(lost("Notifications do not arrive; DATABASE_URL must not lead to a transaction pooler")),
    }),
    Effect.onError(() => sever),
  )
  // Added last, so done first: an UNLISTEN on a connection gone silent would not end.
  yield* Effect.addFinalizer(() => sever)

  const ended = yield* Deferred.make<never, SqlError.SqlError>()
  const signOfLife = Effect.gen(function* () {
    // Detached: interrupting a query waits for its answer, and this one is given up to know at once.
    const query = yield* Effect.forkDetach(pinned.query("SELECT 1"))
    yield* Fiber.join(query).pipe(
      Effect.timeoutOrElse({ duration: "4 seconds", orElse: () => Effect.fail(lost("No sign of life for 4 seconds")) }),
    )
  })
  yield* Effect.raceFirst(
    Effect.repeat(signOfLife, Schedule.spaced("1 second")),
    Effect.forever(Queue.take(probes)),
  ).pipe(
    Effect.catchCause((cause) => Effect.andThen(Deferred.failCause(ended, cause), sever)),
    Effect.forkScoped,
  )
  return { connection: pinned, lost: Deferred.await(ended) }
})

/** Hears channels over one connection of its own, which is opened with the first of them and shared by all. */
export const subscriptions: (
  url: Redacted.Redacted<string>,
  sql: SqlClient.SqlClient,
) => Effect.Effect<Subscribe<SqlError.SqlError>, never, Scope.Scope> = Effect.fn("PostgresDatabase.subscriptions")(
  function* (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient) {
    const shared: RcRef.RcRef<Listener, SqlError.SqlError> = yield* RcRef.make({ acquire: listener(url, sql) })
    return Effect.fnUntraced(function* (channel: string) {
      const { connection, lost } = yield* RcRef.get(shared)
      const notifications = yield* connection.listen(channel)
      const next = Effect.map(Queue.take(notifications), ({ payload }) => payload)
      return Effect.raceFirst(next, lost).pipe(
        // Who comes back first is not to be given the lost one again.
        Effect.tapError(() => RcRef.invalidate(shared)),
      )
    })
  },
)
