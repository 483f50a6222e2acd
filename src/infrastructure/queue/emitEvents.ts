import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { ServiceEvent } from "../../domain/ServiceEvent.ts"
import { topicsOf } from "../../domain/webhooks/EventPatterns.ts"
import { date, texts, times } from "../database/fragments.ts"
import { deliverEvents } from "./insertEvents.ts"
import { changedLanes, queuePositions } from "./queuePositions.ts"

/**
 * The CTEs `subscribed`, `emitted` and `emitting`, which write events of the service's own and a sweep for their
 * deliveries, in the statement of the change that they are about. They read the CTE `service_event` (id, org_id, type,
 * body, topics, subject, at). An event that no endpoint of its org names is not written, unless the endpoints are on a
 * node, which the sweep passes it to. A sweep inserts the deliveries, so that the change waits for no lock of another
 * endpoint: two endpoints that end at the same time would wait for each other.
 */
export const emitAll = (sql: SqlClient.SqlClient) =>
  sql.literal(`
  subscribed AS MATERIALIZED (
    SELECT id, org_id, type, body, at FROM service_event e WHERE EXISTS (
      SELECT FROM webhook_endpoints w
      WHERE w.org_id = e.org_id AND w.event_types IS NOT NULL AND w.event_types && e.topics AND w.id <> e.subject
    ) OR EXISTS (SELECT FROM orgs WHERE id = e.org_id AND node IS NOT NULL)
  ), emitted AS (
    INSERT INTO events (id, org_id, type, body, created_at)
    SELECT id, org_id, type, body, at FROM subscribed RETURNING id
  ), emitting AS (
    INSERT INTO sweeps (id, org_id, kind, endpoint_id, receivers, created_at)
    SELECT min(id), org_id, 'emit', nullif(subject, ''), array_agg(id ORDER BY id), min(at)
    FROM emitted JOIN service_event USING (id) GROUP BY org_id, subject
  )`)

/** The columns of `service_event` for an event, but for its org; the topics are joined by spaces. */
export const eventColumns = ({ id, type, body, except, createdAt }: ServiceEvent) => ({
  id,
  type,
  body,
  topics: topicsOf(type).join(" "),
  subject: except ?? "",
  at: createdAt,
})

/**
 * `emitAll` for one event, as the end of a WITH; nothing without an event.
 *
 * @param changed the CTE of the change, with the org as "orgId"
 * @param bodyOf completes the body with what only the change knows
 */
export const emit = (
  sql: SqlClient.SqlClient,
  event: ServiceEvent | undefined,
  changed: Statement.Fragment,
  bodyOf: (body: Statement.Fragment) => Statement.Fragment = (body) => body,
) =>
  event === undefined
    ? sql.literal("")
    : sql`, service_event AS (
        SELECT ${event.id}::text COLLATE "C" AS id, "orgId" AS org_id, ${event.type}::text AS type,
          ${bodyOf(sql`${event.body}::text`)} AS body,
          ${texts(topicsOf(event.type))} AS topics, ${event.except ?? ""}::text AS subject, ${date(event.createdAt)}::timestamptz AS at
        FROM ${changed} AS change
      ), ${emitAll(sql)}`

/** An event of the service's own, and its org. */
interface OrgEvent {
  readonly event: ServiceEvent
  readonly orgId: string
}

/** The rows of `service_event` for several events, as the table `t`. */
export const eventRows = (sql: SqlClient.SqlClient, events: ReadonlyArray<OrgEvent>) => {
  const rows = events.map(({ event, orgId }) => ({ ...eventColumns(event), orgId }))
  const column = (name: "id" | "orgId" | "type" | "body" | "topics" | "subject") => texts(rows.map((row) => row[name]))
  return sql`(
    SELECT id, org_id, type, body, string_to_array(topics, ' ') AS topics, subject, at
    FROM unnest(${column("id")}, ${column("orgId")}, ${column("type")}, ${column("body")}, ${column("topics")},
      ${column("subject")}, ${times(rows.map(({ at }) => at))}) AS r (id, org_id, type, body, topics, subject, at)
  ) AS t`
}

const listeners = new WeakMap<SqlClient.SqlClient, Effect.Effect<void>>()

/**
 * Runs `listener` whenever a change of this client may have written events, which wait for a sweep, after its commit.
 */
export const onEmitted = (sql: SqlClient.SqlClient, listener: Effect.Effect<void>) => void listeners.set(sql, listener)

/** Says that events may have been written. */
export const emitted = (sql: SqlClient.SqlClient) => sql.afterCommit(listeners.get(sql) ?? Effect.void)

/** Events that sweeps emit, in their order: those of one org that are about the same endpoint, or about none. */
interface Emitted {
  readonly orgId: string
  readonly eventIds: ReadonlyArray<string>
  readonly except: string | null
}

/** Inserts the deliveries of events of the service's own, in a transaction. Returns how many. */
export const deliverEmitted = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { except, eventIds, orgId }: Emitted,
) {
  const found = yield* sql<{ id: string; type: string }>`
    SELECT id, type FROM events WHERE id = ANY(${texts(eventIds)}) AND org_id = ${orgId}`
  const types = new Map(found.map(({ id, type }) => [id, type]))
  const events = eventIds.flatMap((id) => {
    const type = types.get(id)
    return type === undefined ? [] : { id, topics: topicsOf(type).join(" ") }
  })
  const made = yield* sql<{ at: Date }>`
    WITH event AS MATERIALIZED (
      SELECT n, e.id, e.org_id, e.type, e.body, string_to_array(topics, ' ') AS topics, e.channels,
        ${except ?? ""}::text AS subject, e.created_at AS at
      FROM unnest(${texts(events.map(({ id }) => id))}, ${texts(events.map(({ topics }) => topics))})
        WITH ORDINALITY AS a (id, topics, n)
      CROSS JOIN LATERAL (SELECT * FROM events WHERE id = a.id AND org_id = ${orgId} LIMIT 1) AS e
    ), ${deliverEvents(sql)}
    SELECT at FROM made JOIN event ON event.id = made.event_id`
  const first = Math.min(...made.map(({ at }) => at.getTime()))
  yield* sql.afterCommit(Effect.sync(() => queuePositions(sql).queued(first)))
  yield* changedLanes(sql)
  return made.length
})

/**
 * Passes events of the service's own to the node of their org, which has its endpoints, in the transaction that forgets
 * them here. After a crash in between, the node has them already.
 */
export const passEmitted = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  node: SqlClient.SqlClient,
  { except, eventIds, orgId }: Emitted,
) {
  const events = yield* sql<{ id: string; type: string; body: string; created_at: Date }>`
    SELECT id, type, body, created_at FROM events WHERE id = ANY(${texts(eventIds)}) AND org_id = ${orgId}`
  const rows = eventRows(
    node,
    events.map(({ body, created_at: at, id, type }) => ({
      orgId,
      event: { id, type, body, idempotencyKey: null, channels: [], createdAt: DateTime.fromDateUnsafe(at), except },
    })),
  )
  yield* node`
    WITH service_event AS (
      SELECT t.* FROM ${rows} WHERE NOT EXISTS (SELECT FROM events WHERE id = t.id)
    ), ${emitAll(node)}
    SELECT 1`
  yield* sql`DELETE FROM events WHERE id = ANY(${texts(eventIds)}) AND org_id = ${orgId}`
})
