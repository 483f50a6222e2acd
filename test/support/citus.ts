import { Effect, Layer, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlError } from "effect/sql"
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import { schemaOf } from "../../src/infrastructure/database/shards.ts"
import * as Distribute from "../../src/infrastructure/database/citus/distribute.ts"
import { placements } from "../../src/infrastructure/database/citus/placements.ts"
import * as PostgresDatabase from "../../src/infrastructure/database/PostgresDatabase.ts"
import * as Migrations from "../../src/infrastructure/database/Migrations.ts"
import { Database } from "../../src/infrastructure/database/Database.ts"
import { adminClient, inDatabase } from "./databases.ts"

/**
 * A database on the coordinator of a Citus cluster, with the extension and the workers; unset: the tests on Citus are
 * skipped.
 */
export const citusUrl = process.env.CITUS_URL

/**
 * The shards of a test's database. Suites over one port have one: what they promise over all orgs holds of a shard.
 * Servers have three.
 */
type Kind = "one" | "three"
const shardCounts = { one: 1, three: 3 } as const

/** The URLs of the coordinator and of the workers, the coordinator first. */
const nodeUrls = Effect.fnUntraced(function* (url: string) {
  const admin = yield* adminClient(url)
  const nodes = yield* admin<{ host: string; port: number }>`
    SELECT nodename AS host, nodeport AS port FROM pg_dist_node WHERE groupid <> 0 AND noderole = 'primary' ORDER BY nodeid`
  return [
    url,
    ...nodes.map(({ host, port }) => {
      const node = new URL(url)
      node.hostname = host
      node.port = String(port)
      return node.href
    }),
  ]
})

type Statement = (admin: SqlClient.SqlClient) => Effect.Effect<unknown, SqlError.SqlError>

const onEach = Effect.fnUntraced(function* (urls: ReadonlyArray<string>, statement: Statement) {
  yield* Effect.forEach(urls, (url) => Effect.scoped(Effect.flatMap(adminClient(url), statement)), { concurrency: 3 })
})

const client = (url: string) =>
  Layer.effect(SqlClient.SqlClient, PostgresDatabase.migrationClient(Redacted.make(url))).pipe(
    Layer.provide(Reactivity.layer),
  )

/** The distributed database that fresh ones are copied from. */
const templateOf = (kind: Kind) => `gatehouse_citus_template_${kind}`

/** Drops a database on every node. On a busy machine the maintenance of Citus leaves it only after a while. */
const dropOnEach = (urls: ReadonlyArray<string>, name: string) =>
  Effect.retry(
    onEach(urls, (admin) => admin`DROP DATABASE IF EXISTS ${admin(name)} WITH (FORCE)`),
    { times: 5 },
  )

/** Creates a migrated database on every node, which knows the others. Returns its URLs, the coordinator's first. */
const createDatabase = Effect.fn("createDatabase")(function* (name: string) {
  const urls = yield* nodeUrls(citusUrl!)
  yield* dropOnEach(urls, name)
  yield* onEach(urls, (admin) => admin`CREATE DATABASE ${admin(name)}`)
  const databases = urls.map((node) => inDatabase(node, name))
  yield* onEach(databases, (admin) => admin`CREATE EXTENSION citus`)
  const [coordinator, ...workers] = databases
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { hostname, port } = new URL(coordinator!)
    yield* sql`SELECT citus_set_coordinator_host(${hostname}, ${Number(port || 5432)}::int)`
    for (const worker of workers) {
      const { hostname, port } = new URL(worker)
      yield* sql`SELECT citus_add_node(${hostname}, ${Number(port)}::int)`
    }
    yield* Migrations.migrate
  }).pipe(Effect.provide(client(coordinator!)))
  return databases
})

const prepareTemplate = Effect.fn("prepareTemplate")(function* (kind: Kind) {
  const [coordinator] = yield* createDatabase(templateOf(kind))
  yield* Effect.flatMap(Distribute.plan(shardCounts[kind]), Distribute.distribute).pipe(
    Effect.provide(client(coordinator!)),
  )
})

/** Makes the templates. */
export const prepareCitus = Effect.forEach(["one", "three"] as const, (kind) => prepareTemplate(kind), {
  discard: true,
})

let made = 0
const newName = () => `test_${process.pid}_${process.env.VITEST_POOL_ID ?? 0}_${made++}`

const drop = (urls: ReadonlyArray<string>, name: string) => Effect.orDie(dropOnEach(urls, name))

/**
 * A new migrated database that is not distributed, dropped when the scope closes. Returns the URL of its coordinator.
 */
export const freshUndistributed = Effect.fn("freshUndistributed")(function* () {
  const urls = yield* nodeUrls(citusUrl!)
  const name = newName()
  const databases = yield* Effect.acquireRelease(createDatabase(name), () => drop(urls, name))
  return databases[0]!
})

/** A new distributed database, dropped when the scope closes. Gives the URLs of its nodes, the coordinator first. */
export const freshCitusNodes = Effect.fn("freshCitus")(function* (kind: Kind) {
  const urls = yield* nodeUrls(citusUrl!)
  const name = newName()
  const copy: Statement = (admin) =>
    // The maintenance of Citus is connected to the template, in which nothing else happens.
    Effect.andThen(
      admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${templateOf(kind)}`,
      admin`CREATE DATABASE ${admin(name)} TEMPLATE ${admin(templateOf(kind))}`,
    ).pipe(Effect.retry({ times: 20 }))
  yield* Effect.acquireRelease(onEach(urls, copy), () => drop(urls, name))
  return urls.map((url) => inDatabase(url, name))
})

/** `freshCitusNodes`; gives the URL of the coordinator. */
export const freshCitus = (kind: Kind) => Effect.map(freshCitusNodes(kind), ([coordinator]) => coordinator!)

/** Makes the database of a URL refuse connections. Those that it has stay. */
export const refuseConnections = Effect.fn("refuseConnections")(function* (url: string) {
  const name = new URL(url).pathname.slice(1)
  yield* Effect.scoped(
    Effect.flatMap(
      adminClient(inDatabase(url, "postgres")),
      (admin) => admin`ALTER DATABASE ${admin(name)} ALLOW_CONNECTIONS false`,
    ),
  )
})

/** Makes the database of a URL refuse connections, and ends those that it has. */
export const closeDatabase = Effect.fn("closeDatabase")(function* (url: string) {
  const name = new URL(url).pathname.slice(1)
  yield* refuseConnections(url)
  yield* Effect.scoped(
    Effect.gen(function* () {
      const admin = yield* adminClient(inDatabase(url, "postgres"))
      yield* admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${name}`
    }),
  )
})

/** Lets the database of a URL accept connections again. */
export const openDatabase = Effect.fn("openDatabase")(function* (url: string) {
  const name = new URL(url).pathname.slice(1)
  yield* Effect.scoped(
    Effect.flatMap(
      adminClient(inDatabase(url, "postgres")),
      (admin) => admin`ALTER DATABASE ${admin(name)} ALLOW_CONNECTIONS true`,
    ),
  )
})

/**
 * The program that stops and starts a node: `stop 9701`. Unset: the test's database there refuses connections instead.
 */
const nodeCommand = process.env["CITUS_NODE_COMMAND"]

const commandNode = (command: "stop" | "start", url: string) =>
  Effect.promise(() => promisify(execFile)(nodeCommand!, [command, new URL(url).port]))

/** Stops the node of a database. */
export const stopNode = (url: string) => (nodeCommand === undefined ? closeDatabase(url) : commandNode("stop", url))

/** Starts the node of a database that was stopped. */
export const startNode = (url: string) => (nodeCommand === undefined ? openDatabase(url) : commandNode("start", url))

/** The URL of the node that holds a shard. */
export const nodeOfShard = Effect.fn("nodeOfShard")(function* (coordinator: string, shard: number) {
  const nodes = yield* placements(shard + 1).pipe(Effect.provide(client(coordinator)))
  const node = nodes[shard]!
  if (node === "coordinator") return coordinator
  const url = new URL(coordinator)
  url.hostname = node.host
  url.port = String(node.port)
  return url.href
})

/** Moves a shard to the node of a URL, while it is used. */
export const moveShard = Effect.fn("moveShard")(function* (coordinator: string, shard: number, node: string) {
  const { hostname, port } = new URL(node)
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`SELECT citus_schema_move(${schemaOf(shard)}::text::regnamespace, ${hostname}, ${Number(port)}::int)`
  }).pipe(Effect.provide(client(coordinator)))
})

/** Tells a database that a node of it has the address of another URL. */
export const moveNode = Effect.fn("moveNode")(function* (coordinator: string, node: string, address: string) {
  const [from, to] = [new URL(node), new URL(address)]
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      SELECT citus_update_node(nodeid, ${to.hostname}, ${Number(to.port)}::int) FROM pg_dist_node
      WHERE nodename = ${from.hostname} AND nodeport = ${Number(from.port)}::int`
    yield* sql`SELECT start_metadata_sync_to_all_nodes()`
  }).pipe(Effect.provide(client(coordinator)))
})

/**
 * The backend of suites that also run on Citus, new and distributed wherever the layer is provided; none without
 * CITUS_URL.
 */
export const onCitus =
  citusUrl === undefined
    ? {}
    : {
        citus: Layer.unwrap(
          Effect.map(Effect.orDie(freshCitus("one")), (url) =>
            Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }),
          ),
        ),
      }
