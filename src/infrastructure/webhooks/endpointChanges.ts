import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import type { DeactivatedReason } from "../../domain/webhooks/WebhookEndpoint.ts"
import type { WebhookEndpointRepository } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { audited } from "../audit/audited.ts"
import { integersOrNull, textsOrNull } from "../database/arrays.ts"
import { date } from "../database/fragments.ts"
import { cancelLanes, type EndedLane } from "./cancelLanes.ts"
import { removePace, setPace } from "./endpointPaces.ts"
import { nextLane } from "./laneSql.ts"

type Sql = SqlClient.SqlClient
type Random = SecureRandom.SecureRandom["Service"]
type EndpointUpdate = Parameters<WebhookEndpointRepository["Service"]["update"]>[2]

/** Locks an endpoint if it is active; returns its lane, which ends when the endpoint is deactivated. */
const lockActive = (sql: Sql, orgId: string, id: string) => sql<EndedLane>`
  SELECT org_id AS "orgId", id AS "endpointId", coalesce(lane, id) AS lane FROM webhook_endpoints
  WHERE id = ${id} AND org_id = ${orgId} AND active FOR NO KEY UPDATE`

/** The part of an UPDATE that ends the lane of a deactivated endpoint, and says when and why. */
const endLane = (sql: Sql, now: DateTime.Utc, reason: typeof DeactivatedReason.Type) =>
  sql`lane = ${nextLane(sql)}, deactivated_at = ${date(now)}, deactivated_reason = ${reason}`

/** The assignments of an UPDATE for the settings of a request. */
const settings = (sql: Sql, changes: EndpointUpdate) => {
  const { eventTypes, headers, maxPerSecond, ordered, retryDelays, signature } = changes
  return [
    eventTypes !== undefined && sql`event_types = ${textsOrNull(eventTypes)}::text[]`,
    headers !== undefined &&
      sql`headers = ${headers?.stored ?? null}, header_names = ${textsOrNull(headers?.names ?? null)}::text[]`,
    maxPerSecond !== undefined && sql`max_per_second = ${maxPerSecond}::int`,
    ordered !== undefined && sql`ordered = ${ordered}::boolean`,
    retryDelays !== undefined && sql`retry_delays = ${integersOrNull(retryDelays)}::int[]`,
    signature !== undefined && sql`signature = ${signature}`,
  ].filter((set) => set !== false)
}

/** The assignments of an UPDATE for a request's changes. */
const assignments = (sql: Sql, changes: EndpointUpdate, isDeactivated: boolean) => {
  const sets = [sql`updated_at = ${date(changes.now)}`]
  if (changes.url !== undefined) sets.push(sql`url = ${changes.url}`)
  if (changes.description !== undefined) sets.push(sql`description = ${changes.description}`)
  if (changes.active !== undefined) sets.push(sql`active = ${changes.active}`)
  // An endpoint that is activated, or has a new URL, has no failures yet.
  if (changes.active === true) {
    sets.push(sql`failing_since = NULL, failures = 0, deactivated_at = NULL, deactivated_reason = NULL`)
  } else if (changes.url !== undefined) {
    sets.push(sql`failing_since = CASE WHEN url = ${changes.url} THEN failing_since END`)
  }
  sets.push(...settings(sql, changes))
  if (isDeactivated) sets.push(endLane(sql, changes.now, "by_request"))
  if (changes.secret !== undefined) {
    sets.push(
      sql`previous_secret = secret`,
      sql`previous_secret_until = ${date(changes.previousSecretUntil)}`,
      sql`secret = ${changes.secret}`,
    )
  }
  return sets
}

/** Changes an endpoint as a request asks, in a transaction; returns no row when there is no such endpoint. */
export const updateEndpoint = Effect.fnUntraced(function* (
  sql: Sql,
  random: Random,
  orgId: string,
  id: string,
  changes: EndpointUpdate,
  entry: AuditEntry,
) {
  if (changes.maxPerSecond != null) yield* setPace(sql, orgId, id, changes.now)
  const ended = changes.active === false ? yield* lockActive(sql, orgId, id) : []
  const sets = assignments(sql, changes, ended.length > 0)
  const updated = yield* audited(
    sql,
    // An endpoint that was inactive before is not announced again.
    ended.length === 0 ? { ...entry, event: undefined } : entry,
    sql`
      UPDATE webhook_endpoints SET ${sql.csv(sets)} WHERE id = ${id} AND org_id = ${orgId}
      RETURNING org_id AS "orgId"`,
  )
  yield* cancelLanes(sql, random, ended, changes.now)
  return updated
})

/** Deactivates an endpoint that fails, in a transaction; returns whether it was active. */
export const deactivateEndpoint = Effect.fnUntraced(function* (
  sql: Sql,
  random: Random,
  orgId: string,
  id: string,
  now: DateTime.Utc,
  entry: AuditEntry,
) {
  const ended = yield* lockActive(sql, orgId, id)
  if (ended.length === 0) return false
  yield* audited(
    sql,
    entry,
    sql`
      UPDATE webhook_endpoints SET active = false, updated_at = ${date(now)}, ${endLane(sql, now, "failing")}
      WHERE id = ${id} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
  )
  yield* cancelLanes(sql, random, ended, now)
  return true
})

/** Deletes an endpoint, in a transaction; returns no row when there is no such endpoint. */
export const removeEndpoint = Effect.fnUntraced(function* (
  sql: Sql,
  random: Random,
  orgId: string,
  id: string,
  now: DateTime.Utc,
  entry: AuditEntry,
) {
  const removed = (yield* audited(
    sql,
    entry,
    sql`
      DELETE FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}
      RETURNING org_id AS "orgId", id AS "endpointId", coalesce(lane, id) AS lane`,
  )) as ReadonlyArray<unknown> as ReadonlyArray<EndedLane>
  yield* cancelLanes(sql, random, removed, now)
  yield* removePace(sql, orgId, id)
  return removed
})
