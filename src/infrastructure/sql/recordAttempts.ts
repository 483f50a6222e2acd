import type { DateTime } from "effect"
import { Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Verdict } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { integers, texts, times } from "./arrays.ts"
import { cancelPending } from "./cancelPending.ts"
import { date } from "./fragments.ts"

const states: Record<Verdict["_tag"], string> = {
  Delivered: "delivered",
  Retry: "pending",
  Exhausted: "failed",
  Deactivate: "failed",
}

/** Writes attempts down and moves their deliveries on. To be run in a transaction; endpoints are locked before deliveries. */
export const recordAttempts = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) {
  yield* recordEndpoints(sql, records, now)
  const text = (f: (record: AttemptRecord) => string | null) => texts(records.map(f))
  const integer = (f: (record: AttemptRecord) => number | null) => integers(records.map(f))
  const time = (f: (record: AttemptRecord) => DateTime.Utc | null) => times(records.map(f))
  yield* sql`
    WITH made AS (
      SELECT * FROM unnest(
        ${text((r) => r.delivery.deliveryId)}, ${text((r) => r.delivery.claimId)}, ${text((r) => states[r.verdict._tag])},
        ${time((r) => r.nextAttemptAt)}, ${integer((r) => r.delivery.attempts + 1)}, ${time((r) => r.startedAt)},
        ${integer((r) => Math.round(Duration.toMillis(r.outcome.duration)))}, ${integer((r) => r.outcome.status)},
        ${text((r) => r.outcome.failure?.kind ?? null)}, ${text((r) => r.outcome.failure?.message ?? null)},
        ${text((r) => r.outcome.body)}
      ) AS made (id, claim_id, state, next_at, number, started_at, duration_ms, status, failure, error, body)
    ), moved AS (
      UPDATE deliveries d SET attempts = made.number, tries = d.tries + 1, claim_id = NULL, updated_at = ${date(now)},
        -- Canceled while it was in flight: only a success is news.
        state = CASE WHEN d.state = 'pending' OR made.state = 'delivered' THEN made.state ELSE d.state END,
        next_attempt_at = CASE WHEN d.state = 'pending' THEN made.next_at END
      FROM made WHERE d.id = made.id AND d.claim_id = made.claim_id
      RETURNING d.id, d.org_id, made.number, made.started_at, made.duration_ms, made.status, made.failure, made.error,
        made.body
    )
    INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status, failure, error, body)
    SELECT * FROM moved`
})

/** What attempts tell of their endpoints: since when one fails, that one works again, that one is to be deactivated. */
const recordEndpoints = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) {
  const last = new Map<string, AttemptRecord>()
  for (const record of records) {
    if (record.delivery.endpointId !== null) last.set(record.delivery.endpointId, record)
  }
  const ids = (wanted: (record: AttemptRecord) => boolean) =>
    [...last].filter(([, record]) => wanted(record)).map(([id]) => id)
  const failing = ids((record) => record.verdict._tag !== "Delivered" && record.delivery.failingSince === null)
  const working = ids((record) => record.verdict._tag === "Delivered" && record.delivery.failingSince !== null)
  const ending = records.filter((record) => record.verdict._tag === "Deactivate" && record.delivery.endpointId !== null)
  if (failing.length + working.length + ending.length === 0) return

  yield* sql`
    SELECT id FROM webhook_endpoints
    WHERE id = ANY(${texts([...failing, ...working, ...ending.map((record) => record.delivery.endpointId)])})
    ORDER BY id FOR NO KEY UPDATE`
  if (failing.length > 0) {
    yield* sql`
      UPDATE webhook_endpoints SET failing_since = ${date(now)}
      WHERE id = ANY(${texts(failing)}) AND failing_since IS NULL`
  }
  if (working.length > 0) {
    yield* sql`UPDATE webhook_endpoints SET failing_since = NULL WHERE id = ANY(${texts(working)})`
  }
  if (ending.length > 0) {
    // An endpoint whose url was changed since is another receiver: what the old one said does not end it.
    const ended = yield* sql<{ id: string }>`
      UPDATE webhook_endpoints w SET active = false, updated_at = ${date(now)}
      FROM unnest(${texts(ending.map((record) => record.delivery.endpointId))},
        ${texts(ending.map((record) => record.delivery.url))}) AS ended (id, url)
      WHERE w.id = ended.id AND w.url = ended.url AND w.active
      RETURNING w.id`
    // The delivery that got the answer is moved to failed afterwards, by its claim.
    if (ended.length > 0)
      yield* cancelPending(
        sql,
        ended.map(({ id }) => id),
        now,
      )
  }
})
