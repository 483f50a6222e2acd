import type { SqlClient } from "effect/sql"

/**
 * The endpoint of a lane `l`, as rows: none when the lane is of callbacks, or when the endpoint was deleted or deactivated
 * since its deliveries were queued. `OFFSET 0` keeps the look-up apart, so that no plan reads the table whole.
 */
export const liveEndpoint = (sql: SqlClient.SqlClient) => sql`
  (SELECT * FROM webhook_endpoints WHERE id = left(l.lane, 26) AND active AND coalesce(lane, id) = l.lane OFFSET 0)`

/** Whether a lane `l` is one of callbacks: the id of its org, a space, and a number. An endpoint's has no space. */
export const isCallbackLane = (sql: SqlClient.SqlClient) => sql.literal("(substr(l.lane, 27, 1) = ' ')")

/**
 * The lane that an endpoint has once it is deactivated, in an UPDATE of `webhook_endpoints`: its id and a number.
 *
 * @param table the table's name in the statement, with a dot
 */
export const nextLane = (sql: SqlClient.SqlClient, table: "" | "w." = "") =>
  sql.literal(`${table}id || '.' || coalesce(nullif(split_part(${table}lane, '.', 2), '')::int, 0) + 1`)

/** Whether an open recovery covers delivery `d`: it is pending, and its row is not changed yet. */
const isRecovering = `EXISTS (
  SELECT FROM sweeps s WHERE s.endpoint_id = d.endpoint_id AND s.kind = 'recover' AND d.id > s.done_to
    AND d.created_at >= s.since AND (s.until IS NULL OR d.created_at < s.until))`

/** Whether delivery `d` is in a lane that its endpoint still has. */
const isInLiveLane = `EXISTS (
  SELECT FROM webhook_endpoints w WHERE w.id = d.endpoint_id AND coalesce(w.lane, w.id) = d.lane)`

/** The state of delivery `d`, with the sweeps that are decided and have not come to its row. */
export const stateNow = (sql: SqlClient.SqlClient) =>
  sql.literal(`(CASE
    WHEN d.state = 'delivered' OR d.endpoint_id IS NULL THEN d.state
    WHEN d.state = 'pending' AND ${isInLiveLane} THEN d.state
    WHEN ${isRecovering} THEN 'pending'
    WHEN d.state = 'pending' THEN 'canceled'
    ELSE d.state END)`)
