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
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
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

/**
 * Queues a delivery whose row is locked, or makes its row in the queue due; returns no row while an attempt is in flight. Whoever
 * queues a delivery locks its row, so only a claim can change the queue meanwhile.
 */
const queueAgain = (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  { at, lane, ordered }: { readonly at: Date; readonly lane: string | null; readonly ordered: boolean },
) => {
  // In a lane that sends in order it joins at the end.
  const end = endOfLane(sql, lastOfLane(sql, { orgId: "d.org_id", lane: "d.lane" }), "1")
  const isQueued = sql`p.lane = coalesce(${lane}, d.lane) AND p.delivery_id = d.id`
  const parts: ReadonlyArray<Part> = [
    {
      name: "rows",
      isRead: true,
      isMaterialized: true,
      columns: `lane text, id text, event_id text, attempts int, due_at timestamptz, org_id text, bytes int,
        queued_already boolean`,
      rows: sql`
        SELECT coalesce(${lane}, d.lane) AS lane, d.id, d.event_id, d.attempts,
          ${ordered ? end : sql`${at}::timestamptz`} AS due_at, d.org_id, octet_length(e.body) AS bytes,
          EXISTS (SELECT FROM pending_deliveries p WHERE ${isQueued}) AS queued_already
        FROM deliveries d JOIN events e ON e.id = d.event_id
        WHERE d.id = ${deliveryId} AND ${isOfOrg(sql, orgId, "d.org_id")} AND (d.claim_id IS NULL OR d.lease_until <= ${at})`,
    },
    {
      name: "renewed",
      isRead: true,
      columns: "delivery_id text",
      rows: sql`
        UPDATE pending_deliveries p SET due_at = (SELECT due_at FROM rows), tries = 0, parked = ${ordered}::boolean,
          claim_id = NULL, lease_until = NULL
        WHERE p.lane = (SELECT lane FROM rows) AND p.delivery_id = ${deliveryId}
          AND (p.claim_id IS NULL OR p.lease_until IS NULL OR p.lease_until <= ${at})
        RETURNING p.delivery_id`,
    },
    {
      name: "queued",
      into: "pending_deliveries",
      columns: "lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes",
      rows: sql`
        SELECT lane, id, event_id, attempts, 0, due_at, ${ordered}::boolean, org_id, bytes FROM rows
        WHERE NOT queued_already`,
      returning: "delivery_id",
    },
  ]
  return runParts(sql, parts, sql`SELECT delivery_id FROM renewed UNION ALL SELECT delivery_id FROM queued`)
}

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
  const queued = yield* queueAgain(sql, orgId, deliveryId, { lane, ordered, at })
  if (queued.length === 0) return yield* attemptInFlight()
  yield* sql`
    UPDATE deliveries SET state = 'pending', lane = coalesce(${lane}, lane), claim_id = NULL, lease_until = NULL,
      updated_at = ${at}
    WHERE id = ${deliveryId} AND ${isOfOrg(sql, orgId)}`
})
