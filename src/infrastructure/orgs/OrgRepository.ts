import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { orgNotFound } from "../../domain/Principal.ts"
import { Org } from "../../domain/orgs/Org.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { afterCursor, date, decodePage, decodeRows, inScope, pageOf, Time } from "../database/fragments.ts"
import * as OrgAmounts from "./orgAmounts.ts"

const Row = Schema.Struct({ ...Org.fields, createdAt: Time })
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

/** Orgs in PostgreSQL. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const { columns: amounts, used } = yield* OrgAmounts.make
    const columns = sql.literal(`id AS "orgId", name, created_at AS "createdAt"`)

    return OrgRepository.of({
      insert: ({ orgId, name, createdAt }, entry) =>
        audited(
          sql,
          entry,
          sql`
            INSERT INTO orgs (id, name, created_at) VALUES (${orgId}, ${name}, ${date(createdAt)})
            RETURNING id AS "orgId"`,
        ).pipe(Effect.asVoid, orUnavailable),

      find: (orgId) =>
        sql`SELECT ${columns} FROM orgs WHERE id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([org]) => (org === undefined ? Effect.fail(orgNotFound()) : Effect.succeed(org))),
        ),

      findWithUsage: (orgId) =>
        Effect.gen(function* () {
          const rows = yield* sql<OrgAmounts.Sampled>`
            SELECT ${columns}, ${amounts} FROM orgs org WHERE id = ${orgId}`
          const [org] = yield* decode(Effect.succeed(rows))
          if (org === undefined) return yield* orgNotFound()
          return { org, overrides: rows[0]!.overrides ?? {}, used: yield* used(rows[0]!) }
        }).pipe(orUnavailable),

      update: (orgId, { name, limits }, entry) => {
        const sets = []
        if (name !== undefined) sets.push(sql`name = ${name}`)
        if (limits !== undefined) {
          const changed = sql`coalesce(limits, '{}') || ${JSON.stringify(limits)}::text::jsonb`
          sets.push(sql`limits = jsonb_strip_nulls(${changed})`)
        }
        return audited(
          sql,
          entry,
          sql`UPDATE orgs SET ${sql.csv(sets)} WHERE id = ${orgId} RETURNING id AS "orgId"`,
        ).pipe(
          orUnavailable,
          Effect.flatMap(([org]) => (org === undefined ? Effect.fail(orgNotFound()) : Effect.void)),
          Effect.tap(Effect.sync(() => usage.forget(orgId))),
        )
      },

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
