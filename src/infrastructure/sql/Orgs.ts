import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { orgNotFound } from "../../domain/Caller.ts"
import { Org } from "../../domain/Org.ts"
import { OrgRepository } from "../../domain/Orgs.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { audited } from "./audited.ts"
import { afterCursor, date, decodePage, decodeRows, inScope, pageOf, Time } from "./fragments.ts"

const Row = Schema.Struct({ ...Org.fields, createdAt: Time })
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

/** Orgs in PostgreSQL. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
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
)
