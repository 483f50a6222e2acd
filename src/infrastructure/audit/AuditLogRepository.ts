import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { AuditRepository } from "../../domain/audit/AuditLog.ts"
import { orgNotFound } from "../../domain/Principal.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { afterCursor, decodePage, pageOf, Time } from "../database/fragments.ts"

const Row = Schema.Struct({
  ...AuditEntry.fields,
  at: Time,
  details: Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown)),
})
const decode = decodePage(Row)

/** The audit log in PostgreSQL. */
export const layer = Layer.effect(
  AuditRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return AuditRepository.of({
      list: (orgId, page) =>
        Effect.gen(function* () {
          const select = sql`
            SELECT id, at, actor, action, target, details, request_id AS "requestId" FROM audit_log
            WHERE org_id = ${orgId} AND ${afterCursor(sql, page, "newest")}`
          const entries = yield* pageOf(sql, page, select, "id", ["target", "details"], "newest").pipe(decode)
          if (entries.items.length > 0) return entries
          const org = yield* sql`SELECT id FROM orgs WHERE id = ${orgId}`
          return org.length === 0 ? yield* orgNotFound() : entries
        }).pipe(orUnavailable),
    })
  }),
)
