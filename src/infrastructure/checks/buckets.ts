import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { schemaOf } from "../database/buckets.ts"
import { urlOf } from "../database/citus/DistributedClient.ts"
import type { Distribution } from "../database/citus/placements.ts"
import { describeSqlError } from "../database/Database.ts"
import { poolConfig } from "../database/PostgresDatabase.ts"
import { type Check, fail, ok } from "./Check.ts"

/** A bucket, as the coordinator knows it. */
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

/** Compares the buckets that the service expects with those of the coordinator. */
export const placementChecks = (count: number, schemas: ReadonlyArray<Schema>): ReadonlyArray<Check> => {
  const found = new Map(schemas.map((schema) => [schema.schema, schema]))
  const all = Array.from({ length: count }, (_, bucket) => schemaOf(bucket))
  const missing = all.filter((name) => !found.has(name))
  const plain = all.filter((name) => (found.get(name)?.plain ?? 0) > 0)
  const split = all.filter((name) => (found.get(name)?.nodes.length ?? 0) > 1)
  const checks: Array<Check> = []
  if (missing.length > 0) {
    checks.push(
      fail(
        "buckets",
        `${missing.length} of ${count} buckets are missing: ${some(missing)}`,
        "restore the backup; gatehouse distribute creates them again, but empty",
      ),
    )
  }
  if (plain.length > 0) {
    checks.push(
      fail(
        "buckets",
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
        "buckets",
        `the tables of ${some(split)} are on several nodes`,
        `bring each to one node: SELECT citus_schema_move('${split[0]}', '${host}', ${port})`,
      ),
    )
  }
  return checks.length > 0 ? checks : [ok("buckets", `all ${count} are there, each on one node`)]
}

interface Holder {
  readonly host: string
  readonly port: number
  readonly buckets: number
  readonly isCoordinator: boolean
}

const readHolders = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Holder>`
    SELECT node.nodename AS host, node.nodeport AS port, node.groupid = 0 AS "isCoordinator",
      count(DISTINCT c.relnamespace)::int AS buckets
    FROM pg_dist_node node
    JOIN pg_dist_placement p ON p.groupid = node.groupid
    JOIN pg_dist_shard shard ON shard.shardid = p.shardid
    JOIN pg_class c ON c.oid = shard.logicalrelid
    WHERE node.noderole = 'primary' GROUP BY 1, 2, 3 ORDER BY 1, 2`,
)

/** Whether this machine reaches a node with the user and the password of DATABASE_URL. */
const checkNode = (url: Redacted.Redacted<string>, { buckets, host, isCoordinator, port }: Holder) => {
  const node = `${host}:${port}`
  const cannot = (reason: string) =>
    fail(
      "nodes",
      `the node ${node}, which has ${buckets} buckets, cannot be used: ${reason}`,
      "check that PostgreSQL runs there, and that this machine reaches that address with the user and password of DATABASE_URL",
    )
  return PgClient.make({
    ...poolConfig(isCoordinator ? url : urlOf(url, { host, port })),
    maxConnections: 1,
  }).pipe(
    Effect.flatMap((sql) => sql`SELECT 1`),
    Effect.scoped,
    Effect.as(ok("nodes", `${node} answers; it has ${buckets} buckets`)),
    Effect.timeout("5 seconds"),
    Effect.catchTags({
      SqlError: (error: SqlError.SqlError) => Effect.succeed(cannot(describeSqlError(error))),
      TimeoutError: () => Effect.succeed(cannot("no answer within 5 seconds")),
    }),
  )
}

/** Checks where the buckets of a distributed database are, and that this machine reaches the nodes. */
export const checkBuckets = Effect.fnUntraced(function* (url: Redacted.Redacted<string>, distribution: Distribution) {
  if (!distribution.isDone) {
    return [fail("buckets", "the database is distributed in part", "run gatehouse distribute again")]
  }
  const placed = placementChecks(distribution.buckets, yield* readSchemas)
  const nodes = yield* Effect.forEach(yield* readHolders, (holder) => checkNode(url, holder), { concurrency: 8 })
  return [...placed, ...nodes]
})
