import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"
import { endOfLane, isOrdered, lastOfLane } from "./placeInLane.ts"

/**
 * The CTEs `lane_ends`, `made`, `places` and `queued`, which insert the deliveries of events and queue the pending ones. They read the CTEs
 * `event` (id, job_id, bytes) and `receivers` (id, event_id, endpoint, state, lane). A receiver whose event is not in `event` is
 * not inserted.
 *
 * @param parked `true` parks all of them; `false` parks those whose lane has a backlog
 */
export const insertDeliveries = (sql: SqlClient.SqlClient, orgId: string, now: DateTime.Utc, parked: boolean) => sql`
  lane_ends AS MATERIALIZED (
    SELECT lane, ${lastOfLane(sql, { orgId: "l.org_id", lane: "l.lane" })} AS last
    FROM (SELECT DISTINCT lane, ${orgId}::text COLLATE "C" AS org_id FROM receivers WHERE state = 'pending') AS l
  ), made AS (
    INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
    SELECT r.id, ${orgId}, event.id, event.job_id, r.endpoint, r.lane, r.state, ${date(now)}, ${date(now)}
    FROM receivers r JOIN event ON event.id = r.event_id
  ), places AS MATERIALIZED (
    SELECT r.lane, r.id, event.id AS event_id,
      CASE WHEN r.ordered THEN ${endOfLane(sql, sql.literal("r.last"), "r.number")} ELSE ${date(now)} END AS due_at,
      ${parked}::boolean OR r.ordered OR r.last IS NOT NULL AS parked, event.bytes
    FROM (
      SELECT *, ${isOrdered(sql, "endpoint")} AS ordered, row_number() OVER (PARTITION BY lane ORDER BY event_id) AS number
      FROM receivers JOIN lane_ends USING (lane)
    ) r
    JOIN event ON event.id = r.event_id WHERE r.state = 'pending'
  ), queued AS (
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
    SELECT lane, id, event_id, 0, 0, due_at, parked, ${orgId}, bytes FROM places
  )`
