import { type DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { Conflict } from "../../domain/Errors.ts"
import { endpointInactive } from "../../domain/webhooks/deliveryErrors.ts"
import type { Recovery } from "../../domain/webhooks/DeliveryLog.ts"
import { endpointNotFound } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { date, dateOrNull } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
import { idBefore } from "./idTimes.ts"
import { endOfLane, lastOfLane } from "./placeInLane.ts"

/** Sweeps of an endpoint with which a recovery still starts another. */
const maxSweepsPerEndpoint = 10
/** Deliveries that a recovery makes due itself; a sweep does the others. */
const inlineRecoveries = 500

/** The condition of the unsuccessful deliveries `d` of a recovery. The bound of the id keeps older index entries unread. */
const isCovered = (sql: SqlClient.SqlClient, { orgId, endpointId, since, until }: Recovery) => sql`
  d.endpoint_id = ${endpointId} AND d.org_id = ${orgId} AND d.unsuccessful IS NOT NULL AND d.id > ${idBefore(since)}
  AND d.created_at >= ${date(since)} AND (${dateOrNull(until)}::timestamptz IS NULL OR d.created_at < ${dateOrNull(until)}::timestamptz)`

/** The parts `endpoint`, `head` and `held`: the active endpoint, and the next deliveries of a recovery, which it locks. */
const heldDeliveries = (
  sql: SqlClient.SqlClient,
  recovery: Recovery,
  doneTo: string,
  limit: number,
): ReadonlyArray<Part> => [
  {
    name: "endpoint",
    isRead: true,
    rows: sql`
      SELECT id, ordered, coalesce(lane, id) AS lane,
        ${lastOfLane(sql, { orgId: "w.org_id", lane: "coalesce(w.lane, w.id)" })} AS last
      FROM webhook_endpoints w
      WHERE id = ${recovery.endpointId} AND org_id = ${recovery.orgId} AND active FOR SHARE`,
  },
  {
    name: "head",
    isRead: true,
    columns: "id text",
    rows: sql`
      SELECT d.id FROM deliveries d WHERE ${isCovered(sql, recovery)} AND d.id > ${doneTo} AND EXISTS (SELECT FROM endpoint)
      ORDER BY d.id LIMIT ${limit}::int`,
  },
  {
    name: "held",
    isRead: true,
    columns: "id text",
    rows: sql`
      SELECT d.*, endpoint.lane, endpoint.ordered, octet_length(e.body) AS bytes
      FROM (SELECT * FROM head ORDER BY id OFFSET 0) AS head
      CROSS JOIN LATERAL (
        SELECT id, org_id, event_id, attempts, lease_until, claim_id FROM deliveries
        WHERE id = head.id AND unsuccessful IS NOT NULL FOR NO KEY UPDATE
      ) AS d
      CROSS JOIN endpoint
      CROSS JOIN LATERAL (SELECT body FROM events WHERE id = d.event_id OFFSET 0) e`,
  },
]

/** The parts `places`, `queued` and `changed`, which make the deliveries of the part `held` due now. */
const queueHeld = (sql: SqlClient.SqlClient, recovery: Recovery, now: DateTime.Utc): ReadonlyArray<Part> => {
  const end = endOfLane(sql, sql.literal("(SELECT last FROM endpoint)"), "h.number")
  return [
    {
      name: "places",
      isRead: true,
      isMaterialized: true,
      columns: `lane text, id text, event_id text, attempts int, due_at timestamptz, claim_id text, lease_until timestamptz,
        bytes int`,
      rows: sql`
        SELECT lane, id, event_id, attempts, CASE WHEN ordered THEN ${end} ELSE ${date(now)} END AS due_at, claim_id,
          lease_until, bytes
        FROM (SELECT *, row_number() OVER (ORDER BY id) AS number FROM held) AS h`,
    },
    {
      name: "queued",
      into: "pending_deliveries",
      columns: "lane, delivery_id, event_id, attempts, tries, due_at, parked, claim_id, lease_until, org_id, bytes",
      rows: sql`
        SELECT lane, id, event_id, attempts, 0, due_at, true, claim_id, lease_until, ${recovery.orgId}, bytes FROM places`,
    },
    {
      name: "changed",
      isRead: true,
      rows: sql`
        UPDATE deliveries SET state = 'pending', lane = (SELECT lane FROM endpoint), claim_id = NULL, lease_until = NULL,
          updated_at = ${date(now)}
        WHERE id = ANY(ARRAY(SELECT id FROM held))`,
    },
  ]
}

/**
 * Makes the next deliveries of a recovery after `doneTo` due now. They are parked at once, so that a large backlog does not
 * delay other lanes. An attempt in flight continues, and its result is recorded.
 *
 * @returns how many deliveries it read, the last of them, and how many are due now
 */
export const recoverBatch = (
  sql: SqlClient.SqlClient,
  recovery: Recovery,
  doneTo: string,
  limit: number,
  now: DateTime.Utc,
) => {
  const parts = [...heldDeliveries(sql, recovery, doneTo, limit), ...queueHeld(sql, recovery, now)]
  const select = sql`
    SELECT count(*)::int AS rows, max(id) AS last, (SELECT count(*)::int FROM held) AS recovered FROM head`
  return Effect.map(
    runParts<{ rows: number; last: string | null; recovered: number }>(sql, parts, select),
    ([row]) => row!,
  )
}

/** Deliveries of each kind that `countRecovery` counts at most. */
const maxCountedRecoveries = 10_000

/**
 * Counts the deliveries of a recovery: the unsuccessful ones, and the canceled ones that a sweep has not reached; at most
 * `maxCountedRecoveries` of each.
 */
export const countRecovery = (sql: SqlClient.SqlClient, recovery: Recovery) =>
  sql<{ count: number; isAll: boolean }>`
    WITH unsuccessful AS (
      SELECT d.id, d.endpoint_id, d.created_at FROM deliveries d WHERE ${isCovered(sql, recovery)}
      ORDER BY d.id LIMIT ${maxCountedRecoveries}
    ), canceled AS (
      SELECT d.created_at FROM sweeps s JOIN pending_deliveries p ON p.lane = s.lane
      JOIN deliveries d ON d.id = p.delivery_id
      WHERE s.endpoint_id = ${recovery.endpointId} AND s.kind = 'cancel' LIMIT ${maxCountedRecoveries}
    )
    SELECT (SELECT count(*) FROM unsuccessful d WHERE NOT EXISTS (
        SELECT FROM sweeps s WHERE s.endpoint_id = d.endpoint_id AND s.kind = 'recover' AND d.id > s.done_to
          AND d.created_at >= s.since AND (s.until IS NULL OR d.created_at < s.until)
      ))::int + (
        SELECT count(*) FROM canceled d WHERE d.created_at >= ${date(recovery.since)}
          AND (${dateOrNull(recovery.until)}::timestamptz IS NULL OR d.created_at < ${dateOrNull(recovery.until)})
      )::int AS count,
      (SELECT count(*) FROM unsuccessful) < ${maxCountedRecoveries}
        AND (SELECT count(*) FROM canceled) < ${maxCountedRecoveries} AS "isAll"`.pipe(Effect.map(([row]) => row!))

/**
 * Starts a recovery, in a transaction: makes the first deliveries due now, and leaves the others to a sweep.
 *
 * @returns how many deliveries it recovers, whether that is all of them, and whether a sweep follows
 */
export const recoverDeliveries = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  recovery: Recovery,
  now: DateTime.Utc,
) {
  const { orgId, endpointId, since, until } = recovery
  const [endpoint] = yield* sql<{ active: boolean }>`
    SELECT active FROM webhook_endpoints WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
  if (endpoint === undefined) return yield* endpointNotFound()
  if (!endpoint.active) return yield* endpointInactive()
  // A statement after the lock, so that it sees the sweep of a deactivation that it waited for.
  const [open] = yield* sql<{ sweeps: number }>`
    SELECT count(*)::int AS sweeps FROM sweeps WHERE endpoint_id = ${endpointId}`
  const { sweeps } = open!
  if (sweeps >= maxSweepsPerEndpoint) {
    return yield* new Conflict({
      error: "Other recoveries of this endpoint are still running; try again when they have ended.",
    })
  }
  // Earlier sweeps of the endpoint run first, so this recovery leaves all its deliveries to its own sweep.
  const first =
    sweeps === 0
      ? yield* recoverBatch(sql, recovery, "", inlineRecoveries, now)
      : { rows: inlineRecoveries, last: "", recovered: 0 }
  if (first.rows < inlineRecoveries) return { recovered: first.recovered, isAll: true, hasMore: false }
  const others = yield* countRecovery(sql, recovery)
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, endpoint_id, since, until, done_to, created_at)
    VALUES (${yield* random.ulid}, ${orgId}, 'recover', ${endpointId}, ${date(since)}, ${dateOrNull(until)}, ${first.last},
      ${date(now)})`
  return { recovered: first.recovered + others.count, isAll: others.isAll, hasMore: true }
})
