import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { texts } from "../database/arrays.ts"
import { date } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"

/** A lane that its endpoint has left: all pending deliveries in it are canceled. */
export interface EndedLane {
  readonly orgId: string
  readonly endpointId: string
  readonly lane: string
}

/** Deliveries that are canceled together with the change of their endpoint; a sweep cancels the others. */
const inlineCancellations = 500

/**
 * Cancels the next pending deliveries in ended lanes, after `doneTo`. Locks the deliveries first, in the order of their ids,
 * like every statement that changes deliveries. An attempt in flight is still recorded: its delivery keeps the claim and
 * the lease.
 *
 * @returns how many deliveries it read, and the last of them
 */
export const cancelBatch = (
  sql: SqlClient.SqlClient,
  lanes: ReadonlyArray<string>,
  doneTo: string,
  limit: number,
  now: DateTime.Utc,
) =>
  sql<{ rows: number; last: string | null }>`
    WITH head AS (
      SELECT p.* FROM unnest(${texts(lanes)}) AS l (lane) CROSS JOIN LATERAL (
        SELECT lane, delivery_id AS id FROM pending_deliveries p
        WHERE p.lane = l.lane AND p.delivery_id > ${doneTo} ORDER BY p.delivery_id LIMIT ${limit}
      ) AS p LIMIT ${limit}
    ), held AS (
      SELECT head.* FROM (SELECT * FROM head ORDER BY id OFFSET 0) AS head
      CROSS JOIN LATERAL (SELECT id FROM deliveries WHERE id = head.id FOR NO KEY UPDATE) AS d
    ), gone AS (
      -- Arrays in place of joins: a join that was planned for a small table reads the whole table.
      DELETE FROM pending_deliveries WHERE lane = ANY(${texts(lanes)}) AND delivery_id = ANY(ARRAY(SELECT id FROM held))
      RETURNING delivery_id AS id, claim_id, lease_until
    ), claimed AS MATERIALIZED (
      -- A small set: a search of all gone rows for each of them would take quadratic time.
      SELECT id, claim_id, lease_until FROM gone WHERE claim_id IS NOT NULL
    ), changed AS (
      UPDATE deliveries d SET state = 'canceled', updated_at = ${date(now)},
        (claim_id, lease_until) = (SELECT claim_id, lease_until FROM claimed WHERE id = d.id)
      WHERE id = ANY(ARRAY(SELECT id FROM gone))
    )
    SELECT count(*)::int AS rows, max(id) AS last FROM head`.pipe(Effect.map(([row]) => row!))

/**
 * Cancels the pending deliveries of lanes that have just ended: the first ones now, the others by sweeps. From the commit on,
 * every reader and every claim takes all of them as canceled. Runs in the transaction that ends the lanes, after the change
 * of the endpoints: whoever inserts a delivery locks its endpoint first.
 */
export const cancelLanes = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  ended: ReadonlyArray<EndedLane>,
  now: DateTime.Utc,
) {
  if (ended.length === 0) return
  yield* sql`
    DELETE FROM sweeps WHERE kind = 'recover' AND endpoint_id = ANY(${texts(ended.map(({ endpointId }) => endpointId))})`
  const lanes = ended.map(({ lane }) => lane)
  const { rows } = yield* cancelBatch(sql, lanes, "", inlineCancellations, now)
  if (rows < inlineCancellations) return
  const ids = yield* Effect.forEach(ended, () => random.ulid)
  const made: Part = {
    name: "made",
    into: "sweeps",
    columns: "id, org_id, kind, endpoint_id, lane, created_at",
    rows: sql`
      SELECT id, org_id, 'cancel', endpoint_id, lane, ${date(now)}::timestamptz
      FROM unnest(${texts(ids)}, ${texts(ended.map(({ orgId }) => orgId))},
        ${texts(ended.map(({ endpointId }) => endpointId))}, ${texts(lanes)}) AS ended (id, org_id, endpoint_id, lane)`,
  }
  yield* runParts(sql, [made], sql`SELECT 1`)
})
