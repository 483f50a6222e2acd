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

interface OldKey {
  readonly name: string
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
    const { id, prefix, hash, now, expiresAt, oldKeyUntil } = replacement
    const [old] = yield* sql<OldKey>`
      SELECT key.name, expires_at AS "expiresAt", replaced_by AS "replacedBy", ${limit.guard(sql.literal("false"))} AS room
      FROM api_keys key JOIN orgs org ON org.id = key.org_id
      WHERE key.id = ${keyId} AND key.org_id = ${orgId} FOR UPDATE OF key`
    if (old === undefined) return yield* keyNotFound()
    if (old.replacedBy !== null) return yield* keyReplaced()
    if (old.expiresAt !== null && old.expiresAt.getTime() <= DateTime.toEpochMillis(now)) return yield* keyExpired()
    if (!old.room) yield* limit.take(orgOwner(sql, orgId))
    yield* sql`
      INSERT INTO api_keys (id, org_id, project_id, name, prefix, hash, created_at, expires_at, rate_limit, rate_window)
      SELECT ${id}, org_id, project_id, name, ${prefix}, decode(${hash}, 'hex'), ${date(now)},
        ${expiresAt === undefined ? sql`expires_at` : sql`${dateOrNull(expiresAt)}::timestamptz`}, rate_limit, rate_window
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
