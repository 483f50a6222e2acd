import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { texts } from "../database/arrays.ts"
import { date } from "../database/fragments.ts"

/** The endpoints that an event has still to be queued for. */
export interface FanOut {
  readonly orgId: string
  readonly eventId: string
  readonly receivers: ReadonlyArray<string>
  /** When the event was made. */
  readonly createdAt: DateTime.Utc
}

/** Makes the deliveries of an event to endpoints, parked from the start: many at once stay out of the others' way. */
export const fanOut = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  { orgId, eventId, receivers, createdAt }: FanOut,
) {
  const ids = yield* Effect.forEach(receivers, () => random.ulid)
  yield* sql`
    WITH endpoints AS (
      -- Shared with other events, held against whoever would deactivate an endpoint before its delivery is in.
      SELECT id, active, coalesce(lane, id) AS lane FROM webhook_endpoints
      WHERE org_id = ${orgId} AND id = ANY(${texts(receivers)}) ORDER BY id FOR SHARE
    ), receivers AS (
      SELECT d.id, w.lane, w.id AS endpoint, CASE WHEN w.active THEN 'pending' ELSE 'skipped' END AS state
      FROM unnest(${texts(ids)}, ${texts(receivers)}) AS d (id, endpoint) JOIN endpoints w ON w.id = d.endpoint
    ), event AS (
      SELECT id, job_id, octet_length(body) AS bytes FROM events WHERE id = ${eventId} AND org_id = ${orgId}
    ), made AS (
      INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
      SELECT r.id, ${orgId}, event.id, event.job_id, r.endpoint, r.lane, r.state, ${date(createdAt)}, ${date(createdAt)}
      FROM receivers r CROSS JOIN event
    )
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
    SELECT r.lane, r.id, event.id, 0, 0, ${date(createdAt)}, true, ${orgId}, event.bytes
    FROM receivers r CROSS JOIN event WHERE r.state = 'pending'`
})
