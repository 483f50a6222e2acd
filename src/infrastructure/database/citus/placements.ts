import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { schemaOf } from "../shards.ts"

/** Where a shard is: the address of a worker, or the coordinator, whose address is that of DATABASE_URL. */
export type Node = "coordinator" | { readonly host: string; readonly port: number }

/** The number of shards of a database, and whether all rows are in them. */
export interface Distribution {
  readonly shards: number
  readonly isDone: boolean
  /** The newest migration that every shard has; 0 before the first start. */
  readonly migratedTo: number
}

/** The shards of the database, and whether all rows are in them; `null` for a database on one PostgreSQL. */
export const distributionOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{
    exists: boolean
  }>`SELECT to_regclass('public.gatehouse_distribution') IS NOT NULL AS exists`
  if (!table!.exists) return null
  const [row] = yield* sql<Distribution>`
    SELECT buckets AS shards, done_at IS NOT NULL AS "isDone", migrated_to AS "migratedTo" FROM public.gatehouse_distribution`
  return row ?? null
})

interface Placement {
  readonly schema: string
  readonly group: number
  readonly host: string
  readonly port: number
}

/** Where each shard is, in the order of their numbers. Dies when a shard is missing. */
export const placements = Effect.fnUntraced(function* (count: number) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<Placement>`
    SELECT n.nspname AS schema, node.groupid AS group, node.nodename AS host, node.nodeport AS port
    FROM pg_dist_schema s
    JOIN pg_namespace n ON n.oid = s.schemaid
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'jobs'
    JOIN pg_dist_shard shard ON shard.logicalrelid = c.oid
    JOIN pg_dist_placement p ON p.shardid = shard.shardid
    JOIN pg_dist_node node ON node.groupid = p.groupid AND node.noderole = 'primary'`
  const nodes = new Map(
    rows.map(({ group, host, port, schema }): [string, Node] => [schema, group === 0 ? "coordinator" : { host, port }]),
  )
  return Array.from({ length: count }, (_, shard) => {
    const node = nodes.get(schemaOf(shard))
    if (node === undefined) throw new Error(`The shard ${schemaOf(shard)} is missing`)
    return node
  })
})
