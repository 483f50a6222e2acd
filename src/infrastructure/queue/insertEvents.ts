import { type DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import {
  type Candidate,
  defaultPatterns,
  endpointReceivers,
  firstState,
  topicsOf,
} from "../../domain/webhooks/EventPatterns.ts"
import { base32Digits, date, texts } from "../database/fragments.ts"
import { changedLanes } from "./queuePositions.ts"
import { batchWithin, endOfLane, endOfSpan, isOrdered, lastOfLane, queueColumns } from "./lanes.ts"

/**
 * Deliveries that are inserted together with their event. A sweep inserts the others, so that an event takes as long
 * for an org with hundreds of endpoints as for one with a few.
 */
export const inlineReceivers = 32

/**
 * The CTEs that insert the deliveries of events without a job, and the sweeps for the other deliveries. They read the
 * CTE `event` (n, id, org_id, type, body, topics, channels, subject, at): the events in their order; `subject` is the
 * endpoint that gets no delivery, or empty. `made` has the event of each delivery, and `swept` the events with a sweep.
 *
 * wanted: the endpoints whose patterns match, for each type of an org. endpoints: those of the first deliveries. Their
 * lock is shared: other events may hold it too, but nobody can deactivate an endpoint before its delivery is inserted.
 * All statements lock endpoints in the order of their ids. receivers: the first deliveries; one is backlogged if its
 * lane has a backlog. A sweep looks at the filters of the other endpoints, because they may be thousands.
 */
export const deliverEvents = (sql: SqlClient.SqlClient) => {
  // Those that send in order come first, and always with their event: a sweep could come after a later event.
  const isInline = sql.literal(`rank < ${inlineReceivers} OR wanted_in_order`)
  return sql`
    wanted AS MATERIALIZED (
      SELECT k.*, w.id AS endpoint, w.ordered AS wanted_in_order,
        row_number() OVER (
          PARTITION BY k.org_id, k.type, k.channels, k.subject ORDER BY NOT w.ordered, w.id
        )::int - 1 AS rank
      FROM (SELECT DISTINCT org_id, type, topics, channels, subject FROM event) AS k
      CROSS JOIN LATERAL (
        SELECT id, ordered FROM webhook_endpoints
        WHERE org_id = k.org_id AND ${wantsTopics(sql, sql`k.topics`, sql`k.channels`)} AND id <> k.subject
      ) AS w
    ), endpoints AS MATERIALIZED (
      SELECT w.*, ${lastOfLane(sql, { orgId: "c.org_id", lane: "w.lane", at: sql`(SELECT min(at) FROM event)` })} AS last FROM (
        SELECT DISTINCT endpoint, org_id FROM wanted WHERE ${isInline} ORDER BY endpoint
      ) AS c
      CROSS JOIN LATERAL (
        SELECT id, org_id, active, ordered, lane, filter_path, batch_within_ms FROM webhook_endpoints
        WHERE id = c.endpoint AND org_id = c.org_id FOR SHARE
      ) AS w
    ), content AS MATERIALIZED (
      SELECT id, event_json(body) AS json FROM event
      WHERE org_id IN (SELECT org_id FROM endpoints WHERE filter_path IS NOT NULL)
    ), receivers AS MATERIALIZED (
      SELECT ${deliveryId(sql, "e.id", "x.rank")} AS id, e.id AS event_id, e.org_id, e.at, e.n,
        octet_length(e.body) AS bytes, w.id AS endpoint, w.lane, w.ordered, w.last, w.batch_within_ms,
        CASE WHEN w.active THEN ${firstState(true)} ELSE ${firstState(false)} END AS state
      FROM event e
      JOIN wanted x ON x.org_id = e.org_id AND x.type = e.type AND x.channels = e.channels AND x.subject = e.subject
      JOIN endpoints w ON w.id = x.endpoint
      LEFT JOIN content c ON c.id = e.id
      WHERE (${isInline}) AND ${passesFilter(sql, "w.filter_path", "c.json")}
    ), ${writeDeliveries(sql, "receivers", false)}, swept AS (
      INSERT INTO sweeps (id, org_id, kind, event_id, receivers, created_at)
      SELECT ${deliveryId(sql, "e.id", "32767")}, e.org_id, 'deliver', e.id, array_agg(x.endpoint ORDER BY x.endpoint), e.at
      FROM event e
      JOIN wanted x ON x.org_id = e.org_id AND x.type = e.type AND x.channels = e.channels AND x.subject = e.subject
      WHERE NOT (${isInline})
      GROUP BY e.id, e.org_id, e.at RETURNING event_id, cardinality(receivers) AS receivers
    )`
}

/**
 * The CTEs `made`, `places` and `queued`, which insert deliveries and queue the pending ones.
 *
 * @param from a CTE (id, event_id, org_id, endpoint, lane, state, at, bytes, n, ordered, last,
 *   batch_within_ms): the deliveries, in the order of `n`. `last` is `lastOfLane` of the lane
 * @param backlogged `true` moves all of them to the backlog; `false` those whose lane has a backlog
 */
const writeDeliveries = (sql: SqlClient.SqlClient, from: "receivers" | "of_events", backlogged: boolean) => sql`
    made AS (
      SELECT event_id FROM ${sql(from)}
    ), skipped AS (
      INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, created_at, updated_at)
      SELECT id, org_id, event_id, endpoint, state, 0, at, at FROM ${sql(from)} WHERE state <> 'pending'
    ), places AS MATERIALIZED (
      SELECT r.lane, r.id, r.event_id,
        CASE WHEN r.ordered THEN ${endOfLane(sql, sql.literal("r.last"), "r.number")}
          ELSE ${endOfSpan(sql, "r.at", "r.batch_within_ms")} END AS due_at,
        ${backlogged}::boolean OR r.ordered OR r.last IS NOT NULL AS backlogged, r.org_id, r.bytes, r.at, r.n
      FROM (SELECT *, row_number() OVER (PARTITION BY lane ORDER BY n) AS number FROM ${sql(from)}) r
      WHERE r.state = 'pending'
    ), queued AS (
      INSERT INTO pending_deliveries (${sql.literal(queueColumns)})
      SELECT org_id, lane, id, event_id, 0, 0, due_at, backlogged, bytes, at, at FROM places ORDER BY n
    )`

/**
 * The CTEs that insert the deliveries of events and queue the pending ones. They read the CTEs `event` (id,
 * bytes) and `receivers` (id, event_id, endpoint, state, lane). A receiver whose event is not in `event` is not
 * inserted. `places` has what is queued.
 *
 * @param backlogged `true` moves all of them to the backlog; `false` those whose lane has a backlog
 */
export const insertDeliveries = (
  sql: SqlClient.SqlClient,
  orgId: string,
  now: DateTime.Utc,
  backlogged: boolean,
) => sql`
  lane_ends AS MATERIALIZED (
    SELECT lane, ${lastOfLane(sql, { orgId: "l.org_id", lane: "l.lane", at: sql`${date(now)}::timestamptz` })} AS last,
      ${isOrdered(sql, "l.endpoint")} AS ordered, ${batchWithin(sql, "l.endpoint")} AS batch_within_ms
    FROM (
      SELECT DISTINCT lane, endpoint, ${orgId}::text COLLATE "C" AS org_id FROM receivers WHERE state = 'pending'
    ) AS l
  ), of_events AS MATERIALIZED (
    SELECT r.*, event.bytes, ${orgId}::text AS org_id, ${date(now)}::timestamptz AS at,
      row_number() OVER (ORDER BY r.event_id) AS n, e.last, coalesce(e.ordered, false) AS ordered, e.batch_within_ms
    FROM receivers r JOIN event ON event.id = r.event_id LEFT JOIN lane_ends e USING (lane)
  ), ${writeDeliveries(sql, "of_events", backlogged)}`

/** The endpoints whose delivery of an event does not exist yet. */
interface FanOut {
  readonly orgId: string
  readonly eventId: string
  readonly endpoints: ReadonlyArray<string>
  /** The place of the first of them among all that a sweep inserts. */
  readonly place: number
  /** When the event was created. */
  readonly createdAt: DateTime.Utc
}

/**
 * Inserts the deliveries of an event to endpoints, in a transaction. They are backlogged at once, so that many of them
 * do not delay other lanes. Returns how many.
 */
export const fanOut = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { orgId, eventId, endpoints, place, createdAt }: FanOut,
) {
  // A shared lock: other events may hold it too, but nobody can deactivate an endpoint before its delivery is inserted.
  const candidates = yield* sql<Candidate & { readonly lane: string }>`
    WITH content AS MATERIALIZED (
      SELECT event_json(body) AS json FROM events WHERE id = ${eventId} AND org_id = ${orgId}
    )
    SELECT id, active, lane FROM webhook_endpoints
    WHERE org_id = ${orgId} AND id = ANY(${texts(endpoints)})
      AND ${passesFilter(sql, "filter_path", "(SELECT json FROM content)")}
    ORDER BY id FOR SHARE`
  const lanes = new Map(candidates.map(({ id, lane }) => [id, lane]))
  const to = endpointReceivers(candidates)
  // From the highest number down: those that were inserted with the event have the lowest.
  const ids = to.map(({ endpointId }) => deliveryIdOf(eventId, lastReceiver - place - endpoints.indexOf(endpointId!)))
  yield* sql`
    WITH receivers AS (
      SELECT r.*, ${eventId} AS event_id FROM unnest(${texts(ids)}, ${texts(to.map(({ endpointId }) => endpointId))},
        ${texts(to.map(({ state }) => state))}, ${texts(to.map(({ endpointId }) => lanes.get(endpointId!)!))})
        AS r (id, endpoint, state, lane)
    ), event AS (
      SELECT id, octet_length(body) AS bytes FROM events WHERE id = ${eventId} AND org_id = ${orgId}
    ), ${insertDeliveries(sql, orgId, createdAt, true)}
    SELECT 1`
  yield* changedLanes(sql)
  return to.length
})

/** The highest number of a receiver that has a delivery. The next one is that of the event's sweep. */
const lastReceiver = 32_766
export const maxDeliveriesPerEvent = lastReceiver + 1

/**
 * The id of a delivery: the time of its event's ULID, the last 13 of its 16 random characters, and the receiver's
 * number in three digits. So the deliveries of an event are a range of ids in the event's partition, and those of one
 * process stay in the order of their events.
 *
 * @param number the receiver's number, below 32,768
 */
export const deliveryIdOf = (eventId: string, number: number) =>
  [10, 5, 0].reduce(
    (id, shift) => id + base32Digits[(number >> shift) & 31]!,
    `${eventId.slice(0, 10)}${eventId.slice(13)}`,
  )

/** SQL: `deliveryIdOf`, because the database can number deliveries that the process cannot count. */
const deliveryId = (sql: SqlClient.SqlClient, event: string, number: string) => {
  const digit = (shift: number) => `substr('${base32Digits}', ((${number}) >> ${shift} & 31) + 1, 1)`
  return sql.literal(`left(${event}, 10) || substr(${event}, 14) || ${digit(10)} || ${digit(5)} || ${digit(0)}`)
}

/**
 * Whether an endpoint has one of the topics as a pattern, and one of the channels or no channels itself; reads its
 * columns `event_types` and `channels`.
 */
const wantsTopics = (sql: SqlClient.SqlClient, topics: Statement.Fragment, channels: Statement.Fragment) =>
  sql`coalesce(event_types, ${texts(defaultPatterns)}) && ${topics} AND (channels IS NULL OR channels && ${channels})`

/**
 * SQL: whether an endpoint's filter is true of an event. Without a filter, the body of the event is not read; an event
 * that is no jsonb passes every filter, so that it is not lost.
 */
export const passesFilter = (sql: SqlClient.SqlClient, path: string, json: string) =>
  sql.literal(`(${path} IS NULL OR coalesce(jsonb_path_match(${json}, ${path}, '{}', true), true))`)

/** `wantsTopics` for one event type, without channels. */
export const wantsType = (sql: SqlClient.SqlClient, type: string) =>
  wantsTopics(sql, sql`${texts(topicsOf(type))}`, sql`'{}'`)
