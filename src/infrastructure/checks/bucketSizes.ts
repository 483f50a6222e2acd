import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { type Check, ok, warn } from "./Check.ts"
import { inBytes } from "./inBytes.ts"

interface BucketSize {
  readonly schema: string
  readonly node: string
  readonly bytes: number
}

/** The org with the most stored bytes of a bucket. */
interface LargestOrg {
  readonly orgId: string
  /** Of the bucket's stored bytes, from 0 to 1. */
  readonly share: number
}

/** Below this size of a node, in bytes, nothing needs to move. */
const smallNode = 10e9
/** A node with more than this part of the average, or a bucket with more than this part of its node, is reported. */
const [unevenNode, largeBucket] = [1.5, 0.5]

const sum = (sizes: ReadonlyArray<BucketSize>) => sizes.reduce((total, { bytes }) => total + bytes, 0)
const inPercent = (share: number) => `${Math.round(share * 100)} %`

/** The largest bucket of a node, if it is a large part of it. */
const largeOf = (buckets: ReadonlyArray<BucketSize>) => {
  const largest = buckets.reduce((a, b) => (b.bytes > a.bytes ? b : a))
  return sum(buckets) > smallNode && largest.bytes > sum(buckets) * largeBucket ? largest : undefined
}

/**
 * Warns of nodes that have much more than others, and of a bucket that fills its node, with its largest org.
 *
 * @param nodes all nodes that may have buckets
 */
export const sizeChecks = <E, R>(
  nodes: ReadonlyArray<string>,
  sizes: ReadonlyArray<BucketSize>,
  largestOrg: (schema: string) => Effect.Effect<LargestOrg | undefined, E, R>,
): Effect.Effect<ReadonlyArray<Check>, E, R> =>
  Effect.gen(function* () {
    const byNode = Map.groupBy(sizes, ({ node }) => node)
    const large = [...byNode.values()].flatMap((buckets) => largeOf(buckets) ?? [])
    const checks: Array<Check> = []
    for (const { bytes, node, schema } of large) {
      const org = yield* largestOrg(schema)
      const of = org === undefined ? "" : `; the org ${org.orgId} has ${inPercent(org.share)} of its stored bytes`
      checks.push(
        warn(
          "balance",
          `the bucket ${schema} has ${inBytes(bytes)} of the ${inBytes(sum(byNode.get(node)!))} on ${node}${of}`,
          "one bucket cannot be divided: move the other buckets of the node with citus_schema_move, set limits for the org, " +
            "or use a larger server for the node",
        ),
      )
    }
    const total = sum(sizes)
    const uneven = nodes.find((node) => {
      const buckets = byNode.get(node) ?? []
      // Moving helps unless the bucket itself is the reason.
      const isFilled = large.some((bucket) => bucket.node === node)
      return !isFilled && sum(buckets) > smallNode && sum(buckets) > (total / nodes.length) * unevenNode
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

/** Reads the sizes of all buckets, which asks every node. */
export const checkSizes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const nodes = yield* sql<{ node: string }>`
    SELECT nodename || ':' || nodeport AS node FROM pg_dist_node
    WHERE isactive AND shouldhaveshards AND noderole = 'primary'`
  const sizes = yield* sql<BucketSize>`
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
