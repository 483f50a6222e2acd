import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { type Candidate, endpointReceivers } from "../../domain/webhooks/eventRouting.ts"
import { texts } from "../database/arrays.ts"
import { isOfOrg } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
import { insertDeliveries } from "./insertDeliveries.ts"

/** The endpoints whose delivery of an event does not exist yet. */
export interface FanOut {
  readonly orgId: string
  readonly eventId: string
  readonly endpoints: ReadonlyArray<string>
  /** When the event was created. */
  readonly createdAt: DateTime.Utc
}

/**
 * Inserts the deliveries of an event to endpoints, in a transaction. They are parked at once, so that many of them do not
 * delay other lanes.
 */
export const fanOut = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  { orgId, eventId, endpoints, createdAt }: FanOut,
) {
  // A shared lock: other events may hold it too, but nobody can deactivate an endpoint before its delivery is inserted.
  const candidates = yield* sql<Candidate & { readonly lane: string }>`
    SELECT id, active, coalesce(lane, id) AS lane FROM webhook_endpoints
    WHERE org_id = ${orgId} AND id = ANY(${texts(endpoints)}) ORDER BY id FOR SHARE`
  const lanes = new Map(candidates.map(({ id, lane }) => [id, lane]))
  const to = endpointReceivers(candidates)
  const ids = yield* Effect.forEach(to, () => random.ulid)
  const event: ReadonlyArray<Part> = [
    {
      name: "receivers",
      rows: sql`
        SELECT r.*, ${eventId} AS event_id FROM unnest(${texts(ids)}, ${texts(to.map(({ endpointId }) => endpointId))},
          ${texts(to.map(({ state }) => state))}, ${texts(to.map(({ endpointId }) => lanes.get(endpointId!)!))})
          AS r (id, endpoint, state, lane)`,
    },
    {
      name: "event",
      isRead: true,
      columns: "id text, job_id text, bytes int",
      rows: sql`
        SELECT id, job_id, octet_length(body) AS bytes FROM events WHERE id = ${eventId} AND ${isOfOrg(sql, orgId)}`,
    },
  ]
  yield* runParts(sql, [...event, ...insertDeliveries(sql, orgId, createdAt, true)], sql`SELECT 1`)
})
