import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import {
  CatalogueType,
  eventTypeExists,
  eventTypeNotFound,
  EventTypeRepository,
  maxEventTypes,
  OtherType,
  tooManyEventTypes,
} from "../../domain/webhooks/EventTypes.ts"
import { parseJson } from "../../domain/exactJson.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"
import { audited } from "../audit/audited.ts"
import {
  afterCursor,
  date,
  decodePage,
  decodeRows,
  exactJson,
  pageOf,
  Time,
  toJsonText,
} from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"

const Row = Schema.Struct({
  ...CatalogueType.fields,
  schemas: exactJson(CatalogueType.fields.schemas),
  example: Schema.NullOr(exactJson(Schema.Unknown)),
  created_at: Time,
  updated_at: Time,
})
const decode = decodeRows(Row)

/** Catalogues of event types in PostgreSQL. The name of a type is its id. */
export const layer = Layer.effect(
  EventTypeRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const bytes = yield* ByteLimit.make
    const columns = sql.literal(
      'id AS name, description, group_name AS "group", schemas, example, deprecated, created_at, updated_at',
    )
    const isType = (orgId: string, name: string) => sql`org_id = ${orgId} AND id = ${name}`
    const find = (orgId: string, name: string) =>
      sql`SELECT ${columns} FROM event_types WHERE org_id = ${orgId} AND id = ${name}`.pipe(
        decode,
        Effect.flatMap(([type]) => (type === undefined ? Effect.fail(eventTypeNotFound()) : Effect.succeed(type))),
      )

    /**
     * Makes a change that nothing else can be beside, and that no erasure begins before. What replicas have checked
     * events with is not current any more.
     */
    const changing = <E>(orgId: string, entry: AuditEntry, change: Effect.Effect<unknown, E>) =>
      Effect.gen(function* () {
        const [org] = yield* sql`SELECT id FROM orgs WHERE id = ${orgId} FOR NO KEY UPDATE`
        if (org === undefined) return yield* orgDeleted
        yield* change
        yield* sql`UPDATE orgs SET strict_events = ${entry.id} WHERE id = ${orgId} AND strict_events IS NOT NULL`
      }).pipe(sql.withTransaction, orUnavailable)

    return EventTypeRepository.of({
      insert: (orgId, type, entry) =>
        changing(
          orgId,
          entry,
          Effect.gen(function* () {
            // After the lock, so that it sees the types that the request has waited for.
            const [catalogue] = yield* sql<{ types: number }>`
              SELECT count(*)::int AS types FROM event_types WHERE org_id = ${orgId}`
            const hasRoom = catalogue!.types < maxEventTypes
            const insert = audited(
              sql,
              entry,
              sql`
                INSERT INTO event_types (
                  org_id, id, description, group_name, schemas, example, deprecated, created_at, updated_at)
                SELECT ${orgId}, ${type.name}, ${type.description}, ${type.group}, ${JSON.stringify(type.schemas)},
                  ${toJsonText(type.example)}, ${type.deprecated}, ${date(type.created_at)}::timestamptz,
                  ${date(type.updated_at)}::timestamptz
                WHERE ${hasRoom} ON CONFLICT DO NOTHING RETURNING org_id AS "orgId"`,
            )
            const made = yield* bytes.changing("eventType", isType(orgId, type.name), insert)
            if (made.length === 0) return yield* hasRoom ? eventTypeExists() : tooManyEventTypes()
          }),
        ),

      update: (orgId, before, type, entry) =>
        changing(
          orgId,
          entry,
          Effect.gen(function* () {
            const update = audited(
              sql,
              entry,
              sql`
                UPDATE event_types SET description = ${type.description}, group_name = ${type.group},
                  schemas = ${JSON.stringify(type.schemas)}, example = ${toJsonText(type.example)},
                  deprecated = ${type.deprecated}, updated_at = ${date(type.updated_at)}
                WHERE org_id = ${orgId} AND id = ${type.name} AND created_at = ${date(before.created_at)}
                  AND updated_at = ${date(before.updated_at)} RETURNING org_id AS "orgId"`,
            )
            const changed = yield* bytes.changing("eventType", isType(orgId, type.name), update)
            if (changed.length === 0) return yield* new OtherType()
          }),
        ),

      remove: (orgId, name, entry) =>
        changing(
          orgId,
          entry,
          audited(
            sql,
            entry,
            sql`DELETE FROM event_types WHERE org_id = ${orgId} AND id = ${name} RETURNING org_id AS "orgId"`,
          ).pipe(Effect.flatMap(({ length }) => (length === 0 ? eventTypeNotFound() : Effect.void))),
        ),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`SELECT ${columns} FROM event_types WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "name",
          ["schemas", "example", "description"],
        ).pipe(decodePage(Row), orUnavailable),

      find: (orgId, name) => orUnavailable(find(orgId, name)),

      forCheck: (orgId, name) =>
        sql<{ version: string | null; schemas: string | null }>`
          SELECT strict_events AS version, schemas FROM orgs org
          LEFT JOIN event_types t ON t.org_id = org.id AND t.id = ${name} WHERE org.id = ${orgId}`.pipe(
          Effect.map(([row]) => ({
            version: row?.version ?? null,
            schemas: row?.schemas == null ? undefined : (parseJson(row.schemas) as CatalogueType["schemas"]),
          })),
          orUnavailable,
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
