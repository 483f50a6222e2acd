import { PgClient, PgConnection } from "@effect/sql-pg"
import { Effect, Queue, Random, RcRef, Redacted, Schedule, type Scope } from "effect"
import { SqlError } from "effect/sql"
import type { SqlClient } from "effect/sql/SqlClient"
import { connect, type Socket, type TcpNetConnectOpts } from "node:net"
import type { Subscribe } from "./Notifications.ts"

/** How long the server may work on one statement; it is told, so that a slow one ends there too. */
const STATEMENT_TIMEOUT_MS = 5_000
/** A statement is answered within the time above, so a connection silent for longer than this is lost. */
const SILENCE_SECONDS = 7

/** The client for requests and workers: a pool, each statement of which is bounded. */
export const client = (url: Redacted.Redacted<string>) =>
  PgClient.make({
    url,
    stream: () => watched(dial(url)),
    applicationName: "gatehouse",
    connectTimeout: "4 seconds",
    maxConnections: 10,
    minConnections: 1,
    multiplex: true,
    multiplexConcurrency: 8,
    startupParameters: {
      statement_timeout: String(STATEMENT_TIMEOUT_MS),
      // Locks of a replica that is gone without a word are let go.
      idle_in_transaction_session_timeout: "10000",
    },
  })

/** A client for migrations: one connection, statements as long as they take. */
export const unboundedClient = (url: Redacted.Redacted<string>) =>
  PgClient.makeClient({ url, applicationName: "gatehouse migrations", connectTimeout: "4 seconds", keepAlive: "5 seconds" })

/** The address in a PostgreSQL URL, as libpq reads it. */
const dial = (url: Redacted.Redacted<string>): Socket => {
  const { hostname, port, searchParams } = new URL(Redacted.value(url))
  const host = searchParams.get("host") ?? (decodeURIComponent(hostname).replace(/^\[(.*)\]$/, "$1") || "localhost")
  const number = Number(searchParams.get("port") ?? (port || 5432))
  const tcp: TcpNetConnectOpts = { host, port: number, noDelay: true, keepAlive: true, keepAliveInitialDelay: 5_000 }
  return connect(host.startsWith("/") ? { path: `${host}/.s.PGSQL.${number}` } : tcp)
}

/** Breaks a socket on which something was written and nothing has come back: TCP itself takes a quarter of an hour. */
const watched = (socket: Socket): Socket => {
  let read = 0
  let answered = 0
  let silent = 0
  const timer = setInterval(() => {
    if (socket.bytesRead !== read || socket.bytesWritten === answered) {
      read = socket.bytesRead
      answered = socket.bytesWritten
      silent = 0
    } else if (++silent >= SILENCE_SECONDS * 2) {
      socket.destroy(new Error(`The server has not answered for ${SILENCE_SECONDS} seconds`))
    }
  }, 500).unref()
  return socket.once("close", () => clearInterval(timer))
}

const PROBE = "gatehouse_probe"
const lost = (message: string) =>
  new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error(message), message, operation: "listen" }) })

/**
 * Hears channels over one connection of its own, opened with the first and shared. It is tried before it is trusted
 * (behind a pooler that hands out connections by the transaction, LISTEN succeeds and nothing is ever heard), and asked
 * for a sign of life every two seconds.
 */
export const subscriptions: (
  url: Redacted.Redacted<string>,
  sql: SqlClient,
) => Effect.Effect<Subscribe<SqlError.SqlError>, never, Scope.Scope> = Effect.fn("PostgresDatabase.subscriptions")(
  function* (url: Redacted.Redacted<string>, sql: SqlClient) {
    const connection: RcRef.RcRef<PgConnection.PgConnection, SqlError.SqlError> = yield* RcRef.make({
      acquire: Effect.gen(function* () {
        let socket: Socket | undefined
        const unpinned = yield* PgConnection.make({
          url,
          stream: () => (socket = dial(url)),
          applicationName: "gatehouse notifications",
          connectTimeout: "4 seconds",
        })
        const pinned = yield* unpinned.pin
        const probes = yield* pinned.listen(PROBE)
        const probe = String(yield* Random.nextInt)
        yield* sql`SELECT pg_notify(${PROBE}, ${probe})`
        yield* Queue.take(probes).pipe(
          Effect.repeat({ until: ({ payload }) => payload === probe }),
          Effect.timeoutOrElse({
            duration: "3 seconds",
            orElse: () => Effect.fail(lost("Notifications do not arrive; DATABASE_URL must not lead to a transaction pooler")),
          }),
        )
        // Breaking the socket is what ends a query that hangs; interrupting it would wait for the answer.
        const alive = Effect.raceFirst(
          pinned.query("SELECT 1"),
          Effect.andThen(
            Effect.delay(Effect.sync(() => socket?.destroy(new Error("No sign of life for 4 seconds"))), "4 seconds"),
            Effect.never,
          ),
        )
        yield* Effect.raceFirst(
          Effect.repeat(alive, Schedule.spaced("2 seconds")),
          Effect.forever(Queue.take(probes)),
        ).pipe(
          // The next to listen is not to be given this one.
          Effect.catchCause(() => RcRef.invalidate(connection)),
          Effect.forkScoped,
        )
        return pinned
      }),
    })
    return Effect.fnUntraced(function* (channel: string) {
      const listener = yield* RcRef.get(connection)
      const notifications = yield* listener.listen(channel)
      return Effect.map(Queue.take(notifications), ({ payload }) => payload)
    })
  },
)
