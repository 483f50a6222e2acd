import type { SqlClient } from "effect/sql"

interface Lane {
  /** SQL: the org, and the lane. */
  readonly orgId: string
  readonly lane: string
}

/**
 * SQL: the latest `due_at` of a lane's backlog; `NULL` without a backlog. Reads the index from its end: at its beginning are the
 * entries of deliveries that left the queue, until a vacuum. Even so, call it once for a lane and not for each row.
 */
export const lastOfLane = (sql: SqlClient.SqlClient, { orgId, lane }: Lane) =>
  sql.literal(`(
    SELECT last.due_at FROM pending_deliveries last WHERE last.parked AND last.org_id = ${orgId} AND last.lane = ${lane}
    ORDER BY last.due_at DESC, last.delivery_id DESC LIMIT 1
  )`)

/**
 * SQL: the `due_at` of a row at the end of a lane that sends in order. By the clock of the database, because replicas have
 * their own: an event that is published after another one has been answered comes after it. Rows of one statement are a
 * microsecond apart.
 *
 * @param last `lastOfLane` of the lane
 * @param number the number of the new row among those of its statement and lane, from 1
 */
export const endOfLane = (
  sql: SqlClient.SqlClient,
  last: ReturnType<typeof lastOfLane> | ReturnType<SqlClient.SqlClient["literal"]>,
  number: string,
) => sql`(greatest(now(), ${last}) + ${sql.literal(number)} * interval '1 microsecond')`

/** SQL: whether the endpoint of an id sends in order. */
export const isOrdered = (sql: SqlClient.SqlClient, endpoint: string) =>
  sql.literal(`EXISTS (SELECT FROM webhook_endpoints o WHERE o.id = ${endpoint} AND o.ordered)`)
