import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { KeyReplacement } from "../../domain/ApiKeyRepository.ts"
import { keyExpired, keyNotFound, keyReplaced } from "../../domain/ApiKeyRepository.ts"
import type { AuditEntry } from "../../domain/AuditEntry.ts"
import { channel } from "../KeyRevocations.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { audited } from "./audited.ts"
import { date, dateOrNull } from "./fragments.ts"

interface OldKey {
  readonly name: string
  readonly expiresAt: Date | null
  readonly replacedBy: string | null
}

/** Puts a new key in the place of an org's; the old one's end, and word of it, are committed together. */
export const rotateKey = (
  sql: SqlClient.SqlClient,
  orgId: string,
  keyId: string,
  replacement: KeyReplacement,
  entry: AuditEntry,
) =>
  Effect.gen(function* () {
    const { id, prefix, hash, now, expiresAt, oldKeyUntil } = replacement
    const [old] = yield* sql<OldKey>`
      SELECT name, expires_at AS "expiresAt", replaced_by AS "replacedBy" FROM api_keys
      WHERE id = ${keyId} AND org_id = ${orgId} FOR UPDATE`
    if (old === undefined) return yield* keyNotFound()
    if (old.replacedBy !== null) return yield* keyReplaced()
    if (old.expiresAt !== null && old.expiresAt.getTime() <= DateTime.toEpochMillis(now)) return yield* keyExpired()
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
        RETURNING org_id AS "orgId", pg_notify(${channel}, id)`,
    )
    return { name: old.name }
  }).pipe(sql.withTransaction, orUnavailable)
