import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { EventType } from "../../domain/Delivery.ts"
import type { Claim } from "../../domain/DeliveryQueue.ts"
import { DeliveryQueue } from "../../domain/DeliveryQueue.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { integers, texts } from "./arrays.ts"
import { date } from "./fragments.ts"
import { recordAttempts } from "./recordAttempts.ts"

interface ClaimedRow {
  readonly id: string
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly type: EventType
  readonly body: string
  readonly url: string
  readonly secret: string
  readonly secret_owner: string
  readonly previous_secret: string | null
  readonly failing_since: Date | null
}

const toClaimed = (row: ClaimedRow, claimId: string): ClaimedDelivery => ({
  deliveryId: row.id,
  claimId,
  orgId: row.org_id,
  endpointId: row.endpoint_id,
  lane: row.lane,
  url: row.url,
  secrets: [row.secret, row.previous_secret]
    .filter((stored) => stored !== null)
    .map((stored) => ({ stored, owner: row.secret_owner })),
  event: row.type,
  body: row.body,
  attempts: row.attempts,
  tries: row.tries,
  failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
})

/** How much of the queue's head is read at least, so that a small claim gets past a large backlog as fast as any. */
const minHead = 256

/**
 * Takes up due deliveries. `ready` is the head of the queue; `backlog` is, of each lane with parked deliveries and room,
 * the first of those. What is due in the head and has no room in its lane is parked, so that no claim reads it again:
 * a lane's backlog costs the other lanes nothing.
 */
export const claimSql = (sql: SqlClient.SqlClient, { claimId, now, leaseUntil, limit, laneCap, inFlight }: Claim) => {
  const at = date(now)
  // What a lane w with f in flight has room for.
  const room = sql`(CASE WHEN w.failing_since IS NULL THEN ${laneCap}::int ELSE 1 END - coalesce(f.count, 0))`
  return sql<ClaimedRow>`
    WITH RECURSIVE ready AS (
      SELECT id, lane, endpoint_id, next_attempt_at, false AS parked FROM deliveries
      WHERE state = 'pending' AND NOT parked AND next_attempt_at <= ${at}
      ORDER BY next_attempt_at LIMIT ${Math.max(limit, minHead)} FOR UPDATE SKIP LOCKED
    ), lanes AS (
      (SELECT lane FROM deliveries WHERE state = 'pending' AND parked ORDER BY lane, next_attempt_at LIMIT 1)
      UNION ALL
      SELECT (SELECT d.lane FROM deliveries d WHERE d.state = 'pending' AND d.parked AND d.lane > lanes.lane
        ORDER BY d.lane, d.next_attempt_at LIMIT 1)
      FROM lanes WHERE lanes.lane IS NOT NULL
    ), flying AS (
      SELECT * FROM unnest(${texts(inFlight.keys())}, ${integers(inFlight.values())}) AS flying (lane, count)
    ), backlog AS (
      SELECT head.* FROM lanes
      LEFT JOIN webhook_endpoints w ON w.id = lanes.lane
      LEFT JOIN flying f ON f.lane = lanes.lane
      CROSS JOIN LATERAL (
        SELECT id, lane, endpoint_id, next_attempt_at, true AS parked FROM deliveries d
        WHERE d.state = 'pending' AND d.parked AND d.lane = lanes.lane AND d.next_attempt_at <= ${at}
        ORDER BY d.next_attempt_at LIMIT greatest(0, ${room}) FOR UPDATE SKIP LOCKED
      ) AS head
      WHERE lanes.lane IS NOT NULL AND ${room} > 0
    ), ranked AS (
      SELECT due.id, due.parked, due.next_attempt_at,
        row_number() OVER (PARTITION BY due.lane ORDER BY due.next_attempt_at, due.id)
          <= ${room} AS has_room
      FROM (SELECT * FROM ready UNION ALL SELECT * FROM backlog) AS due
      LEFT JOIN webhook_endpoints w ON w.id = due.endpoint_id
      LEFT JOIN flying f ON f.lane = due.lane
    ), parking AS (
      UPDATE deliveries SET parked = true
      WHERE id = ANY(ARRAY(SELECT id FROM ranked WHERE NOT has_room AND NOT parked))
    ), taken AS (
      UPDATE deliveries SET claim_id = ${claimId}, next_attempt_at = ${date(leaseUntil)}, parked = false
      -- As an array: for a subquery the planner expects hundreds, and reads tables of some thousand rows whole.
      WHERE id = ANY(ARRAY(SELECT id FROM ranked WHERE has_room ORDER BY next_attempt_at LIMIT ${limit}))
      RETURNING id, org_id, event_id, job_id, endpoint_id, lane, attempts, tries
    )
    SELECT t.id, t.org_id, t.endpoint_id, t.lane, t.attempts, t.tries, e.type, e.body,
      coalesce(w.url, j.callback_url) AS url, coalesce(w.secret, j.callback_secret) AS secret,
      coalesce(w.id, j.callback_secret_owner) AS secret_owner,
      CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret, w.failing_since
    FROM taken t
    JOIN events e ON e.id = t.event_id
    LEFT JOIN webhook_endpoints w ON w.id = t.endpoint_id
    LEFT JOIN jobs j ON j.id = t.job_id AND t.endpoint_id IS NULL
    ORDER BY t.id`
}

/** The outbox in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return DeliveryQueue.of({
      claim: (claim) =>
        claimSql(sql, claim).pipe(
          Effect.map((rows) => rows.map((row) => toClaimed(row, claim.claimId))),
          orUnavailable,
        ),

      record: (records, now) =>
        records.length === 0 ? Effect.void : recordAttempts(sql, records, now).pipe(sql.withTransaction, orUnavailable),

      nextDueAt: sql<{ next: Date | null }>`
        SELECT min(next_attempt_at) AS next FROM deliveries WHERE state = 'pending' AND NOT parked`.pipe(
        Effect.map(([row]) => (row?.next == null ? null : DateTime.fromDateUnsafe(row.next))),
        orUnavailable,
      ),
    })
  }),
)
