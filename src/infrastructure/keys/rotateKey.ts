import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { KeyReplacement } from "../../domain/keys/ApiKeyRepository.ts"
import { keyExpired, keyNotFound, keyReplaced } from "../../domain/keys/ApiKeyRepository.ts"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { revocationChannel } from "./KeyRevocations.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { date, dateOrNull } from "../database/fragments.ts"
import { type Limited, orgOwner } from "../orgs/limited.ts"
import { hasOwner } from "./keyOwner.ts"
import type { RateLimit, SettingsChange } from "../../domain/keys/KeySettings.ts"
import { changeCounter } from "./keyLimits.ts"

/** The settings of the new key as SQL: those that are given, else those of the old key. */
const newSettings = (sql: SqlClient.SqlClient, settings: SettingsChange) => {
  const json = (value: unknown) => sql`${value === null ? null : JSON.stringify(value)}::text::json`
  const { enabled, externalId, metadata, permissions, rateLimit } = settings
  return sql.csv([
    // A leaked key is replaced by one that is enabled.
    enabled === undefined ? sql`enabled OR leaked_at IS NOT NULL` : sql`${enabled}::boolean`,
    permissions === undefined ? sql`permissions` : json(permissions),
    externalId === undefined ? sql`external_id` : sql`${externalId}::text`,
    metadata === undefined ? sql`metadata` : json(metadata),
    ...(rateLimit === undefined
      ? [sql`rate_limit`, sql`rate_window`]
      : [sql`${rateLimit?.limit ?? null}::int`, sql`${rateLimit?.window ?? null}::int`]),
  ])
}

interface OldKey {
  readonly name: string
  readonly counterId: string
  readonly rateLimit: RateLimit | null
  readonly expiresAt: Date | null
  readonly replacedBy: string | null
  /** Whether the org certainly has room for another key. */
  readonly room: boolean
}

/** Replaces a key of an org. Commits the end of the old key and its notification together. */
export const rotateKey = (
  sql: SqlClient.SqlClient,
  limit: Limited,
  orgId: string,
  keyId: string,
  replacement: KeyReplacement,
  entry: AuditEntry,
) =>
  Effect.gen(function* () {
    const { id, prefix, hash, now, expiresAt, oldKeyUntil, settings } = replacement
    const [old] = yield* sql<OldKey>`
      SELECT key.name, expires_at AS "expiresAt", replaced_by AS "replacedBy", coalesce(counter_id, key.id) AS "counterId",
        CASE WHEN rate_limit IS NOT NULL THEN json_build_object('limit', rate_limit, 'window', rate_window) END AS "rateLimit",
        ${limit.guard(sql.literal("false"))} AS room
      FROM api_keys key JOIN orgs org ON org.id = key.org_id
      WHERE key.id = ${keyId} AND key.org_id = ${orgId} AND ${hasOwner(sql, "key")} FOR UPDATE OF key`
    if (old === undefined) return yield* keyNotFound()
    if (old.replacedBy !== null) return yield* keyReplaced()
    if (old.expiresAt !== null && old.expiresAt.getTime() <= DateTime.toEpochMillis(now)) return yield* keyExpired()
    if (!old.room) yield* limit.take(orgOwner(sql, orgId))
    const isCounted = yield* changeCounter(sql, { ...old, orgId }, settings)
    yield* sql`
      INSERT INTO api_keys (
        id, org_id, project_id, name, prefix, hash, created_at, expires_at, counter_id,
        enabled, permissions, external_id, metadata, rate_limit, rate_window
      )
      SELECT ${id}, org_id, project_id, name, ${prefix}, decode(${hash}, 'hex'), ${date(now)},
        ${expiresAt === undefined ? sql`expires_at` : sql`${dateOrNull(expiresAt)}::timestamptz`},
        ${isCounted ? old.counterId : null}::text, ${newSettings(sql, settings)}
      FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}`
    yield* audited(
      sql,
      { ...entry, details: { name: old.name, ...entry.details } },
      sql`
        UPDATE api_keys SET replaced_by = ${id}, expires_at = least(expires_at, ${date(oldKeyUntil)}::timestamptz)
        WHERE id = ${keyId} AND org_id = ${orgId}
        RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,
    )
    return { name: old.name }
  }).pipe(sql.withTransaction, orUnavailable)
