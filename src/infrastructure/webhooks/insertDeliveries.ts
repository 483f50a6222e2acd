import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { endOfLane, isOrdered, lastOfLane } from "./placeInLane.ts"

/**
 * The parts `lane_ends`, `made`, `places` and `queued`, which insert the deliveries of events and queue the pending ones. They
 * read the parts `event` (id, job_id, bytes) and `receivers` (id, event_id, endpoint, state, lane). A receiver whose event is
 * not in `event` is not inserted.
 *
 * @param parked `true` parks all of them; `false` parks those whose lane has a backlog
 */
export const insertDeliveries = (
  sql: SqlClient.SqlClient,
  orgId: string,
  now: DateTime.Utc,
  parked: boolean,
): ReadonlyArray<Part> => [
  {
    name: "lane_ends",
    isRead: true,
    isMaterialized: true,
    columns: "lane text, last timestamptz, ordered boolean",
    rows: sql`
      SELECT lane, ${lastOfLane(sql, { orgId: "l.org_id", lane: "l.lane" })} AS last, ${isOrdered(sql, "l.endpoint")} AS ordered
      FROM (
        SELECT DISTINCT lane, endpoint, ${orgId}::text COLLATE "C" AS org_id FROM receivers WHERE state = 'pending'
      ) AS l`,
  },
  {
    name: "made",
    into: "deliveries",
    columns: "id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at",
    rows: sql`
      SELECT r.id, ${orgId}, event.id, event.job_id, r.endpoint, r.lane, r.state, ${date(now)}, ${date(now)}
      FROM receivers r JOIN event ON event.id = r.event_id`,
  },
  {
    name: "places",
    isMaterialized: true,
    rows: sql`
      SELECT r.lane, r.id, event.id AS event_id,
        CASE WHEN r.ordered THEN ${endOfLane(sql, sql.literal("r.last"), "r.number")} ELSE ${date(now)} END AS due_at,
        ${parked}::boolean OR r.ordered OR r.last IS NOT NULL AS parked, event.bytes
      FROM (
        SELECT *, row_number() OVER (PARTITION BY lane ORDER BY event_id) AS number
        FROM receivers JOIN lane_ends USING (lane)
      ) r
      JOIN event ON event.id = r.event_id WHERE r.state = 'pending'`,
  },
  {
    name: "queued",
    into: "pending_deliveries",
    columns: "lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes",
    rows: sql`SELECT lane, id, event_id, 0, 0, due_at, parked, ${orgId}, bytes FROM places`,
  },
]
