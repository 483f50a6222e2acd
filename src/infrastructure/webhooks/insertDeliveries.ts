import type { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"

/**
 * Inserts the deliveries of an event and queues the pending ones, as the CTEs `made` and `queued`. Reads the CTEs
 * `event` (id, job_id, bytes), without whose row nothing is inserted, and `receivers` (id, endpoint, state, lane).
 *
 * @param parked whether all of them join the backlog; else those whose lane has one
 */
export const insertDeliveries = (sql: SqlClient.SqlClient, orgId: string, now: DateTime.Utc, parked: boolean) => sql`
  made AS (
    INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
    SELECT r.id, ${orgId}, event.id, event.job_id, r.endpoint, r.lane, r.state, ${date(now)}, ${date(now)}
    FROM receivers r CROSS JOIN event
  ), queued AS (
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
    SELECT r.lane, r.id, event.id, 0, 0, ${date(now)}, ${parked}::boolean OR EXISTS (
      SELECT FROM pending_deliveries p WHERE p.parked AND p.org_id = ${orgId} AND p.lane = r.lane
    ), ${orgId}, event.bytes
    FROM receivers r CROSS JOIN event WHERE r.state = 'pending'
  )`
