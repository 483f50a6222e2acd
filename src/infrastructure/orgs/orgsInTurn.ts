import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import type { TurnBatch } from "../../domain/orgs/Turns.ts"
import { date } from "../database/fragments.ts"

/** Rows that a sweep takes when their time has come. They need an index on `(org_id, time)`, partial or not. */
interface DueRows {
  readonly table: string
  /** The column that says when a row is due. */
  readonly time: string
  /** The condition of a partial index, if it is one. */
  readonly where?: string
}

/**
 * CTEs for a sweep's batch (after `WITH RECURSIVE`): `seen`, the next orgs that have such rows, `limit` of them at most, and
 * `due`, those of them of which a row is due. One look at the index for each org, whatever the number of its rows.
 */
export const orgsInTurn = (
  sql: SqlClient.SqlClient,
  rows: DueRows,
  { after, limit, now }: TurnBatch & { readonly now: DateTime.Utc },
) => {
  const where = sql.literal(rows.where ?? "true")
  const [table, time] = [sql(rows.table), sql(rows.time)]
  return sql`
    orgs AS (
      (SELECT org_id, ${time} AS due_at FROM ${table} WHERE ${where} AND org_id > ${after}
       ORDER BY org_id, ${time} LIMIT 1)
      UNION ALL
      SELECT next.org_id, next.due_at FROM orgs CROSS JOIN LATERAL (
        SELECT r.org_id, r.${time} AS due_at FROM ${table} r WHERE ${where} AND r.org_id > orgs.org_id
        ORDER BY r.org_id, r.${time} LIMIT 1
      ) AS next
    ), seen AS MATERIALIZED (
      SELECT org_id, due_at FROM orgs LIMIT ${limit}
    ), due AS MATERIALIZED (
      SELECT org_id FROM seen WHERE due_at <= ${date(now)}
    )`
}

/** How many rows each of the `due` orgs has in a batch. */
export const share = (sql: SqlClient.SqlClient, { limit }: TurnBatch) =>
  sql`greatest(1, ${limit}::int / (SELECT count(*) FROM due))`

/** The org after which the next batch begins; null when these were the last. */
export const nextOrg = (sql: SqlClient.SqlClient, { limit }: TurnBatch) =>
  sql`CASE WHEN (SELECT count(*) FROM seen) = ${limit}::int THEN (SELECT max(org_id) FROM seen) END`
