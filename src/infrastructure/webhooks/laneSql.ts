import type { SqlClient } from "effect/sql"

/**
 * A subquery: the endpoint of a lane `l`. No row for a callback lane, and none when the endpoint was deleted or deactivated
 * after its deliveries were queued. `OFFSET 0` keeps the subquery separate, so that no plan reads the whole table.
 */
export const liveEndpoint = (sql: SqlClient.SqlClient) => sql`
  (SELECT * FROM webhook_endpoints WHERE id = left(l.lane, 26) AND active AND coalesce(lane, id) = l.lane OFFSET 0)`

/** Whether a lane `l` is a callback lane: the org's id, a space, and a number. An endpoint's lane has no space. */
export const isCallbackLane = (sql: SqlClient.SqlClient) => sql.literal("(substr(l.lane, 27, 1) = ' ')")

/**
 * The lane of an endpoint after its deactivation, for an UPDATE of `webhook_endpoints`: the id, a dot, and a number.
 *
 * @param table the alias of the table in the statement, with a dot
 */
export const nextLane = (sql: SqlClient.SqlClient, table: "" | "w." = "") =>
  sql.literal(`${table}id || '.' || coalesce(nullif(split_part(${table}lane, '.', 2), '')::int, 0) + 1`)

/** Whether a recovery covers delivery `d` and its sweep has not reached it: the delivery is pending. */
const isRecovering = `EXISTS (
  SELECT FROM sweeps s WHERE s.endpoint_id = d.endpoint_id AND s.kind = 'recover' AND d.id > s.done_to
    AND d.created_at >= s.since AND (s.until IS NULL OR d.created_at < s.until))`

/** Whether delivery `d` is in its endpoint's current lane. */
const isInLiveLane = `EXISTS (
  SELECT FROM webhook_endpoints w WHERE w.id = d.endpoint_id AND coalesce(w.lane, w.id) = d.lane)`

/** The state of delivery `d`, including the effect of sweeps that have not reached its row. */
export const stateNow = (sql: SqlClient.SqlClient) =>
  sql.literal(`(CASE
    WHEN d.state = 'delivered' OR d.endpoint_id IS NULL THEN d.state
    WHEN d.state = 'pending' AND ${isInLiveLane} THEN d.state
    WHEN ${isRecovering} THEN 'pending'
    WHEN d.state = 'pending' THEN 'canceled'
    ELSE d.state END)`)
