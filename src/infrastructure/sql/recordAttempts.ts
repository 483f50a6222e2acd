import type { DateTime } from "effect"
import { Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Verdict } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { integers, texts, times } from "./arrays.ts"
import { cancelPending } from "./cancelPending.ts"
import { date } from "./fragments.ts"
import { recordEndpoints } from "./recordEndpoints.ts"

const states: Record<Verdict["_tag"], string> = {
  Delivered: "delivered",
  Retry: "pending",
  Exhausted: "failed",
  Deactivate: "failed",
}

/** PostgreSQL keeps no NUL, and what one receiver said must not keep a whole batch from being recorded. */
const storable = (text: string | null | undefined) => text?.replaceAll("\0", "\uFFFD") ?? null

/** Writes attempts down and moves their deliveries on. To be run in a transaction; endpoints are locked before deliveries. */
export const recordAttempts = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) {
  const ended = yield* recordEndpoints(sql, records, now)
  const text = (f: (record: AttemptRecord) => string | null) => texts(records.map(f))
  const integer = (f: (record: AttemptRecord) => number | null) => integers(records.map(f))
  const time = (f: (record: AttemptRecord) => DateTime.Utc | null) => times(records.map(f))
  yield* sql`
    WITH made AS (
      SELECT * FROM unnest(
        ${text((r) => r.delivery.deliveryId)}, ${text((r) => r.delivery.claimId)}, ${text((r) => states[r.verdict._tag])},
        ${time((r) => r.nextAttemptAt)}, ${integer((r) => r.delivery.attempts + 1)}, ${time((r) => r.startedAt)},
        ${integer((r) => Math.round(Duration.toMillis(r.outcome.duration)))}, ${integer((r) => r.outcome.status)},
        ${text((r) => r.outcome.failure?.kind ?? null)}, ${text((r) => storable(r.outcome.failure?.message))},
        ${text((r) => storable(r.outcome.body))}
      ) AS made (id, claim_id, state, next_at, number, started_at, duration_ms, status, failure, error, body)
    ), held AS (
      -- In the order in which cancelPending takes them, or the two could wait for each other.
      SELECT d.id FROM made JOIN deliveries d ON d.id = made.id AND d.claim_id = made.claim_id
      ORDER BY d.id FOR UPDATE OF d
    ), moved AS (
      UPDATE deliveries d SET attempts = made.number, tries = d.tries + 1, claim_id = NULL, updated_at = ${date(now)},
        -- Canceled while it was in flight: only a success is news.
        state = CASE WHEN d.state = 'pending' OR made.state = 'delivered' THEN made.state ELSE d.state END,
        next_attempt_at = CASE WHEN d.state = 'pending' THEN made.next_at END
      FROM made JOIN held ON held.id = made.id WHERE d.id = held.id
      RETURNING d.id, d.org_id, made.number, made.started_at, made.duration_ms, made.status, made.failure, made.error,
        made.body
    )
    INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status, failure, error, body)
    SELECT * FROM moved`
  // After the deliveries that got the answer have moved to failed.
  if (ended.length > 0) yield* cancelPending(sql, ended, now)
})
