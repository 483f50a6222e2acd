import { PgClient, PgConnection } from "@effect/sql-pg"
import { Context, Duration, Effect, Exit, Fiber, Redacted, Schedule, Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import { withBoundedTransactions } from "../boundedTransactions.ts"
import { atNode } from "../DatabaseUrl.ts"
import { keepAliveInitialDelay, poolConfig } from "../PostgresDatabase.ts"
import { Shard, shardParameters, type DistributedClient, makeShards, schemaOf } from "../shards.ts"
import { type Node, placements } from "./placements.ts"
import * as SessionFunctions from "./sessionFunctions.ts"

/** Limit of the connections to one shard. All shards together use one for each operation in flight. */
const maxConnectionsOfShard = 4
/** How long a connection to a shard stays open without use. */
const idleTimeout = "60 seconds"
/** How often the process reads on which node each shard is. It changes when an operator moves a shard. */
const placementInterval = Schedule.spaced("5 seconds")
/** How long statements that began before a move may still use the connections to the former node. */
const drainTime = "30 seconds"

type Reserve = Effect.Effect<SqlConnection.Connection, SqlError.SqlError, Scope.Scope>

interface Place {
  readonly node: Node
  readonly reserve: Reserve
  readonly scope: Scope.Closeable
}

/** The URL of a node: that of the coordinator with the node's address. */
export const urlOf = (url: Redacted.Redacted<string>, node: Node) =>
  node === "coordinator" ? url : Redacted.make(atNode(Redacted.value(url), node))

const nameOf = (node: Node) => (node === "coordinator" ? node : `${node.host}:${node.port}`)

/** The watches of the nodes that have shards. */
const makeWatches = Effect.fnUntraced(function* (url: Redacted.Redacted<string>) {
  const parent = yield* Effect.scope
  const watches = new Map<string, { readonly watch: NodeWatch; readonly scope: Scope.Closeable }>()
  return {
    /** The watch of a node, which starts with the first call. */
    of: Effect.fnUntraced(function* (node: Exclude<Node, "coordinator">) {
      const known = watches.get(nameOf(node))
      if (known !== undefined) return known.watch
      const scope = yield* Scope.fork(parent)
      const watch = yield* nodeWatch(urlOf(url, node), node).pipe(Scope.provide(scope))
      watches.set(nameOf(node), { watch, scope })
      return watch
    }),

    /** Ends the watches of other nodes. */
    keep: (nodes: ReadonlyArray<Node>) => {
      const names = new Set(nodes.map(nameOf))
      const others = [...watches].filter(([name]) => !names.has(name))
      return Effect.forEach(others, ([name, { scope }]) => {
        watches.delete(name)
        return Scope.close(scope, Exit.void)
      })
    },
  }
})

/** The pools of the shards, each on the node that holds the shard. They open connections when they are used. */
const makePlaces = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  platform: PgClient.PgClient,
  count: number,
  direct: boolean,
) {
  const reactivity = yield* Reactivity.Reactivity
  const parent = yield* Effect.scope
  const watches = yield* makeWatches(url)
  const open = Effect.fnUntraced(function* (shard: number, node: Node) {
    const scope = yield* Scope.fork(parent)
    const watch = node === "coordinator" ? undefined : yield* watches.of(node)
    const parameters = { search_path: schemaOf(shard), ...shardParameters }
    const { reserve } = yield* PgClient.make({
      ...(yield* poolConfig(urlOf(url, node), parameters, watch?.open)),
      minConnections: 0,
      maxConnections: maxConnectionsOfShard,
      idleTimeout,
    }).pipe(Scope.provide(scope), Effect.provideService(Reactivity.Reactivity, reactivity))
    return {
      node,
      scope,
      reserve: watch === undefined ? reserve : Effect.andThen(watch.check, reserve),
    } satisfies Place
  })
  const find = direct
    ? Effect.provideService(placements(count), SqlClient.SqlClient, platform)
    : Effect.succeed(Array.from({ length: count }, (): Node => "coordinator"))
  const places = yield* Effect.flatMap(find, (nodes) => Effect.forEach(nodes, (node, shard) => open(shard, node)))

  const follow = Effect.gen(function* () {
    const nodes = yield* find
    for (const [shard, node] of nodes.entries()) {
      const before = places[shard]!
      if (nameOf(node) === nameOf(before.node)) continue
      places[shard] = yield* open(shard, node)
      yield* Effect.forkIn(Effect.delay(Scope.close(before.scope, Exit.void), drainTime), parent)
    }
    yield* watches.keep(nodes)
  }).pipe(Effect.catchCause((cause) => Effect.logDebug("Cannot look where the shards are", cause)))
  if (direct) yield* Effect.forkScoped(Effect.repeat(follow, placementInterval))
  return places
})

/**
 * The client of a distributed database. Statements of a fiber with a shard go to the node that holds it, on a
 * connection whose search_path is the shard's schema, so that the statements are the same as on one PostgreSQL and
 * their plans stay. All others go to the coordinator.
 */
export const make = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  platform: PgClient.PgClient,
  count: number,
  { direct = true }: { readonly direct?: boolean } = {},
) {
  const places = yield* makePlaces(url, platform, count, direct)
  const functions = SessionFunctions.make()
  const reserve: Reserve = Effect.withFiber(({ context }) => {
    const shard = Context.get(context, Shard)
    return shard === undefined ? platform.reserve : Effect.map(places[shard]!.reserve, functions.connection)
  })
  // A transaction of the platform may have statements in shards, too.
  const reserveForTransaction: Reserve = Effect.withFiber(({ context }) => {
    const shard = Context.get(context, Shard)
    return functions.beforeTransaction(shard === undefined ? platform.reserve : places[shard]!.reserve)
  })
  const client = yield* SqlClient.make({
    driver: "pg",
    acquirer: reserve,
    borrower: (f) => Effect.scoped(Effect.flatMap(reserve, f)),
    transactionAcquirer: reserveForTransaction,
    compiler: PgClient.makeCompiler(),
    spanAttributes: [["db.system.name", "postgresql"]],
  })
  const { [PgClient.TypeId]: typeId, config, json, listen, notify } = platform
  const distributed: PgClient.PgClient & DistributedClient = Object.assign(withBoundedTransactions(client), {
    [PgClient.TypeId]: typeId,
    config,
    json,
    listen,
    notify,
    shards: makeShards(count),
    functions,
  })
  return distributed
})

/** The pause between two heartbeats of a node. */
const heartbeatInterval = Duration.millis(500)
/**
 * A node that sends nothing for twice this time is silent. Once is not enough: a busy process may not have read the
 * response to its heartbeat yet.
 */
const halfSilence = Duration.millis(750)

/** A worker node, watched by a heartbeat on a connection of its own. */
interface NodeWatch {
  /** Opens a socket to the node. It is destroyed when the node falls silent. Throws while the node is silent. */
  readonly open: () => Socket
  /** Fails at once while the node is silent, so that nobody waits for it. */
  readonly check: Effect.Effect<void, SqlError.SqlError>
}

/**
 * Watches a node until the scope closes. When the node does not answer, although it neither refuses nor closes
 * connections, all sockets to it are destroyed: what waits for the node fails then, and holds up nobody else.
 *
 * @param url the URL of the database on the node
 */
export const nodeWatch = Effect.fnUntraced(function* (
  url: Redacted.Redacted<string>,
  node: Exclude<Node, "coordinator">,
) {
  const name = `${node.host}:${node.port}`
  const silence = new Error(`The node ${name} does not answer`)
  const sockets = new Set<Socket>()
  let isSilent = false

  const open = () => {
    const socket = connect({ ...node, noDelay: true, keepAlive: true, keepAliveInitialDelay })
    sockets.add(socket)
    socket.once("close", () => sockets.delete(socket))
    return socket
  }
  const fallSilent = Effect.suspend(() => {
    const isNew = !isSilent
    isSilent = true
    for (const socket of sockets) socket.destroy(silence)
    return isNew ? Effect.logWarning(`${silence.message}; its shards are unavailable until it does`) : Effect.void
  })
  const answered = Effect.suspend(() => {
    if (!isSilent) return Effect.void
    isSilent = false
    return Effect.logInfo(`The node ${name} answers again`)
  })
  /** Sends a heartbeat. Any response counts, and so does a refused connection: statements fail at once then. */
  const ask = <A, E, R>(question: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      let isLate = false
      const watchdog = yield* Effect.sleep(halfSilence).pipe(
        Effect.andThen(Effect.sleep(halfSilence)),
        Effect.andThen(Effect.sync(() => (isLate = true))),
        Effect.andThen(fallSilent),
        Effect.forkChild,
      )
      const exit = yield* Effect.exit(question)
      if (!isLate) yield* Effect.andThen(Fiber.interrupt(watchdog), answered)
      return yield* exit
    })

  const heartbeat = Effect.gen(function* () {
    const config = yield* poolConfig(url, {}, open)
    const connection = yield* ask(PgConnection.make({ ...config, applicationName: "gatehouse heartbeat" }))
    yield* Effect.repeat(ask(connection.query("SELECT 1")), Schedule.spaced(heartbeatInterval))
  }).pipe(Effect.scoped, Effect.exit, Effect.tap(logFailure(name)))
  yield* Effect.forkScoped(Effect.repeat(heartbeat, Schedule.spaced(heartbeatInterval)))

  return {
    open: () => {
      if (isSilent) throw silence
      return open()
    },
    check: Effect.suspend(() => (isSilent ? Effect.fail(silent(silence)) : Effect.void)),
  } satisfies NodeWatch
})

const logFailure = (name: string) => (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit) ? Effect.logDebug(`The heartbeat of the node ${name} failed`, exit.cause) : Effect.void

const silent = (cause: Error) =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause, message: cause.message, operation: "reserve" }),
  })
