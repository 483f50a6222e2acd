import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { AuditEntry, type AuditFilter } from "../../domain/audit/AuditEntry.ts"
import { AuditRepository } from "../../domain/audit/AuditLog.ts"
import type { Found, Page } from "../../domain/Page.ts"
import { orgNotFound, personActor } from "../../domain/Principal.ts"
import { Person } from "../../domain/Person.ts"
import { Nodes } from "../database/Nodes.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { afterCursor, date, decodePage, exactJson, idAt, pageOf, Time } from "../database/fragments.ts"

const Row = Schema.Struct({
  ...AuditEntry.fields,
  at: Time,
  details: exactJson(AuditEntry.fields.details),
  person: Schema.NullOr(Schema.fromJsonString(Person)),
})
const decode = decodePage(Row)

type Entries = Found<typeof Row.Type>

/** The newest entries of two logs: those of the platform's database, and those of the org's node. */
const newestOf = (one: Entries, other: Entries, { limit }: Page): Entries => {
  // Where a log was cut, it has entries that come before older ones of the other log.
  const ends = [one, other].flatMap(({ hasMore, items }) => (hasMore ? [items.at(-1)!.id] : []))
  const items = [...one.items, ...other.items]
    .filter(({ id }) => ends.every((end) => id >= end))
    .toSorted((a, b) => (a.id < b.id ? 1 : -1))
  return { items: items.slice(0, limit), hasMore: ends.length > 0 || items.length > limit }
}

/**
 * How far the time of an entry and that of its id may be apart: when a clock steps back, ids continue. The index has
 * only ids, and finds the first entry of a time by them.
 */
const maxStepMillis = 3_600_000

const matching = (sql: SqlClient.SqlClient, { person, since, until }: AuditFilter) =>
  sql.and([
    person === undefined ? sql`true` : sql`person IS NOT NULL AND actor = ${personActor(person)}`,
    since === undefined
      ? sql`true`
      : sql`at >= ${date(since)} AND id >= ${idAt(DateTime.toEpochMillis(since) - maxStepMillis)}`,
    until === undefined
      ? sql`true`
      : sql`at < ${date(until)} AND id < ${idAt(DateTime.toEpochMillis(until) + maxStepMillis)}`,
  ])

/** The audit log in PostgreSQL. */
export const layer = Layer.effect(
  AuditRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const nodes = yield* Nodes

    const read = (sql: SqlClient.SqlClient, orgId: string, page: Page & AuditFilter) => {
      const select = sql`
        SELECT id, at, actor, action, target, details, request_id AS "requestId", person FROM audit_log
        WHERE org_id = ${orgId} AND ${matching(sql, page)} AND ${afterCursor(sql, page, "newest")}`
      return pageOf(sql, page, select, "id", ["target", "details"], "newest").pipe(decode)
    }

    return AuditRepository.of({
      list: (orgId, page) =>
        Effect.gen(function* () {
          const node = yield* nodes.of(orgId)
          const own = yield* read(sql, orgId, page)
          const entries = node === undefined ? own : newestOf(own, yield* read(node.sql, orgId, page), page)
          if (entries.items.length > 0) return entries
          // The log of a deleted org stays.
          const known = yield* sql`
            SELECT id FROM orgs WHERE id = ${orgId}
            UNION ALL (SELECT id FROM audit_log WHERE org_id = ${orgId} ORDER BY id LIMIT 1)`
          return known.length === 0 ? yield* orgNotFound() : entries
        }).pipe(orUnavailable),
    })
  }),
)
