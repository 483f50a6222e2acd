import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { type KeyChange, keyLeaked, keyNotFound } from "../../domain/keys/ApiKeyRepository.ts"
import type { RateLimit } from "../../domain/keys/KeySettings.ts"
import { audited } from "../audit/audited.ts"
import { dateOrNull } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { changeCounter, changesLimits } from "./keyLimits.ts"
import { decodeKeys, keyColumns } from "./keyRows.ts"
import { hasOwner } from "./keyOwner.ts"
import { revocationChannel } from "./KeyRevocations.ts"

interface OldKey {
  readonly leaked: boolean
  readonly counterId: string
  readonly rateLimit: RateLimit | null
}

/** Keys with one counter that a change notifies of: as many as a key was rotated within the longest overlap. */
const maxNotified = 1_000

const json = (value: unknown) => (value === null ? null : JSON.stringify(value))

/** The columns to set. */
const setsOf = (sql: SqlClient.SqlClient, change: KeyChange) => {
  const sets = []
  const { enabled, expiresAt, externalId, metadata, name, permissions, rateLimit } = change
  if (name !== undefined) sets.push(sql`name = ${name}`)
  if (enabled !== undefined) sets.push(sql`enabled = ${enabled}`)
  if (expiresAt !== undefined) sets.push(sql`expires_at = ${dateOrNull(expiresAt)}::timestamptz`)
  if (externalId !== undefined) sets.push(sql`external_id = ${externalId}::text`)
  if (metadata !== undefined) sets.push(sql`metadata = ${json(metadata)}::text::json`)
  if (permissions !== undefined) sets.push(sql`permissions = ${json(permissions)}::text::json`)
  if (rateLimit !== undefined) {
    sets.push(sql`rate_limit = ${rateLimit?.limit ?? null}::int, rate_window = ${rateLimit?.window ?? null}::int`)
  }
  return sets
}

/** Notifies every replica of the keys that are affected by a change: the key, and those with the same counter. */
const notify = (sql: SqlClient.SqlClient, orgId: string, keyId: string, counterId: string | undefined) =>
  sql<{ readonly id: string }>`
    SELECT id, pg_notify(${revocationChannel}, id) FROM (
      SELECT id FROM api_keys WHERE org_id = ${orgId} AND id = ANY(ARRAY[${keyId}, ${counterId ?? keyId}]::text[])
      UNION
      (SELECT id FROM api_keys
        WHERE org_id = ${orgId} AND counter_id = ${counterId ?? ""} AND (expires_at IS NULL OR expires_at > now())
        LIMIT ${maxNotified})
    ) AS affected`.pipe(Effect.map((rows) => rows.map(({ id }) => id)))

/** Changes a key of an org. Commits the change, its entry and its notifications together. */
export const changeKey = (
  sql: SqlClient.SqlClient,
  orgId: string,
  keyId: string,
  change: KeyChange,
  entry: AuditEntry,
) =>
  Effect.gen(function* () {
    const [old] = yield* sql<OldKey>`
      SELECT leaked_at IS NOT NULL AS leaked, coalesce(counter_id, id) AS "counterId",
        CASE WHEN rate_limit IS NOT NULL THEN json_build_object('limit', rate_limit, 'window', rate_window) END AS "rateLimit"
      FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId} AND ${hasOwner(sql)} FOR UPDATE`
    if (old === undefined) return yield* keyNotFound()
    if (old.leaked && change.enabled === true) return yield* keyLeaked()
    const { counterId } = old
    const isLimitChange = changesLimits(change)
    if (isLimitChange) yield* changeCounter(sql, { ...old, orgId }, change)
    const sets = setsOf(sql, change)
    // A change of credits alone sets no column.
    if (sets.length === 0) sets.push(sql`enabled = enabled`)
    yield* audited(
      sql,
      entry,
      sql`UPDATE api_keys SET ${sql.csv(sets)} WHERE id = ${keyId} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
    )
    const changed = yield* notify(sql, orgId, keyId, isLimitChange ? counterId : undefined)
    const [key] = yield* decodeKeys(
      sql`SELECT ${keyColumns(sql)} FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}`,
    )
    return { key: key!, changed }
  }).pipe(sql.withTransaction, orUnavailable)

/** Disables a key for good. Commits the change, its entry and its notification together. */
export const disableLeakedKey = (
  sql: SqlClient.SqlClient,
  hash: string,
  entryOf: (keyId: string) => Effect.Effect<AuditEntry>,
) =>
  Effect.gen(function* () {
    const [found] = yield* sql<{ readonly keyId: string; readonly orgId: string; readonly isNew: boolean }>`
      SELECT id AS "keyId", org_id AS "orgId", leaked_at IS NULL AS "isNew"
      FROM api_keys WHERE hash = decode(${hash}, 'hex') AND ${hasOwner(sql)} FOR UPDATE`
    if (found === undefined || !found.isNew) return found
    const { keyId, orgId } = found
    yield* audited(
      sql,
      yield* entryOf(keyId),
      sql`
        UPDATE api_keys SET enabled = false, leaked_at = now() WHERE id = ${keyId} AND org_id = ${orgId}
        RETURNING org_id AS "orgId"`,
    )
    yield* notify(sql, orgId, keyId, undefined)
    return found
  }).pipe(sql.withTransaction, orUnavailable)
