import { PgClient, PgConnection } from "@effect/sql-pg"
import { Context, Deferred, Effect, Exit, Fiber, Queue, Random, RcRef, Redacted, Result, Schedule, Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { withBoundedTransactions } from "./boundedTransactions.ts"
import { parseDatabaseUrl } from "./DatabaseUrl.ts"
import { type ListenOptions, Notification, type Subscribe } from "./Notifications.ts"
import { planSettings } from "./planSettings.ts"
import { isUnknownIssuer } from "../net/transportFault.ts"

/** Opens the sockets of connections. Default: the driver does. A simulation has its own network. */
export const OpenSocket = Context.Reference<(() => Socket) | undefined>(
  "gatehouse/infrastructure/database/PostgresDatabase/OpenSocket",
  { defaultValue: () => undefined },
)

/** The configuration of a connection: address, certificates and names. */
const connection = (url: Redacted.Redacted<string>, applicationName: string) =>
  Effect.flatMap(OpenSocket, (open) => {
    const address = parseDatabaseUrl(Redacted.value(url))
    if (Result.isFailure(address)) return Effect.fail(connectionError(`The URL ${address.failure}`, "connect"))
    const { config, negotiate } = address.success
    const { host, port } = config
    const stream =
      negotiate === undefined
        ? open
        : () =>
            negotiate(open ?? (() => connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay })))
    return Effect.succeed({
      ...config,
      ...(stream === undefined ? {} : { stream }),
      applicationName,
      connectTimeout: "4 seconds",
      keepAlive: keepAliveInitialDelay,
    } satisfies PgConnection.Config)
  })

/** Of an idle connection, in milliseconds. */
const keepAliveInitialDelay = 5_000

/** Limit of the connections of requests and workers together. */
export const poolSize = 10

/**
 * The connection pool of requests and workers. It is not multiplexed: each connection carries one statement, so the
 * deadline of an operation also closes a dead connection, and a slow statement delays no other.
 */
export const client = (url: Redacted.Redacted<string>) =>
  Effect.flatMap(poolConfig(url), (config) =>
    Effect.map(PgClient.make({ ...config, minConnections: 1, maxConnections: poolSize }), withBoundedTransactions),
  )

/** The pool of a node, as `client`. Opens connections when they are used: the service starts without the node. */
export const nodeClient = (url: Redacted.Redacted<string>) =>
  Effect.flatMap(poolConfig(url), (config) =>
    Effect.map(PgClient.make({ ...config, minConnections: 0, maxConnections: poolSize }), withBoundedTransactions),
  )

/** The configuration of each connection of a pool. */
const poolConfig = (url: Redacted.Redacted<string>) =>
  Effect.map(connection(url, "gatehouse"), (config) => ({
    ...config,
    startupParameters: {
      // Milliseconds. Releases the locks of a replica that disappeared.
      idle_in_transaction_session_timeout: "10000",
      ...planSettings,
    },
  }))

/** The client of migrations: one connection, without a limit on transactions. */
export const migrationClient = (url: Redacted.Redacted<string>) =>
  Effect.flatMap(connection(url, "gatehouse migrations"), PgClient.makeClient)

/** The pool of a relay of the outbox, in the database of somebody else. */
export const outboxClient = (url: Redacted.Redacted<string>, maxConnections: number) =>
  Effect.flatMap(connection(url, "gatehouse outbox"), (config) =>
    PgClient.make({ ...config, minConnections: 0, maxConnections }),
  ).pipe(Effect.provide(Reactivity.layer))

/** What a pooler between this service and PostgreSQL breaks, in sentences for the operator. */
const poolerFaults = {
  statements:
    "DATABASE_URL is the address of a pooler in transaction mode that keeps no prepared statements: use PgBouncer 1.21 or later with max_prepared_statements = 200, or PostgreSQL itself. See docs/scaling.md",
  parameters:
    "The pooler of DATABASE_URL refuses startup parameters: set its ignore_startup_parameters. See docs/scaling.md",
  settings:
    "The sessions of DATABASE_URL do not have the planner settings of the service, which a pooler drops. Set them with ALTER DATABASE. See docs/scaling.md",
} as const

/**
 * Looks for a pooler that breaks the service: one that drops the settings of sessions, or that runs the statements of a
 * connection in several sessions without its prepared statements. One that keeps them gives them names of its own.
 * Returns what is wrong, or `undefined`. Uses two connections of the pool.
 */
export const poolerFault = (sql: PgClient.PgClient) =>
  Effect.gen(function* () {
    const [one, other] = [yield* sql.reserve, yield* sql.reserve]
    const session = Effect.map(
      one.executeUnprepared("SELECT pg_backend_pid() AS pid", [], undefined),
      ([row]) => (row as { readonly pid: number }).pid,
    )
    // Not a transaction: its rollback would wait for a dead connection for ever.
    const occupy = other.executeUnprepared("SELECT pg_sleep(0.03)", [], undefined)
    const changes = Effect.gen(function* () {
      const first = yield* session
      // The sleep takes the session that the first statement has left to the pooler.
      const [, second] = yield* Effect.all([occupy, session], { concurrency: 2 })
      return first !== second
    })
    // Another client may have taken it first.
    const isShared = yield* Effect.repeat(changes, { until: (isShared) => isShared, times: 2 })
    const [state] = (yield* one.execute(sessionState, [], undefined)) as ReadonlyArray<{
      readonly settings: Readonly<Record<string, string>>
      readonly renamed: boolean
    }>
    if (isShared && !state!.renamed) return poolerFaults.statements
    const isSet = Object.entries(planSettings).every(([name, value]) => state!.settings[name] === value)
    return isSet ? undefined : poolerFaults.settings
  }).pipe(
    Effect.scoped,
    Effect.catch((error) =>
      describeSqlError(error).startsWith("unsupported startup parameter")
        ? Effect.succeed(poolerFaults.parameters)
        : Effect.fail(error),
    ),
  )

/** A prepared statement: the settings of its session, and whether its name there is not that of the driver. */
const sessionState = `
  SELECT json_object_agg(name, setting) AS settings, EXISTS (
      SELECT FROM pg_prepared_statements WHERE statement LIKE '%AS renamed%' AND name NOT LIKE 'effect%'
    ) AS renamed
  FROM pg_settings WHERE name IN (${Object.keys(planSettings)
    .map((name) => `'${name}'`)
    .join(", ")})`

const probeChannel = "gatehouse_probe"

const connectionError = (message: string, operation: string) =>
  new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error(message), message, operation }) })

/** The payload of every proof begins with this; then the id of the listener and the time follow. */
const proofMark = "gatehouse proof "

/** The notification of a payload; none for the proof of another listener. */
const notificationOf = (payload: string, proof: string) => {
  if (payload.startsWith(proof)) return Notification.Proof({ sentAt: Number(payload.slice(proof.length)) })
  return payload.startsWith(proofMark) ? undefined : Notification.Message({ payload })
}

interface Listener {
  readonly connection: PgConnection.PgConnection
  /** Proofs of this listener begin with this. */
  readonly proof: string
  /** The channels that get proofs. */
  readonly proven: Set<string>
  /** Fails when the connection may be dead. */
  readonly lost: Effect.Effect<never, SqlError.SqlError>
}

const deaf =
  "Notifications do not arrive; LISTEN_URL, or DATABASE_URL without it, must not be the address of a transaction pooler or of another database"

/** Is told whether notifications arrive: `undefined`, or what is wrong. */
type Noticed = (fault: string | undefined) => Effect.Effect<void>

/** Opens a connection in the scope, and checks that it receives a notification of another connection. */
const openListening = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  sql: SqlClient.SqlClient,
  scope: Scope.Scope,
  noticed: Noticed,
) {
  const pinned = yield* connection(url, "gatehouse notifications").pipe(
    Effect.flatMap(PgConnection.make),
    Effect.flatMap((unpinned) => unpinned.pin),
    Scope.provide(scope),
  )
  // Behind a transaction pooler LISTEN succeeds, but no notification ever arrives.
  const probes = yield* pinned.listen(probeChannel)
  const probe = String(yield* Random.nextInt)
  yield* sql`SELECT pg_notify(${probeChannel}, ${probe})`
  yield* Effect.repeat(Queue.take(probes), { until: ({ payload }) => payload === probe }).pipe(
    Effect.timeoutOrElse({
      duration: "3 seconds",
      orElse: () => Effect.andThen(noticed(deaf), Effect.fail(connectionError(deaf, "listen"))),
    }),
  )
  yield* noticed(undefined)
  return { pinned, probes }
})

/** A connection for LISTEN. Twice a second its heartbeat sends a proof to each channel that wants one. */
const listener = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  sql: SqlClient.SqlClient,
  noticed: Noticed,
) {
  // A scope of its own: closing it breaks the connection and fails the queries on it.
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const disconnect = Scope.close(scope, Exit.void)
  const { pinned, probes } = yield* openListening(url, sql, scope, noticed).pipe(
    Effect.timeoutOrElse({
      duration: "5 seconds",
      orElse: () => Effect.fail(connectionError("The connection for LISTEN did not open within 5 seconds", "listen")),
    }),
    Effect.onError(() => disconnect),
  )
  // Added last, so it runs first: an UNLISTEN on a dead connection would not end.
  yield* Effect.addFinalizer(() => disconnect)

  const ended = yield* Deferred.make<never, SqlError.SqlError>()
  const proof = `${proofMark}${yield* Random.nextInt} `
  const proven = new Set<string>()
  const heartbeat = Effect.gen(function* () {
    // The time before the query: what was committed before it arrives before the proof.
    const payload = `${proof}${yield* monotonicMillis}`
    // Detached, because interrupting a query waits for its answer.
    const query = yield* Effect.forkDetach(
      pinned.query("SELECT pg_notify(channel, $1) FROM unnest($2::text[]) AS channel", [payload, [...proven]]),
    )
    yield* Fiber.join(query).pipe(
      Effect.timeoutOrElse({
        duration: "4 seconds",
        orElse: () => Effect.fail(connectionError("The connection did not answer a heartbeat for 4 seconds", "listen")),
      }),
    )
  })
  yield* Effect.raceFirst(
    Effect.repeat(heartbeat, Schedule.spaced("500 millis")),
    Effect.forever(Queue.take(probes)),
  ).pipe(
    Effect.catchCause((cause) => Effect.andThen(Deferred.failCause(ended, cause), disconnect)),
    Effect.forkScoped,
  )
  return { connection: pinned, proof, proven, lost: Deferred.await(ended) }
})

/** Listens to channels over one connection, which opens with the first channel and is shared by all. */
export const subscriptions: (
  url: Redacted.Redacted<string>,
  sql: SqlClient.SqlClient,
  noticed?: Noticed,
) => Effect.Effect<Subscribe<SqlError.SqlError>, never, Scope.Scope> = Effect.fn("PostgresDatabase.subscriptions")(
  function* (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient, noticed: Noticed = () => Effect.void) {
    const shared: RcRef.RcRef<Listener, SqlError.SqlError> = yield* RcRef.make({ acquire: listener(url, sql, noticed) })
    return Effect.fnUntraced(function* (channel: string, { proofs = false }: ListenOptions) {
      const { connection, lost, proof, proven } = yield* RcRef.get(shared)
      const notifications = yield* connection.listen(channel)
      if (proofs) proven.add(channel)
      const next = Queue.take(notifications).pipe(
        Effect.map(({ payload }) => notificationOf(payload, proof)),
        Effect.repeat({ until: (notification) => notification !== undefined }),
      )
      return Effect.raceFirst(next, lost).pipe(
        // The next subscription opens a new connection.
        Effect.tapError(() => RcRef.invalidate(shared)),
      )
    })
  },
)

/** The message of the database or of the connection to it. */
export const describeSqlError = (error: SqlError.SqlError) => {
  const { code, message } = error.reason.cause as { readonly code?: string; readonly message?: string }
  return isUnknownIssuer(code)
    ? `${message}; sslrootcert in the URL names the file of a private CA`
    : message || code || error.message
}
