import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { Page } from "../../domain/Page.ts"
import { Event, EventDetail, SeenEventType } from "../../domain/webhooks/Event.ts"
import { eventNotFound } from "../../domain/webhooks/EventRepository.ts"
import { afterCursor, decodeRows, isOfOrg, Time } from "../database/fragments.ts"

const decode = decodeRows(Schema.Struct({ ...Event.fields, created_at: Time }))
const decodeDetail = decodeRows(Schema.Struct({ ...EventDetail.fields, created_at: Time }))
const decodeTypes = decodeRows(Schema.Struct({ ...SeenEventType.fields, last_at: Time }))

/** Lists an org's events, newest first, up to `limit + 1`. */
export const listEvents = (sql: SqlClient.SqlClient, orgId: string, type: string | undefined, page: Page) =>
  sql`
    SELECT id AS event_id, type, job_id, created_at FROM events
    WHERE org_id = ${orgId} AND ${type === undefined ? sql.literal("true") : sql`type = ${type}`}
      AND ${afterCursor(sql, page, "newest")}
    ORDER BY id DESC LIMIT ${page.limit + 1}`.pipe(decode)

export const findEvent = (sql: SqlClient.SqlClient, orgId: string, eventId: string) =>
  sql`
    SELECT id AS event_id, type, job_id, created_at, body AS payload FROM events
    WHERE id = ${eventId} AND ${isOfOrg(sql, orgId)}`.pipe(
    decodeDetail,
    Effect.flatMap(([event]) => (event === undefined ? Effect.fail(eventNotFound()) : Effect.succeed(event))),
  )

/**
 * Lists the types of an org's events, from the index on them: two index entries are read for each type, however many events
 * it has. There is no table of types: it would be a row that every publish of a type writes.
 */
export const listTypes = (sql: SqlClient.SqlClient, orgId: string, { cursor = "", limit }: Page) =>
  sql`
    WITH RECURSIVE types AS (
      SELECT ${cursor}::text COLLATE "C" AS type, 0 AS n
      UNION ALL
      SELECT next.type, before.n + 1 FROM types before CROSS JOIN LATERAL (
        SELECT type FROM events WHERE org_id = ${orgId} AND type > before.type ORDER BY type LIMIT 1
      ) AS next WHERE before.n < ${limit + 1}
    )
    SELECT types.type, newest.created_at AS last_at FROM types CROSS JOIN LATERAL (
      SELECT created_at FROM events WHERE org_id = ${orgId} AND type = types.type ORDER BY id DESC LIMIT 1
    ) AS newest WHERE types.n > 0 ORDER BY types.n`.pipe(decodeTypes)
