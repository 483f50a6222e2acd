import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { orgNotFound } from "../../domain/Principal.ts"
import { maxRoles, type Role, roleNotFound, RoleRepository, tooManyRoles } from "../../domain/keys/Roles.ts"
import { audited } from "../audit/audited.ts"
import { inScope, texts } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import { revocationChannel, rolesChanged } from "../revocations.ts"

/** Roles in PostgreSQL. */
export const layer = Layer.effect(
  RoleRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const bytes = yield* ByteLimit.make
    const notify = (orgId: string) => sql`SELECT pg_notify(${revocationChannel}, ${rolesChanged(orgId)})`

    return RoleRepository.of({
      list: (orgId) =>
        sql<Role>`
          SELECT name, permissions FROM roles
          WHERE org_id = ${orgId} AND EXISTS (SELECT FROM orgs WHERE id = ${orgId}) ORDER BY name`.pipe(orUnavailable),

      put: (orgId, { name, permissions }, entry) =>
        Effect.gen(function* () {
          // The lock lets no other role in until the commit, and no erasure begins before it.
          const [org] = yield* sql`SELECT id FROM orgs WHERE id = ${orgId} FOR NO KEY UPDATE`
          if (org === undefined) return yield* orgNotFound()
          const put = audited(
            sql,
            entry,
            sql`
              INSERT INTO roles (org_id, name, permissions)
              SELECT ${orgId}, ${name}, ${JSON.stringify(permissions)}::text::json
              WHERE EXISTS (SELECT FROM roles WHERE org_id = ${orgId} AND name = ${name})
                OR (SELECT count(*) FROM roles WHERE org_id = ${orgId}) < ${maxRoles}
              ON CONFLICT (org_id, name) DO UPDATE SET permissions = excluded.permissions
              RETURNING org_id AS "orgId"`,
          )
          const changed = yield* bytes.changing("role", sql`org_id = ${orgId} AND name = ${name}`, put)
          if (changed.length === 0) return yield* tooManyRoles()
          yield* notify(orgId)
        }).pipe(sql.withTransaction, orUnavailable),

      remove: (orgId, name, entry) =>
        Effect.gen(function* () {
          const removed = yield* audited(
            sql,
            entry,
            sql`
              DELETE FROM roles
              WHERE org_id = ${orgId} AND name = ${name} AND EXISTS (SELECT FROM orgs WHERE id = ${orgId})
              RETURNING org_id AS "orgId"`,
          )
          if (removed.length === 0) return yield* roleNotFound()
          yield* notify(orgId)
        }).pipe(sql.withTransaction, orUnavailable),

      firstMissing: (owner, names) => {
        const org =
          "orgId" in owner
            ? sql`SELECT id FROM orgs WHERE id = ${owner.orgId}`
            : sql`SELECT org_id FROM projects WHERE id = ${owner.projectId} AND ${inScope(sql, owner.scope)}`
        return sql<{ readonly name: string }>`
          SELECT asked.name FROM (${org}) AS owner (id), unnest(${texts(names)}) WITH ORDINALITY AS asked (name, n)
          WHERE NOT EXISTS (SELECT FROM roles WHERE org_id = owner.id AND name = asked.name) ORDER BY n LIMIT 1`.pipe(
          Effect.map(([missing]) => missing?.name),
          orUnavailable,
        )
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
