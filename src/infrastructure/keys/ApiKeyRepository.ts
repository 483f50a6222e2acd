import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { ApiKeyRepository, keyNotFound, type NewApiKey } from "../../domain/keys/ApiKeyRepository.ts"
import { orgNotFound } from "../../domain/Principal.ts"
import type { NotFound } from "../../domain/Errors.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { revocationChannel } from "./KeyRevocations.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { bytes, texts, times } from "../database/arrays.ts"
import { audited } from "../audit/audited.ts"
import { auditedTogether } from "../audit/auditedTogether.ts"
import { afterCursor, orgOf, pageOf, toJsonText } from "../database/fragments.ts"
import * as Limited from "../orgs/limited.ts"
import { changeKey, disableLeakedKey } from "./changeKey.ts"
import { lockCounters, nowMillis } from "./counterRows.ts"
import { decodeKeyPage, grantColumns, type GrantRow, keyColumns, toGrant } from "./keyRows.ts"
import { hasOwner } from "./keyOwner.ts"
import { rotateKey } from "./rotateKey.ts"

/** What `makeInsert` asks for: a key, its owner, and whether the org certainly has room. */
interface WantedKey extends Omit<NewApiKey, "metadata"> {
  /** As text: json_to_recordset refuses some strings that JSON allows. */
  readonly metadata: string | null
  readonly orgId: string | null
  readonly projectId: string | null
  readonly room: boolean
}

/** Inserts the counters of new keys that have limits. */
const insertCounters = (sql: SqlClient.SqlClient) => {
  const now = sql.literal(`${nowMillis}::bigint`)
  return sql`
    INSERT INTO key_counters (
      org_id, id, version, rate_limit, rate_window, rate_used, rate_current, rate_previous, rate_at,
      credits, credits_since, refill_amount, refill_every
    )
    SELECT changed."orgId", changed.id, 0, ("rateLimit"->>'limit')::int, ("rateLimit"->>'window')::int, 0, 0, 0, ${now},
      (credits->>'remaining')::bigint, CASE WHEN json_typeof(credits) = 'object' THEN ${now} END,
      (credits->'refill'->>'amount')::bigint, credits->'refill'->>'every'
    FROM changed JOIN asked USING (id)
    WHERE json_typeof("rateLimit") = 'object' OR json_typeof(credits) = 'object'`
}

/**
 * Inserts keys in batches.
 *
 * @param owner the rest of a SELECT from its columns org_id and project_id to its FROM, which reads `asked` and finds `org`
 */
const makeInsert = (sql: SqlClient.SqlClient, limit: Limited.Limited, owner: Statement.Fragment) =>
  auditedTogether<WantedKey>(
    sql,
    `id text, name text, prefix text, hash text, "createdAt" timestamptz, "expiresAt" timestamptz, "rateLimit" json,
      enabled boolean, permissions json, "externalId" text, metadata text, credits json, "orgId" text, "projectId" text,
      room boolean`,
    sql`
      INSERT INTO api_keys (
        id, name, prefix, hash, created_at, expires_at, rate_limit, rate_window, enabled, permissions, external_id, metadata,
        org_id, project_id
      )
      SELECT asked.id, asked.name, prefix, decode(hash, 'hex'), "createdAt", "expiresAt",
        ("rateLimit"->>'limit')::int, ("rateLimit"->>'window')::int, enabled, permissions, "externalId",
        metadata::json, ${owner}
      WHERE ${limit.guard(sql`asked.room`)}
      RETURNING id, org_id AS "orgId"`,
    insertCounters(sql),
  )

/** Inserts keys of projects and of orgs. */
const makeInserts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const limit = yield* Limited.make("keys")
  // Lateral subqueries: a plan made while these tables were small cannot read the whole tables later.
  const insertForProject = yield* makeInsert(
    sql,
    limit,
    sql`
      owner.org_id, owner.id FROM asked CROSS JOIN LATERAL (
        SELECT id, org_id FROM projects WHERE id = "projectId" AND ("orgId" IS NULL OR org_id = "orgId") OFFSET 0
      ) AS owner CROSS JOIN LATERAL (SELECT id, limits FROM orgs WHERE id = owner.org_id OFFSET 0) AS org`,
  )
  const insertForOrg = yield* makeInsert(
    sql,
    limit,
    sql`
      org.id, NULL FROM asked CROSS JOIN LATERAL (SELECT id, limits FROM orgs WHERE id = "orgId" OFFSET 0) AS org`,
  )
  const projectOwner = (orgId: string | null, projectId: string): Limited.Owner => ({
    key: projectId,
    from: () => sql`
      projects p JOIN orgs org ON org.id = p.org_id
      WHERE p.id = ${projectId} AND (${orgId}::text IS NULL OR p.org_id = ${orgId})`,
  })

  return {
    limit,
    forProject: (orgId: string | null, projectId: string, key: NewApiKey, entry: AuditEntry) =>
      limit.admit(projectOwner(orgId, projectId), (hasRoom) =>
        insertForProject({ ...key, metadata: toJsonText(key.metadata), orgId, projectId, room: hasRoom }, entry),
      ),
    forOrg: (orgId: string, key: NewApiKey, entry: AuditEntry) =>
      limit.admit(Limited.orgOwner(sql, orgId), (hasRoom) =>
        insertForOrg({ ...key, metadata: toJsonText(key.metadata), orgId, projectId: null, room: hasRoom }, entry),
      ),
  }
})

/**
 * Deletes a key of an org, and its counter with the last key that has it. Commits the deletion, its entry and its notification
 * together. Locks the key and the counter before it decides: a statement that waits for a lock does not see the key that a
 * rotation has inserted meanwhile.
 */
const removeKey = (sql: SqlClient.SqlClient, orgId: string, keyId: string, entry: AuditEntry) =>
  Effect.gen(function* () {
    const [key] = yield* sql<{ readonly counterId: string }>`
      SELECT coalesce(counter_id, id) AS "counterId" FROM api_keys
      WHERE id = ${keyId} AND org_id = ${orgId} AND ${hasOwner(sql)} FOR UPDATE`
    if (key === undefined) return yield* keyNotFound()
    const { counterId } = key
    const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])
    yield* audited(
      sql,
      entry,
      sql`
        DELETE FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}
        RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,
    )
    if (counter === undefined) return
    yield* sql`
      DELETE FROM key_counters WHERE id = ${counterId} AND org_id = ${orgId}
        AND NOT EXISTS (SELECT FROM api_keys WHERE org_id = ${orgId} AND counter_id = ${counterId})
        AND NOT EXISTS (SELECT FROM api_keys WHERE org_id = ${orgId} AND id = ${counterId})`
  }).pipe(sql.withTransaction, orUnavailable)

const orMissing = (missing: () => NotFound) =>
  Effect.flatMap((row: unknown) => (row === undefined ? Effect.fail(missing()) : Effect.void))

/** API keys in PostgreSQL. */
export const layer = Layer.effect(
  ApiKeyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const inserts = yield* makeInserts

    return ApiKeyRepository.of({
      insertForProject: (scope, projectId, key, entry) =>
        inserts.forProject(orgOf(scope), projectId, key, entry).pipe(orMissing(projectNotFound)),

      insertForOrg: (orgId, key, entry) => inserts.forOrg(orgId, key, entry).pipe(orMissing(orgNotFound)),

      remove: (orgId, keyId, entry) => removeKey(sql, orgId, keyId, entry),

      rotate: (orgId, keyId, replacement, entry) => rotateKey(sql, inserts.limit, orgId, keyId, replacement, entry),

      update: (orgId, keyId, change, entry) => changeKey(sql, orgId, keyId, change, entry),

      disableLeaked: (hash, entryOf) => disableLeakedKey(sql, hash, entryOf),

      list: (orgId, page, externalId) => {
        const ofHolder = externalId === undefined ? sql.literal("true") : sql`external_id = ${externalId}`
        return pageOf(
          sql,
          page,
          sql`
            SELECT ${keyColumns(sql)} FROM api_keys
            WHERE org_id = ${orgId} AND ${ofHolder} AND ${hasOwner(sql)} AND ${afterCursor(sql, page)}`,
          "id",
          ["name"],
        ).pipe(decodeKeyPage, orUnavailable)
      },

      exists: (orgId, keyId) =>
        sql`SELECT 1 FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId} AND ${hasOwner(sql)}`.pipe(
          Effect.map((rows) => rows.length > 0),
          orUnavailable,
        ),

      findByHashes: (hashes) =>
        sql<GrantRow>`SELECT ${grantColumns(sql)} FROM api_keys WHERE hash = ANY (${bytes(hashes)}) AND ${hasOwner(sql)}`.pipe(
          Effect.map((rows) => new Map(rows.map((row) => [row.hash, toGrant(row)]))),
          orUnavailable,
        ),

      touch: (usage) => {
        const ids = texts(usage.keys())
        return sql`
          UPDATE api_keys SET last_used_at = used.at
          FROM unnest(${ids}, ${times(usage.values())}) AS used (id, at)
          -- The ids again: without them a plan may read all keys for the join.
          WHERE api_keys.id = ANY(${ids}) AND api_keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        )
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
