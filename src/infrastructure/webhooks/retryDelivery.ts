import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import {
  attemptInFlight,
  deliveryNotFound,
  endpointDeleted,
  endpointInactive,
} from "../../domain/webhooks/deliveryErrors.ts"
import { date, isOfOrg } from "../database/fragments.ts"
import { endOfLane, lastOfLane } from "./placeInLane.ts"
import { deliveryJoins } from "./deliveryRows.ts"

/** Fails when the delivery cannot be sent again; returns the id of its endpoint, `null` for a callback. */
const findRetryable = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  now: DateTime.Utc,
) {
  const at = date(now)
  // A canceled delivery is not in the queue: its own row keeps the claim of the attempt in flight.
  const [delivery] = yield* sql<{ endpoint: string | null; claimed: boolean }>`
    SELECT d.endpoint_id AS endpoint,
      (coalesce(p.claim_id IS NOT NULL AND p.lease_until > ${at}, false) OR coalesce(d.lease_until > ${at}, false)) AS claimed
    FROM deliveries d ${deliveryJoins(sql)} WHERE d.id = ${deliveryId} AND ${isOfOrg(sql, orgId, "d.org_id")}`
  if (delivery === undefined) return yield* deliveryNotFound()
  if (delivery.claimed) return yield* attemptInFlight()
  return delivery.endpoint
})

/** Locks an active endpoint and returns its lane. */
const lockEndpoint = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, endpointId: string) {
  const [endpoint] = yield* sql<{ active: boolean; lane: string; ordered: boolean }>`
    SELECT active, ordered, coalesce(lane, id) AS lane FROM webhook_endpoints
    WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
  if (endpoint === undefined) return yield* endpointDeleted()
  if (!endpoint.active) return yield* endpointInactive()
  return endpoint
})

/** Makes a delivery due now, with the retry schedule from its start. Runs in a transaction. */
export const retryDelivery = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  now: DateTime.Utc,
) {
  const at = date(now)
  const endpointId = yield* findRetryable(sql, orgId, deliveryId, now)
  // The endpoint may have another lane than when the delivery was queued; a callback keeps its lane.
  const endpoint = endpointId === null ? null : yield* lockEndpoint(sql, orgId, endpointId)
  const lane = endpoint?.lane ?? null
  const ordered = endpoint?.ordered === true
  const locked = yield* sql`
    SELECT id FROM deliveries WHERE id = ${deliveryId} AND ${isOfOrg(sql, orgId)} FOR NO KEY UPDATE`
  // Retention has removed the delivery since it was read.
  if (locked.length === 0) return yield* deliveryNotFound()
  // A delivery in an ended lane is canceled, but the sweep has not deleted its row from the queue.
  yield* sql`
    DELETE FROM pending_deliveries p USING deliveries d
    WHERE d.id = ${deliveryId} AND p.lane = d.lane AND p.delivery_id = d.id AND p.lane <> ${lane}`
  // In a lane that sends in order it joins at the end.
  const end = endOfLane(sql, lastOfLane(sql, { orgId: "d.org_id", lane: "d.lane" }), "1")
  const queued = yield* sql`
    WITH rows AS MATERIALIZED (
      SELECT coalesce(${lane}, d.lane) AS lane, d.id, d.event_id, d.attempts, ${ordered ? end : sql`${at}::timestamptz`} AS due_at,
        d.org_id, octet_length(e.body) AS bytes
      FROM deliveries d JOIN events e ON e.id = d.event_id
      WHERE d.id = ${deliveryId} AND ${isOfOrg(sql, orgId, "d.org_id")} AND (d.claim_id IS NULL OR d.lease_until <= ${at})
    ), queued AS (INSERT INTO pending_deliveries AS p
      (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
    SELECT lane, id, event_id, attempts, 0, due_at, ${ordered}::boolean, org_id, bytes FROM rows
    ON CONFLICT (lane, delivery_id) DO UPDATE SET due_at = excluded.due_at, tries = 0, parked = excluded.parked, claim_id = NULL,
      lease_until = NULL
    WHERE p.claim_id IS NULL OR p.lease_until IS NULL OR p.lease_until <= ${at}
    RETURNING p.delivery_id) SELECT delivery_id FROM queued`
  if (queued.length === 0) return yield* attemptInFlight()
  yield* sql`
    UPDATE deliveries SET state = 'pending', lane = coalesce(${lane}, lane), claim_id = NULL, lease_until = NULL,
      updated_at = ${at}
    WHERE id = ${deliveryId} AND ${isOfOrg(sql, orgId)}`
})
