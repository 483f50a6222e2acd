import { Effect, Exit, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { LimitReached, Unavailable } from "../../domain/Errors.ts"
import { cutRows } from "../../domain/Page.ts"
import { Event, EventDetail, SeenEventType } from "../../domain/webhooks/Event.ts"
import type { NewEvent } from "../../domain/ServiceEvent.ts"
import { eventNotFound, EventRepository, type Published } from "../../domain/webhooks/EventRepository.ts"
import { OtherCatalogue } from "../../domain/webhooks/EventTypes.ts"
import { topicsOf } from "../../domain/webhooks/EventPatterns.ts"
import { byteLength, rowCost } from "../../domain/orgs/StoredBytes.ts"
import * as Batches from "../database/Batches.ts"
import { afterCursor, decodeRows, texts, Time, times } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import { deliverEvents } from "../queue/insertEvents.ts"
import { type LaneHead, laneHeads, queuePositions } from "../queue/queuePositions.ts"

/** Events in PostgreSQL. */
export const layer = Layer.effect(
  EventRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const publish = yield* make(sql, yield* ByteLimit.make, yield* OrgUsage)

    return EventRepository.of({
      publish,
      isPublished: (orgId, key) => Effect.map(findEarlier(sql, orgId, [key]), ({ size }) => size > 0),

      list: (orgId, type, page) =>
        sql`
          SELECT id AS event_id, type, job_id, created_at FROM events
          WHERE org_id = ${orgId} AND ${type === undefined ? sql.literal("true") : sql`type = ${type}`}
            AND ${afterCursor(sql, page, "newest")}
          ORDER BY id DESC LIMIT ${page.limit + 1}`.pipe(decode, orUnavailable),

      find: (orgId, eventId) =>
        sql`
          SELECT id AS event_id, type, job_id, created_at, channels, body AS payload FROM events
          WHERE id = ${eventId} AND org_id = ${orgId}`.pipe(
          decodeDetail,
          Effect.flatMap(([event]) => (event === undefined ? Effect.fail(eventNotFound()) : Effect.succeed(event))),
          orUnavailable,
        ),

      // From the index on types: two entries are read for each, however many events it has. A table of types would have
      // a row that every publish of a type writes.
      types: (orgId, { cursor = "", limit }) =>
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
          ) AS newest WHERE types.n > 0 ORDER BY types.n`.pipe(
          decodeTypes,
          Effect.map((types) => cutRows(types, limit)),
          orUnavailable,
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

const decode = decodeRows(Schema.Struct({ ...Event.fields, created_at: Time }))
const decodeDetail = decodeRows(Schema.Struct({ ...EventDetail.fields, created_at: Time }))
const decodeTypes = decodeRows(Schema.Struct({ ...SeenEventType.fields, last_at: Time }))

/** Requests of one statement. Each may have an event of 256 KiB. */
const maxPublishesPerBatch = 64
/** Tries to publish events whose idempotency key belonged to an event that was then removed. */
const maxTries = 3

/** The events of one request. */
interface Wanted {
  readonly orgId: string
  readonly events: ReadonlyArray<NewEvent>
  readonly checked: string | null
}

interface InsertedEvent {
  readonly id: string
  /** The deliveries that were inserted with it. */
  readonly deliveries: number
  /** The deliveries that a sweep inserts. */
  readonly swept: number
  /** The lanes of the statement's backlogged deliveries, in its first row only. */
  readonly heads: ReadonlyArray<LaneHead> | null
}

/** The inserted events of a request, by id. */
type Inserted = ReadonlyMap<string, InsertedEvent>

const sizeOf = (events: ReadonlyArray<NewEvent>) =>
  events.reduce(
    (sum, { body, channels, idempotencyKey }) => sum + rowCost.event + byteLength(body, idempotencyKey, ...channels),
    0,
  )

/** Inserts the events of several requests, of orgs that have room for them. One round trip. */
const insertAll = (
  sql: SqlClient.SqlClient,
  bytes: ByteLimit.ByteLimit,
  usage: OrgUsage["Service"],
  all: ReadonlyArray<Wanted>,
) => {
  const rows = all.flatMap(({ checked, events, orgId }) => events.map((event) => ({ orgId, event, checked })))
  const orgIds = [...new Set(all.map(({ orgId }) => orgId))]
  const unwritten = orgIds.map((orgId) => `${usage.bytes(orgId)}`)
  const column = (f: (row: (typeof rows)[number]) => string | null) => texts(rows.map(f))
  return sql<InsertedEvent>`
    WITH open AS MATERIALIZED (
      SELECT org.id, org.strict_events FROM unnest(${texts(orgIds)}, ${texts(unwritten)}) AS o (id, unwritten)
      -- Lateral: a plan made while there were few orgs cannot read all orgs later.
      CROSS JOIN LATERAL (
        SELECT id, limits, strict_events FROM orgs WHERE id = o.id AND node IS NULL LIMIT 1
      ) AS org
      WHERE o.unwritten::bigint ${bytes.atMostLeft}
    ), asked AS MATERIALIZED (
      SELECT n, a.id, org_id, type, body, key, string_to_array(topics, ' ') AS topics,
        string_to_array(channels, ' ') AS channels, '' AS subject, at
      FROM unnest(
        ${column(({ event }) => event.id)}, ${column(({ orgId }) => orgId)}, ${column(({ event }) => event.type)},
        ${column(({ event }) => event.body)}, ${column(({ event }) => event.idempotencyKey)},
        ${column(({ event }) => topicsOf(event.type).join(" "))}, ${column(({ event }) => event.channels.join(" "))},
        ${times(rows.map(({ event }) => event.createdAt))}, ${column(({ checked }) => checked)}
      ) WITH ORDINALITY AS a (id, org_id, type, body, key, topics, channels, at, checked, n)
      -- Checked with the catalogue that is current now, if the org wants that.
      WHERE EXISTS (SELECT FROM open WHERE id = a.org_id AND strict_events IS NOT DISTINCT FROM a.checked)
    ), keyed AS (
      INSERT INTO event_keys (org_id, key, event_id)
      -- In the order of the keys: two statements with the same keys must not wait for each other.
      SELECT org_id, key, id FROM asked WHERE key IS NOT NULL ORDER BY org_id, key, n
      ON CONFLICT DO NOTHING RETURNING event_id
    ), event AS MATERIALIZED (
      SELECT * FROM asked WHERE key IS NULL OR id IN (SELECT event_id FROM keyed)
    ), inserted AS (
      INSERT INTO events (id, org_id, type, body, idempotency_key, channels, created_at)
      SELECT id, org_id, type, body, key, channels, at FROM event ORDER BY n
    ), ${deliverEvents(sql)}
    SELECT e.id, coalesce(s.receivers, 0) AS swept, coalesce(d.count, 0)::int AS deliveries,
      CASE WHEN row_number() OVER () = 1 THEN ${laneHeads(sql, "places")} END AS heads
    FROM event e LEFT JOIN swept s ON s.event_id = e.id
    LEFT JOIN (SELECT event_id, count(*) FROM made GROUP BY event_id) AS d ON d.event_id = e.id`.pipe(
    Effect.tap(([inserted]) =>
      sql.afterCommit(
        Effect.sync(() => {
          const positions = queuePositions(sql)
          positions.backlogged(inserted?.heads ?? null)
          for (const { event } of rows) positions.queued(event.createdAt.epochMilliseconds)
        }),
      ),
    ),
    orUnavailable,
  )
}

/**
 * Counts the bytes of events while their statement runs, and afterwards those of the inserted ones. Here, because a
 * shared statement goes on without the requests.
 */
const counted = (
  usage: OrgUsage["Service"],
  all: ReadonlyArray<Wanted>,
  inserting: Effect.Effect<ReadonlyArray<InsertedEvent>, Unavailable>,
) =>
  Effect.suspend(() => {
    for (const { events, orgId } of all) usage.addBytes(orgId, sizeOf(events))
    return Effect.onExit(inserting, (exit) =>
      Effect.sync(() => {
        const inserted = new Map(Exit.isSuccess(exit) ? exit.value.map(({ deliveries, id }) => [id, deliveries]) : [])
        for (const { events, orgId } of all) {
          const others = events.filter(({ id }) => !inserted.has(id))
          const deliveries = events.reduce((sum, { id }) => sum + (inserted.get(id) ?? 0), 0)
          usage.addBytes(orgId, deliveries * rowCost.delivery - sizeOf(others))
          if (others.length < events.length) usage.notePending(orgId)
        }
      }),
    )
  })

/** The ids of earlier events by idempotency key. */
const findEarlier = (sql: SqlClient.SqlClient, orgId: string, keys: ReadonlyArray<string>) =>
  keys.length === 0
    ? Effect.succeed(new Map<string, string>())
    : sql<{ id: string; key: string }>`
        SELECT event_id AS id, key FROM event_keys WHERE org_id = ${orgId} AND key = ANY(${texts(keys)})`.pipe(
        Effect.map((rows) => new Map(rows.map(({ id, key }) => [key, id]))),
        orUnavailable,
      )

/**
 * Publishes the events of requests: those of one turn of the event loop share a statement and a commit (ADR 12). A
 * request inside a transaction, and a request with many events, has a statement of its own. When a shared statement
 * fails, each of its requests runs again alone.
 */
const make = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bytes: ByteLimit.ByteLimit,
  usage: OrgUsage["Service"],
) {
  const insert: Batches.RunTogether<Wanted, Inserted> = (all) =>
    counted(
      usage,
      all,
      Effect.suspend(() => insertAll(sql, bytes, usage, all)),
    ).pipe(
      Effect.map((events) => {
        const inserted = new Map(events.map((event) => [event.id, event]))
        const own = ({ events }: Wanted): Inserted =>
          new Map(events.flatMap(({ id }) => (inserted.has(id) ? [[id, inserted.get(id)!]] : [])))
        return new Map(all.map((wanted) => [wanted, own(wanted)]))
      }),
    )
  const batch = yield* Batches.make(Batches.orAlone(insert), maxPublishesPerBatch)

  const insertOne = (wanted: Wanted) =>
    (wanted.events.length > 1
      ? Effect.map(insert([wanted]), (found) => found.get(wanted))
      : Batches.inBatch(sql, insert, batch, wanted)
    ).pipe(Effect.map((inserted) => inserted!))

  /** The ids of a request's events; `undefined` when one is neither inserted nor found. */
  const idsOf = Effect.fnUntraced(function* ({ events, orgId }: Wanted, inserted: Inserted) {
    const others = events.filter(({ id }) => !inserted.has(id))
    const keys = others.flatMap(({ idempotencyKey }) => idempotencyKey ?? [])
    const earlier = yield* findEarlier(sql, orgId, keys)
    const ids = events.map(({ id, idempotencyKey }) => (inserted.has(id) ? id : earlier.get(idempotencyKey ?? "")))
    return ids.every((id) => id !== undefined) ? ids : undefined
  })

  const publish = (
    orgId: string,
    events: ReadonlyArray<NewEvent>,
    checked: string | null = null,
  ): Effect.Effect<Published, LimitReached | OtherCatalogue | Unavailable> =>
    Effect.gen(function* () {
      for (let tries = 1; tries <= maxTries; tries++) {
        const wanted = { orgId, events, checked }
        const inserted = yield* insertOne(wanted)
        const ids = yield* idsOf(wanted, inserted)
        if (ids !== undefined) {
          const made = events.map(({ id }) => inserted.get(id) ?? { deliveries: 0, swept: 0 })
          return {
            ids,
            deliveries: made.map(({ deliveries, swept }) => deliveries + swept),
            hasMore: made.some(({ swept }) => swept > 0),
          }
        }
        if (events.some(({ idempotencyKey }) => idempotencyKey === null)) break
      }
      const [other] = yield* sql<{ version: string | null }>`
        SELECT strict_events AS version FROM orgs
        WHERE id = ${orgId} AND node IS NULL AND strict_events IS DISTINCT FROM ${checked}`.pipe(orUnavailable)
      if (other !== undefined) return yield* new OtherCatalogue(other)
      return yield* bytes.refuse(orgId)
    })

  return publish
})
