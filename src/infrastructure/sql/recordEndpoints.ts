import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { reachedOut } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { texts, times } from "./arrays.ts"
import { date } from "./fragments.ts"

interface EndpointRow {
  readonly delivery_id: string
  readonly url: string
  readonly failing_since: Date | null
}

/**
 * What attempts tell of their endpoints: since when one fails, that one works again, that one is to be deactivated. Gives
 * those that were deactivated.
 */
export const recordEndpoints = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) {
  // Without a lock: of a healthy endpoint nothing changes, and nobody is to wait for it.
  const rows = yield* sql<EndpointRow>`
    SELECT d.id AS delivery_id, w.url, w.failing_since
    FROM unnest(${texts(records.map(({ delivery }) => delivery.deliveryId))},
      ${texts(records.map(({ delivery }) => delivery.claimId))}) AS made (id, claim_id)
    JOIN deliveries d ON d.id = made.id AND d.claim_id = made.claim_id
    JOIN webhook_endpoints w ON w.id = d.endpoint_id`
  const rowOf = new Map(rows.map((row) => [row.delivery_id, row]))
  // An endpoint whose url was changed since is another receiver: what the old one said does not tell of it.
  const telling = records.filter(
    ({ delivery, outcome }) => reachedOut(outcome) && rowOf.get(delivery.deliveryId)?.url === delivery.url,
  )

  const working = new Set<string>()
  const failing = new Set<string>()
  for (const { delivery, verdict } of telling) {
    const id = delivery.endpointId!
    const fails = rowOf.get(delivery.deliveryId)!.failing_since !== null
    if (verdict._tag !== "Delivered") {
      if (!fails || working.has(id)) failing.add(id)
    } else {
      failing.delete(id)
      if (fails) working.add(id)
    }
  }
  const ending = telling.filter(({ verdict }) => verdict._tag === "Deactivate")
  const changing = [...working, ...failing, ...ending.map(({ delivery }) => delivery.endpointId)]
  if (changing.length === 0) return []

  yield* sql`SELECT id FROM webhook_endpoints WHERE id = ANY(${texts(changing)}) ORDER BY id FOR NO KEY UPDATE`
  if (working.size > 0) {
    yield* sql`UPDATE webhook_endpoints SET failing_since = NULL WHERE id = ANY(${texts(working)})`
  }
  if (failing.size > 0) {
    yield* sql`
      UPDATE webhook_endpoints SET failing_since = ${date(now)}
      WHERE id = ANY(${texts(failing)}) AND failing_since IS NULL`
  }
  if (ending.length === 0) return []
  // 410 ends it as it is; five days of failures, unless it has worked or was switched on since the claim.
  const failingSince = ending.map(({ delivery, outcome }) => (outcome.status === 410 ? null : delivery.failingSince))
  const ended = yield* sql<{ id: string }>`
    UPDATE webhook_endpoints w SET active = false, updated_at = ${date(now)}
    FROM unnest(${texts(ending.map(({ delivery }) => delivery.endpointId))},
      ${texts(ending.map(({ delivery }) => delivery.url))}, ${times(failingSince)}) AS ended (id, url, failing_since)
    WHERE w.id = ended.id AND w.url = ended.url AND w.active
      AND (ended.failing_since IS NULL OR ended.failing_since = w.failing_since)
    RETURNING w.id`
  return ended.map(({ id }) => id)
})
