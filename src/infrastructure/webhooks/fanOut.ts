import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { type Candidate, endpointReceivers } from "../../domain/webhooks/Receivers.ts"
import { texts } from "../database/arrays.ts"
import { insertDeliveries } from "./insertDeliveries.ts"

/** The endpoints that an event has still to be queued for. */
export interface FanOut {
  readonly orgId: string
  readonly eventId: string
  readonly endpoints: ReadonlyArray<string>
  /** When the event was made. */
  readonly createdAt: DateTime.Utc
}

/**
 * Makes the deliveries of an event to endpoints, in a transaction. They are parked from the start: many at once stay out
 * of the other lanes' way.
 */
export const fanOut = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  { orgId, eventId, endpoints, createdAt }: FanOut,
) {
  // Shared with other events, held against whoever would deactivate an endpoint before its delivery is in.
  const held = yield* sql<Candidate & { readonly lane: string }>`
    SELECT id, active, coalesce(lane, id) AS lane FROM webhook_endpoints
    WHERE org_id = ${orgId} AND id = ANY(${texts(endpoints)}) ORDER BY id FOR SHARE`
  const lanes = new Map(held.map(({ id, lane }) => [id, lane]))
  const to = endpointReceivers(held)
  const ids = yield* Effect.forEach(to, () => random.ulid)
  yield* sql`
    WITH receivers AS (
      SELECT * FROM unnest(${texts(ids)}, ${texts(to.map(({ endpointId }) => endpointId))},
        ${texts(to.map(({ state }) => state))}, ${texts(to.map(({ endpointId }) => lanes.get(endpointId!)!))})
        AS r (id, endpoint, state, lane)
    ), event AS (
      SELECT id, job_id, octet_length(body) AS bytes FROM events WHERE id = ${eventId} AND org_id = ${orgId}
    ), ${insertDeliveries(sql, orgId, createdAt, true)}
    SELECT FROM event`
})
