import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { ApiKey, type RateLimit, type ValidKey } from "../../domain/keys/ApiKey.ts"
import type { KeyGrant, NewApiKey } from "../../domain/keys/ApiKeyRepository.ts"
import { ApiKeyRepository, keyNotFound } from "../../domain/keys/ApiKeyRepository.ts"
import { orgNotFound } from "../../domain/Principal.ts"
import type { NotFound } from "../../domain/Errors.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { revocationChannel } from "./KeyRevocations.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { bytes, texts, times } from "../database/arrays.ts"
import { audited } from "../audit/audited.ts"
import { auditedTogether } from "../audit/auditedTogether.ts"
import { afterCursor, decodePage, orgOf, pageOf, Time } from "../database/fragments.ts"
import * as Limited from "../orgs/limited.ts"
import { rotateKey } from "./rotateKey.ts"

const Row = Schema.Struct({
  ...ApiKey.fields,
  createdAt: Time,
  expiresAt: Schema.NullOr(Time),
  lastUsedAt: Schema.NullOr(Time),
})
const decode = decodePage(Row)

interface GrantRow extends ValidKey {
  readonly hash: string
  readonly expiresAt: Date | null
  readonly rateLimit: RateLimit | null
}

const toGrant = ({ expiresAt, ...row }: Omit<GrantRow, "hash">): KeyGrant => ({
  ...row,
  expiresAt: expiresAt === null ? null : DateTime.fromDateUnsafe(expiresAt),
})

/** The rate limit of a key, as JSON. */
const rateLimitColumn = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    CASE WHEN rate_limit IS NOT NULL THEN json_build_object('limit', rate_limit, 'window', rate_window) END
      AS "rateLimit"`)

/** What `makeInsert` asks for: a key, its owner, and whether the org certainly has room. */
interface WantedKey extends NewApiKey {
  readonly orgId: string | null
  readonly projectId: string | null
  readonly room: boolean
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
      "orgId" text, "projectId" text, room boolean`,
    sql`
      INSERT INTO api_keys (id, name, prefix, hash, created_at, expires_at, rate_limit, rate_window, org_id, project_id)
      SELECT asked.id, asked.name, prefix, decode(hash, 'hex'), "createdAt", "expiresAt",
        ("rateLimit"->>'limit')::int, ("rateLimit"->>'window')::int, ${owner}
      WHERE ${limit.guard(sql`asked.room`)}
      RETURNING id, org_id AS "orgId"`,
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
        insertForProject({ ...key, orgId, projectId, room: hasRoom }, entry),
      ),
    forOrg: (orgId: string, key: NewApiKey, entry: AuditEntry) =>
      limit.admit(Limited.orgOwner(sql, orgId), (hasRoom) =>
        insertForOrg({ ...key, orgId, projectId: null, room: hasRoom }, entry),
      ),
  }
})

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

      // One statement, so that the deletion and its notification are committed together.
      remove: (orgId, keyId, entry) =>
        audited(
          sql,
          entry,
          sql`
            DELETE FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}
            RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,
        ).pipe(
          orUnavailable,
          Effect.map(([removed]) => removed),
          orMissing(keyNotFound),
        ),

      rotate: (orgId, keyId, replacement, entry) => rotateKey(sql, inserts.limit, orgId, keyId, replacement, entry),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id, name, prefix, project_id AS "projectId", created_at AS "createdAt", expires_at AS "expiresAt",
              last_used_at AS "lastUsedAt", ${rateLimitColumn(sql)}
            FROM api_keys WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "id",
          ["name"],
        ).pipe(decode, orUnavailable),

      findByHashes: (hashes) =>
        sql<GrantRow>`
          SELECT encode(hash, 'hex') AS hash, id AS "keyId", org_id AS "orgId", coalesce(project_id, '') AS "projectId",
            expires_at AS "expiresAt", ${rateLimitColumn(sql)}
          FROM api_keys WHERE hash = ANY (${bytes(hashes)})`.pipe(
          Effect.map((rows) => new Map(rows.map(({ hash, ...row }) => [hash, toGrant(row)]))),
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
