import { DateTime, Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Recovery } from "../../domain/webhooks/DeliveryLog.ts"
import { date, dateOrNull } from "../database/fragments.ts"

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
/** How much earlier than its delivery was created an id may be made, at most. */
const idMargin = Duration.hours(1)

/** An id before those of all deliveries that were created from a time on: an id begins with the milliseconds of its time. */
const idBefore = (since: DateTime.Utc) => {
  const millis = Math.max(0, DateTime.toEpochMillis(since) - Duration.toMillis(idMargin))
  return Array.from({ length: 10 }, (_, n) => digits[Math.floor(millis / 32 ** (9 - n)) % 32]).join("")
}

/** Which unsuccessful deliveries `d` a recovery means. The id is for the index: no older delivery is read. */
const meant = (sql: SqlClient.SqlClient, { orgId, endpointId, since, until }: Recovery) => sql`
  d.endpoint_id = ${endpointId} AND d.org_id = ${orgId} AND d.unsuccessful IS NOT NULL AND d.id > ${idBefore(since)}
  AND d.created_at >= ${date(since)} AND (${dateOrNull(until)}::timestamptz IS NULL OR d.created_at < ${dateOrNull(until)})`

/**
 * Makes the first deliveries of a recovery due now, after `doneTo`. They are parked from the start: a backlog that comes due
 * at once stays out of the other lanes' way. An attempt in flight goes on, and its result is recorded.
 *
 * @returns how many were looked at, the last of them, and how many are due now
 */
export const recoverBatch = (
  sql: SqlClient.SqlClient,
  recovery: Recovery,
  doneTo: string,
  limit: number,
  now: DateTime.Utc,
) =>
  sql<{ rows: number; last: string | null; recovered: number }>`
    WITH endpoint AS (
      SELECT id, coalesce(lane, id) AS lane FROM webhook_endpoints
      WHERE id = ${recovery.endpointId} AND org_id = ${recovery.orgId} AND active FOR SHARE
    ), head AS (
      SELECT d.id FROM deliveries d WHERE ${meant(sql, recovery)} AND d.id > ${doneTo} AND EXISTS (SELECT FROM endpoint)
      ORDER BY d.id LIMIT ${limit}
    ), held AS (
      SELECT d.*, endpoint.lane, octet_length(e.body) AS bytes FROM (SELECT * FROM head ORDER BY id OFFSET 0) AS head
      CROSS JOIN LATERAL (
        SELECT id, event_id, attempts, lease_until, claim_id FROM deliveries
        WHERE id = head.id AND unsuccessful IS NOT NULL FOR NO KEY UPDATE
      ) AS d
      CROSS JOIN endpoint
      CROSS JOIN LATERAL (SELECT body FROM events WHERE id = d.event_id OFFSET 0) e
    ), queued AS (
      INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, claim_id, lease_until,
        org_id, bytes)
      SELECT lane, id, event_id, attempts, 0, ${date(now)}, true, claim_id, lease_until, ${recovery.orgId}, bytes FROM held
    ), changed AS (
      UPDATE deliveries SET state = 'pending', lane = (SELECT lane FROM endpoint), claim_id = NULL, lease_until = NULL,
        updated_at = ${date(now)}
      WHERE id = ANY(ARRAY(SELECT id FROM held))
    )
    SELECT count(*)::int AS rows, max(id) AS last, (SELECT count(*)::int FROM held) AS recovered FROM head`.pipe(
    Effect.map(([row]) => row!),
  )

/**
 * How many deliveries a recovery means: the unsuccessful ones, and those that are canceled and whose sweep has not come to
 * them. Read from indexes alone, but for pages that changed lately.
 */
export const countRecovery = (sql: SqlClient.SqlClient, recovery: Recovery) =>
  sql<{ count: number }>`
    SELECT (SELECT count(*) FROM deliveries d WHERE ${meant(sql, recovery)} AND NOT EXISTS (
        SELECT FROM sweeps s WHERE s.endpoint_id = d.endpoint_id AND s.kind = 'recover' AND d.id > s.done_to
          AND d.created_at >= s.since AND (s.until IS NULL OR d.created_at < s.until)
      ))::int + (
        SELECT count(*) FROM sweeps s JOIN pending_deliveries p ON p.lane = s.lane
        JOIN deliveries d ON d.id = p.delivery_id
        WHERE s.endpoint_id = ${recovery.endpointId} AND s.kind = 'cancel' AND d.created_at >= ${date(recovery.since)}
          AND (${dateOrNull(recovery.until)}::timestamptz IS NULL OR d.created_at < ${dateOrNull(recovery.until)})
      )::int AS count`.pipe(Effect.map(([row]) => row!.count))
