import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { shardsOf, inOrg } from "../database/shards.ts"

interface OrgRow {
  readonly name: string
  readonly created_at: Date
  readonly limits: string | null
}

/**
 * In the transaction that changes an org of a distributed database: makes the copy in the org's shard the same, so
 * that statements there find the org and its limits without the coordinator. Does nothing on one PostgreSQL.
 */
export const copyOrg = (sql: SqlClient.SqlClient, orgId: string): Effect.Effect<void, SqlError.SqlError> => {
  if (shardsOf(sql) === undefined) return Effect.void
  const there = inOrg(sql, orgId)
  return Effect.flatMap(
    sql<OrgRow>`SELECT name, created_at, limits::text AS limits FROM orgs WHERE id = ${orgId}`,
    ([org]) =>
      there(
        org === undefined
          ? sql`DELETE FROM orgs WHERE id = ${orgId}`
          : sql`
              INSERT INTO orgs (id, name, created_at, limits)
              VALUES (${orgId}, ${org.name}, ${org.created_at}, ${org.limits}::text::jsonb)
              ON CONFLICT (id) DO UPDATE SET name = excluded.name, limits = excluded.limits`,
      ),
  )
}

/** Makes a change of an org, and the copy in its shard, in one transaction. */
export const copying = (sql: SqlClient.SqlClient, orgId: string) => {
  if (shardsOf(sql) === undefined) return <A, E, R>(change: Effect.Effect<A, E, R>) => change
  return <A, E, R>(change: Effect.Effect<A, E, R>) => sql.withTransaction(Effect.tap(change, () => copyOrg(sql, orgId)))
}
