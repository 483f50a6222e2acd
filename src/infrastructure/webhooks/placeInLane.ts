import type { SqlClient } from "effect/sql"

interface LaneColumns {
  readonly orgId: string
  readonly lane: string
  /** The number of the new row among those of its statement and lane, from 1. */
  readonly number: string
}

/**
 * SQL: the `due_at` of a row at the end of a lane that sends in order. By the clock of the database, because replicas have
 * their own: an event that is published after another one has been answered comes after it. Rows of one statement are a
 * microsecond apart.
 */
export const endOfLane = (sql: SqlClient.SqlClient, { orgId, lane, number }: LaneColumns) =>
  sql.literal(`(
    greatest(now(), (
      SELECT last.due_at FROM pending_deliveries last WHERE last.parked AND last.org_id = ${orgId} AND last.lane = ${lane}
      ORDER BY last.due_at DESC, last.delivery_id DESC LIMIT 1
    )) + ${number} * interval '1 microsecond')`)

/** SQL: whether the endpoint of an id sends in order. */
export const isOrdered = (sql: SqlClient.SqlClient, endpoint: string) =>
  sql.literal(`EXISTS (SELECT FROM webhook_endpoints o WHERE o.id = ${endpoint} AND o.ordered)`)
