import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { reachedOut } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { texts, times } from "./arrays.ts"
import { date } from "./fragments.ts"

interface EndpointRow {
  readonly id: string
  readonly url: string
  readonly failing_since: Date | null
}

/** The endpoints of attempts that they may tell something new of, by their ids: a success tells nothing of one that works. */
export const endpointsOf = (sql: SqlClient.SqlClient, records: ReadonlyArray<AttemptRecord>) =>
  sql<EndpointRow>`
    SELECT id, url, failing_since FROM webhook_endpoints
    WHERE id = ANY(${texts(new Set(records.map(({ delivery }) => delivery.endpointId)))})
      AND (failing_since IS NOT NULL OR ${records.some(({ verdict }) => verdict._tag !== "Delivered")})`.pipe(
    Effect.map((rows) => new Map(rows.map((row) => [row.id, row]))),
  )

/**
 * What attempts tell of their endpoints: those that work again, those that fail now, and the attempts that end theirs;
 * `undefined` when it is nothing new.
 */
export const endpointNews = (
  records: ReadonlyArray<AttemptRecord>,
  endpoints: ReadonlyMap<string | null, EndpointRow>,
) => {
  const working = new Set<string>()
  const failing = new Set<string>()
  const ending: Array<AttemptRecord> = []
  for (const record of records) {
    const { delivery, outcome, verdict } = record
    const endpoint = endpoints.get(delivery.endpointId)
    // An endpoint whose url was changed since is another receiver: what the old one said does not tell of it.
    if (endpoint === undefined || endpoint.url !== delivery.url || !reachedOut(outcome)) continue
    const { id, failing_since } = endpoint
    if (verdict._tag === "Delivered") {
      failing.delete(id)
      if (failing_since !== null) working.add(id)
    } else if (failing_since === null || working.has(id)) failing.add(id)
    if (verdict._tag === "Deactivate") ending.push(record)
  }
  return working.size + failing.size + ending.length === 0 ? undefined : { working, failing, ending }
}

/**
 * Writes what attempts tell of their endpoints, and gives those that were deactivated. To be run in a transaction, before
 * any delivery is locked.
 */
export const recordEndpoints = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  endpoints: ReadonlyMap<string | null, EndpointRow>,
  now: DateTime.Utc,
) {
  const news = endpointNews(records, endpoints)
  if (news === undefined) return []
  const { working, failing, ending } = news
  const changing = [...working, ...failing, ...ending.map(({ delivery }) => delivery.endpointId)]
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
