import { PgClient } from "@effect/sql-pg"
import { Clock, Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlError } from "effect/sql"

import * as Migrations from "../database/Migrations.ts"
import * as PostgresDatabase from "../database/PostgresDatabase.ts"
import { describeSqlError, poolConfig } from "../database/PostgresDatabase.ts"
import { schemaOf } from "../database/shards.ts"
import { urlOf } from "../database/citus/DistributedClient.ts"
import { type Distribution, distributionOf } from "../database/citus/placements.ts"
import { type Check, clockCheck, fail, ok, warn, inBytes } from "./Check.ts"
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
    const distribution = yield* database(distributionOf)
    const shards = distribution === null ? [] : yield* database(checkShards(url, distribution))
    // The other checks need every shard.
    const isComplete = migrations.complete && shards.every(({ state }) => state === "ok")
    const isDistributed = distribution !== null
    const stored = isComplete
      ? [
          ...(isDistributed ? yield* database(checkSizes) : []),
          yield* database(checkSecrets(keys, distribution?.shards)),
          yield* database(checkStorage(retentionDays, { isDistributed })),
        ]
      : []
    return [...server, migrations.check, notifications, ...shards, ...stored]
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannotBeUsed(describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannotBeUsed("no response within 20 seconds")]),
    }),
    Effect.provide(Reactivity.layer),
  )

interface ShardSize {
  readonly schema: string
  readonly node: string
  readonly bytes: number
}

/** The org with the most stored bytes of a shard. */
interface LargestOrg {
  readonly orgId: string
  /** Of the shard's stored bytes, from 0 to 1. */
  readonly share: number
}

/** Below this size of a node, in bytes, nothing needs to move. */
const smallNode = 10e9
/** A node with more than this part of the average, or a shard with more than this part of its node, is reported. */
const [unevenNode, largeShard] = [1.5, 0.5]

const sum = (sizes: ReadonlyArray<ShardSize>) => sizes.reduce((total, { bytes }) => total + bytes, 0)
const inPercent = (share: number) => `${Math.round(share * 100)} %`

/** The largest shard of a node, if it is a large part of it. */
const largeOf = (shards: ReadonlyArray<ShardSize>) => {
  const largest = shards.reduce((a, b) => (b.bytes > a.bytes ? b : a))
  return sum(shards) > smallNode && largest.bytes > sum(shards) * largeShard ? largest : undefined
}

/**
 * Warns of nodes that have much more than others, and of a shard that fills its node, with its largest org.
 *
 * @param nodes all nodes that may have shards
 */
export const sizeChecks = <E, R>(
  nodes: ReadonlyArray<string>,
  sizes: ReadonlyArray<ShardSize>,
  largestOrg: (schema: string) => Effect.Effect<LargestOrg | undefined, E, R>,
): Effect.Effect<ReadonlyArray<Check>, E, R> =>
  Effect.gen(function* () {
    const byNode = Map.groupBy(sizes, ({ node }) => node)
    const large = [...byNode.values()].flatMap((shards) => largeOf(shards) ?? [])
    const checks: Array<Check> = []
    for (const { bytes, node, schema } of large) {
      const org = yield* largestOrg(schema)
      const of = org === undefined ? "" : `; the org ${org.orgId} has ${inPercent(org.share)} of its stored bytes`
      checks.push(
        warn(
          "balance",
          `the shard ${schema} has ${inBytes(bytes)} of the ${inBytes(sum(byNode.get(node)!))} on ${node}${of}`,
          "one shard cannot be divided: move the other shards of the node with citus_schema_move, set limits for the org, " +
            "or use a larger server for the node",
        ),
      )
    }
    const total = sum(sizes)
    const uneven = nodes.find((node) => {
      const shards = byNode.get(node) ?? []
      // Moving helps unless the shard itself is the reason.
      const isFilled = large.some((shard) => shard.node === node)
      return !isFilled && sum(shards) > smallNode && sum(shards) > (total / nodes.length) * unevenNode
    })
    if (uneven !== undefined) {
      checks.push(
        warn(
          "balance",
          `the node ${uneven} has ${inBytes(sum(byNode.get(uneven)!))} of the ${inBytes(total)} on ${nodes.length} nodes`,
          "run SELECT citus_rebalance_start() on the coordinator, while the service runs",
        ),
      )
    }
    return checks.length > 0 ? checks : [ok("balance", `${inBytes(total)} on ${nodes.length} nodes`)]
  })

/** Reads the sizes of all shards, which asks every node. */
export const checkSizes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const nodes = yield* sql<{ node: string }>`
    SELECT nodename || ':' || nodeport AS node FROM pg_dist_node
    WHERE isactive AND shouldhaveshards AND noderole = 'primary'`
  const sizes = yield* sql<ShardSize>`
    SELECT n.nspname AS schema, s.nodename || ':' || s.nodeport AS node, sum(s.shard_size)::float8 AS bytes
    FROM citus_shards s
    JOIN pg_class c ON c.oid = s.table_name
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname LIKE 'gatehouse\\_b%' GROUP BY 1, 2`
  const largestOrg = (schema: string) =>
    Effect.map(
      sql<LargestOrg>`
        SELECT org_id AS "orgId", (stored_bytes / greatest(sum(stored_bytes) OVER (), 1))::float8 AS share
        FROM ${sql(`${schema}.org_usage`)} ORDER BY stored_bytes DESC LIMIT 1`,
      ([row]) => row,
    )
  return yield* sizeChecks(
    nodes.map(({ node }) => node),
    sizes,
    largestOrg,
  )
})

/** A shard, as the coordinator knows it. */
interface Schema {
  readonly schema: string
  /** Tables without a place on a node. */
  readonly plain: number
  /** The nodes that have its tables. */
  readonly nodes: ReadonlyArray<string>
}

const shown = 5
/** Some names, and how many more there are. */
const some = (names: ReadonlyArray<string>) =>
  names.slice(0, shown).join(", ") + (names.length > shown ? ` and ${names.length - shown} more` : "")

const readSchemas = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Schema>`
    SELECT n.nspname AS schema, count(DISTINCT c.oid) FILTER (WHERE shard.shardid IS NULL)::int AS plain,
      coalesce(json_agg(DISTINCT node.nodename || ':' || node.nodeport) FILTER (WHERE node.nodeid IS NOT NULL), '[]') AS nodes
    FROM pg_namespace n
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
    LEFT JOIN pg_dist_shard shard ON shard.logicalrelid = c.oid
    LEFT JOIN pg_dist_placement p ON p.shardid = shard.shardid
    LEFT JOIN pg_dist_node node ON node.groupid = p.groupid AND node.noderole = 'primary'
    WHERE n.nspname LIKE 'gatehouse\\_b%' GROUP BY 1 ORDER BY 1`,
)

/** Compares the shards that the service expects with those of the coordinator. */
export const placementChecks = (count: number, schemas: ReadonlyArray<Schema>): ReadonlyArray<Check> => {
  const found = new Map(schemas.map((schema) => [schema.schema, schema]))
  const all = Array.from({ length: count }, (_, shard) => schemaOf(shard))
  const missing = all.filter((name) => !found.has(name))
  const plain = all.filter((name) => (found.get(name)?.plain ?? 0) > 0)
  const split = all.filter((name) => (found.get(name)?.nodes.length ?? 0) > 1)
  const checks: Array<Check> = []
  if (missing.length > 0) {
    checks.push(
      fail(
        "shards",
        `${missing.length} of ${count} shards are missing: ${some(missing)}`,
        "restore the backup; gatehouse distribute creates them again, but empty",
      ),
    )
  }
  if (plain.length > 0) {
    checks.push(
      fail(
        "shards",
        `Citus does not know some tables of ${some(plain)}`,
        `run SELECT citus_schema_distribute('${plain[0]}') on the coordinator, for each of them`,
      ),
    )
  }
  if (split.length > 0) {
    const [node] = found.get(split[0]!)!.nodes
    const [host, port] = node!.split(/:(?=\d+$)/)
    checks.push(
      fail(
        "shards",
        `the tables of ${some(split)} are on several nodes`,
        `bring each to one node: SELECT citus_schema_move('${split[0]}', '${host}', ${port})`,
      ),
    )
  }
  return checks.length > 0 ? checks : [ok("shards", `all ${count} are there, each on one node`)]
}

interface Holder {
  readonly host: string
  readonly port: number
  readonly shards: number
  readonly isCoordinator: boolean
}

const readHolders = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Holder>`
    SELECT node.nodename AS host, node.nodeport AS port, node.groupid = 0 AS "isCoordinator",
      count(DISTINCT c.relnamespace)::int AS shards
    FROM pg_dist_node node
    JOIN pg_dist_placement p ON p.groupid = node.groupid
    JOIN pg_dist_shard shard ON shard.shardid = p.shardid
    JOIN pg_class c ON c.oid = shard.logicalrelid
    WHERE node.noderole = 'primary' GROUP BY 1, 2, 3 ORDER BY 1, 2`,
)

/** Whether this machine reaches a node with the user and the password of DATABASE_URL. */
const checkNode = (url: Redacted.Redacted<string>, { shards, host, isCoordinator, port }: Holder) => {
  const node = `${host}:${port}`
  const cannot = (reason: string) =>
    fail(
      "nodes",
      `the node ${node}, which has ${shards} shards, cannot be used: ${reason}`,
      "check that PostgreSQL runs there, and that this machine reaches that address with the user and password of DATABASE_URL",
    )
  return poolConfig(isCoordinator ? url : urlOf(url, { host, port })).pipe(
    Effect.flatMap((config) => PgClient.make({ ...config, maxConnections: 1 })),
    Effect.flatMap((sql) => sql`SELECT 1`),
    Effect.scoped,
    Effect.as(ok("nodes", `${node} answers; it has ${shards} shards`)),
    Effect.timeout("5 seconds"),
    Effect.catchTags({
      SqlError: (error: SqlError.SqlError) => Effect.succeed(cannot(describeSqlError(error))),
      TimeoutError: () => Effect.succeed(cannot("no response within 5 seconds")),
    }),
  )
}

/** Checks where the shards of a distributed database are, and that this machine reaches the nodes. */
export const checkShards = Effect.fnUntraced(function* (url: Redacted.Redacted<string>, distribution: Distribution) {
  if (!distribution.isDone) {
    return [fail("shards", "the database is distributed in part", "run gatehouse distribute again")]
  }
  const placed = placementChecks(distribution.shards, yield* readSchemas)
  const nodes = yield* Effect.forEach(yield* readHolders, (holder) => checkNode(url, holder), { concurrency: 8 })
  return [...placed, ...nodes]
})

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
