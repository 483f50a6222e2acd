import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { formatOwner, type RepositoryOwner } from "../../domain/deployments/CiRun.ts"
import { Conflict } from "../../domain/Errors.ts"
import { orgNotFound } from "../../domain/Principal.ts"
import { Org } from "../../domain/orgs/Org.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { copying } from "./copyOrg.ts"
import { audited } from "../audit/audited.ts"
import { ownerDeleted, revocationChannel } from "../keys/KeyCache.ts"
import { afterCursor, date, decodePage, decodeRows, inScope, pageOf, texts, Time } from "../database/fragments.ts"
import * as OrgAmounts from "./orgAmounts.ts"

const Row = Schema.Struct({ ...Org.fields, createdAt: Time })
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

interface OwnerRow extends RepositoryOwner {
  readonly orgId: string
}

/** The owners of an org, in their own order. Owners of an org that is being erased belong to nobody. */
const readOwners = (sql: SqlClient.SqlClient, orgId: string) =>
  sql<RepositoryOwner>`
    SELECT provider, owner FROM org_owners WHERE org_id = ${orgId} AND EXISTS (SELECT FROM orgs WHERE id = ${orgId})
    ORDER BY position`

/**
 * Replaces the owners of an org, in a transaction that has locked the org. An owner that stays keeps the id that its
 * runs have proved. Fails when another org, also one that is being erased, has one of them.
 */
const replaceOwners = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  owners: ReadonlyArray<RepositoryOwner>,
) {
  const unique = [...new Map(owners.map((owner) => [formatOwner(owner).toLowerCase(), owner])).values()]
  const [providers, names] = [texts(unique.map(({ provider }) => provider)), texts(unique.map(({ owner }) => owner))]
  const wanted = sql`unnest(${providers}, ${names}) WITH ORDINALITY AS wanted (provider, owner, position)`
  yield* sql`
    DELETE FROM org_owners o WHERE org_id = ${orgId} AND NOT EXISTS (
      SELECT FROM ${wanted} WHERE wanted.provider = o.provider AND lower(wanted.owner) = o.owner_key)`
  yield* sql`
    INSERT INTO org_owners (provider, owner_key, owner, org_id, position)
    -- In one order, so that two changes of the same owners do not wait for each other.
    SELECT provider, lower(owner), owner, ${orgId}, position FROM ${wanted} ORDER BY provider, lower(owner)
    ON CONFLICT (provider, owner_key) DO UPDATE SET owner = excluded.owner, position = excluded.position
      WHERE org_owners.org_id = excluded.org_id`
  const [taken] = yield* sql<OwnerRow>`
    SELECT o.provider, o.owner, o.org_id AS "orgId" FROM ${wanted}
    JOIN org_owners o ON o.provider = wanted.provider AND o.owner_key = lower(wanted.owner)
    WHERE o.org_id <> ${orgId} ORDER BY o.provider, o.owner_key LIMIT 1`
  if (taken === undefined) return
  return yield* new Conflict({
    error: `owners: another org has the owner ${formatOwner(taken)}. Remove it there first.`,
  })
})

/** Orgs in PostgreSQL. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const { sample, used } = yield* OrgAmounts.make
    const columns = sql.literal(`id AS "orgId", name, created_at AS "createdAt"`)

    return OrgRepository.of({
      insert: ({ orgId, name, createdAt }, entry) =>
        audited(
          sql,
          entry,
          sql`
            INSERT INTO orgs (id, name, created_at) VALUES (${orgId}, ${name}, ${date(createdAt)})
            RETURNING id AS "orgId"`,
        ).pipe(copying(sql, orgId), Effect.asVoid, orUnavailable),

      find: (orgId) =>
        sql`SELECT ${columns} FROM orgs WHERE id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([org]) => (org === undefined ? Effect.fail(orgNotFound()) : Effect.succeed(org))),
        ),

      findWithUsage: (orgId) =>
        Effect.gen(function* () {
          const sampled = yield* sample(orgId, columns)
          if (sampled === undefined) return yield* orgNotFound()
          const [org] = yield* decode(Effect.succeed([sampled]))
          const owners = yield* readOwners(sql, orgId)
          return { org: org!, overrides: sampled.overrides ?? {}, used: yield* used(sampled), owners }
        }).pipe(orUnavailable),

      owners: (orgId) => readOwners(sql, orgId).pipe(orUnavailable),

      update: (orgId, { name, limits, owners }, entry) => {
        const sets = [sql`name = coalesce(${name ?? null}, name)`]
        if (limits !== undefined) {
          const changed = sql`coalesce(limits, '{}') || ${JSON.stringify(limits)}::text::jsonb`
          sets.push(sql`limits = jsonb_strip_nulls(${changed})`)
        }
        const update = Effect.flatMap(
          audited(sql, entry, sql`UPDATE orgs SET ${sql.csv(sets)} WHERE id = ${orgId} RETURNING id AS "orgId"`),
          ([org]) => (org === undefined ? Effect.fail(orgNotFound()) : Effect.void),
        )
        return (
          owners === undefined ? update : sql.withTransaction(Effect.andThen(update, replaceOwners(sql, orgId, owners)))
        ).pipe(copying(sql, orgId), orUnavailable, Effect.tap(Effect.sync(() => usage.forget(orgId))))
      },

      remove: (orgId, now, entry) =>
        Effect.gen(function* () {
          const [org] = yield* audited(sql, entry, sql`DELETE FROM orgs WHERE id = ${orgId} RETURNING id AS "orgId"`)
          if (org === undefined) return yield* orgNotFound()
          yield* sql`SELECT pg_notify(${revocationChannel}, ${ownerDeleted(orgId)})`
          // The sweep has the id of the entry, which is a new one.
          yield* sql`
            INSERT INTO sweeps (id, org_id, kind, created_at)
            VALUES (${entry.id}, ${orgId}, 'erase', ${date(now)})`
        }).pipe(
          copying(sql, orgId),
          sql.withTransaction,
          orUnavailable,
          Effect.tap(Effect.sync(() => usage.forget(orgId))),
        ),

      list: (scope, page) =>
        pageOf(
          sql,
          page,
          sql`SELECT ${columns} FROM orgs WHERE ${inScope(sql, scope, "id")} AND ${afterCursor(sql, page)}`,
          "orgId",
          ["name"],
        ).pipe(decodeList, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
