import { type DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient, Statement } from "effect/sql"
import { date, texts } from "../database/fragments.ts"

/*
 * The ids of lanes. The lane of an endpoint is its id; after each deactivation it is the id, a full stop, and a number,
 * and what is pending in an earlier lane is canceled. A lane of callbacks is the org's id, a space, and a number.
 * Whose turn it is among orgs and lanes is decided in queuePositions.ts, how much each gets in claimDeliveries.ts, and
 * how long a claim lasts in DeliveryWorker.ts.
 */

/** The length of the id of an endpoint or an org. */
const idLength = 26
/** What follows the id of an endpoint in a lane after its deactivation. */
const afterEndpoint = "."
/** What follows the id of an org in the lanes of its callbacks, and the next character: all are between both. */
export const [afterOrg, afterCallbacks] = [" ", "!"]

/** The `receiverId` of the deliveries of a lane. */
export const receiverOf = (lane: string) => (lane.charAt(idLength) === afterOrg ? lane : lane.slice(0, idLength))

/** The number of lanes that all callbacks of an org share. Several origins can share a lane. */
const callbackLanesPerOrg = 128

/** The lane of an org's callbacks to an origin. */
export const callbackLane = (orgId: string, url: string) => {
  // FNV-1a, 32 bits: it spreads origins evenly and is the same on every replica.
  let hash = 0x811c9dc5
  for (const char of new URL(url).origin) hash = Math.imul(hash ^ char.codePointAt(0)!, 0x01000193) >>> 0
  return `${orgId}${afterOrg}${hash % callbackLanesPerOrg}`
}

/** The columns of a delivery that is queued without a claim, in the order in which every statement inserts them. */
export const queueColumns =
  "org_id, lane, delivery_id, event_id, attempts, tries, due_at, backlogged, bytes, created_at, updated_at"

/** The columns of a delivery that has ended, in the order in which every statement inserts them. */
export const endedColumns = `id, org_id, event_id, endpoint_id, callback_lane, state, attempts, created_at, updated_at,
  attempt_started_at, attempt_duration_ms, attempt_status, attempt_failure, attempt_error, attempt_body`

/** SQL: the endpoint of a pending delivery, and its lane if it is a callback; `null` otherwise. */
export const endpointOf = (sql: SqlClient.SqlClient, lane: string) =>
  sql.literal(`CASE WHEN ${isOfCallbacks(lane)} THEN NULL ELSE left(${lane}, ${idLength}) END`)
export const callbackLaneOf = (sql: SqlClient.SqlClient, lane: string) =>
  sql.literal(`CASE WHEN ${isOfCallbacks(lane)} THEN ${lane} END`)
const isOfCallbacks = (lane: string) => `substr(${lane}, ${idLength + 1}, 1) = '${afterOrg}'`

/** A subquery: the last attempt of a pending delivery `p`. Called `last`; no row without an attempt. */
export const lastAttempt = (sql: SqlClient.SqlClient, delivery: string) =>
  sql.literal(`(
    SELECT * FROM delivery_attempts
    WHERE ${delivery}.attempts > 0 AND org_id = ${delivery}.org_id AND delivery_id = ${delivery}.delivery_id
    ORDER BY number DESC LIMIT 1
  ) AS last`)

/**
 * A subquery: the lanes of an org that have pending deliveries, in a range. Reads one index entry for each.
 *
 * @param orgId SQL: the org
 * @param from the beginning of the range, and `to` its end, which is not in it
 */
export const lanesOf = (
  sql: SqlClient.SqlClient,
  orgId: Statement.Fragment,
  from: string | Statement.Fragment = "",
  to: string | Statement.Fragment = afterLanes,
) => sql`(
    WITH RECURSIVE lanes AS (
      (SELECT lane FROM pending_deliveries WHERE org_id = ${orgId} AND lane >= ${from} AND lane < ${to}
      ORDER BY lane LIMIT 1)
      UNION ALL
      SELECT next.lane FROM lanes before CROSS JOIN LATERAL (
        SELECT lane FROM pending_deliveries WHERE org_id = ${orgId} AND lane > before.lane AND lane < ${to}
          ORDER BY lane LIMIT 1
      ) AS next
    ) SELECT lane FROM lanes
  )`
/** After every lane. */
const afterLanes = "~"

/** `lanesOf` an endpoint: its own, and those that it has left, whose deliveries are still to be canceled. */
export const lanesOfEndpoint = (sql: SqlClient.SqlClient, orgId: Statement.Fragment, endpointId: Statement.Fragment) =>
  lanesOf(sql, orgId, endpointId, sql`${endpointId} || ${sql.literal(`'${afterEndpoint}~'`)}`)

/**
 * A subquery: the events of some orgs, from an id to another, with a pending delivery. Reads the deliveries of that
 * time in each lane of the orgs, and may have an event more than once.
 *
 * @param orgs a SELECT of `org_id`
 * @param from SQL: the first id, and `to` the last
 */
export const pendingEvents = (
  sql: SqlClient.SqlClient,
  orgs: Statement.Fragment,
  from: Statement.Fragment,
  to: Statement.Fragment,
) => sql`(
    SELECT p.event_id FROM (${orgs}) AS o
    CROSS JOIN LATERAL ${lanesOf(sql, sql.literal("o.org_id"))} AS l
    CROSS JOIN LATERAL (
      -- The id of a delivery begins with the time of its event.
      SELECT event_id FROM pending_deliveries
      WHERE org_id = o.org_id AND lane = l.lane
        AND delivery_id >= left(${from}, 10) AND delivery_id <= left(${to}, 10) || '~'
    ) AS p
  )`

/** SQL: whether a column has the id of a delivery of the event: a range of the primary key. */
export const isOfEvent = (sql: SqlClient.SqlClient, column: string, event: string) => {
  const head = `left(${event}, 10) || substr(${event}, 14)`
  return sql.literal(`${column} >= ${head} || '000' AND ${column} <= ${head} || 'ZZZ'`)
}

/** A lane that its endpoint has left: all pending deliveries in it are canceled. */
export interface EndedLane {
  readonly orgId: string
  readonly endpointId: string
  readonly lane: string
}

/** Deliveries that are canceled together with the change of their endpoint; a sweep cancels the others. */
const inlineCancellations = 500

/** What a sweep over an ended lane has done. */
interface Canceled {
  /** The last delivery that it has read. */
  readonly doneTo: string
  /** The deliveries before that which were in flight then: they end with their attempt, or with its lease. */
  readonly inFlight: ReadonlyArray<string>
}

/**
 * Cancels the next pending deliveries of ended lanes, and those in flight whose lease has expired, in a transaction.
 * Locks the deliveries in the order of their ids, like every statement that changes deliveries.
 *
 * @returns how many deliveries it read, the last of them, and those that are in flight
 */
export const cancelBatch = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  ended: ReadonlyArray<Pick<EndedLane, "orgId" | "lane">>,
  { doneTo, inFlight }: Canceled,
  limit: number,
  now: DateTime.Utc,
) {
  const [orgs, lanes] = [texts(ended.map(({ orgId }) => orgId)), texts(ended.map(({ lane }) => lane))]
  const [found] = yield* sql<{
    rows: number
    last: string | null
    held: ReadonlyArray<{
      readonly orgId: string
      readonly lane: string
      readonly id: string
      readonly inFlight: boolean
    }>
  }>`
    WITH head AS (
      SELECT p.* FROM unnest(${orgs}, ${lanes}) AS l (org_id, lane) CROSS JOIN LATERAL (
        SELECT org_id, lane, delivery_id AS id FROM pending_deliveries p
        WHERE p.org_id = l.org_id AND p.lane = l.lane AND p.delivery_id > ${doneTo} ORDER BY p.delivery_id
          LIMIT ${limit}
      ) AS p LIMIT ${limit}
    ), again AS (
      SELECT l.*, id FROM unnest(${orgs}, ${lanes}) AS l (org_id, lane) CROSS JOIN unnest(${texts(inFlight)}) AS i (id)
    ), held AS MATERIALIZED (
      SELECT p.* FROM (SELECT * FROM head UNION ALL SELECT * FROM again ORDER BY id) AS head CROSS JOIN LATERAL (
        SELECT org_id AS "orgId", lane, delivery_id AS id,
          coalesce(lease_until > ${date(now)}, false) AND claim_id IS NOT NULL AS "inFlight"
        FROM pending_deliveries WHERE org_id = head.org_id AND lane = head.lane AND delivery_id = head.id FOR UPDATE
      ) AS p
    )
    SELECT (SELECT count(*)::int FROM head) AS rows, (SELECT max(id) FROM head) AS last,
      (SELECT coalesce(json_agg(held), '[]') FROM held) AS held`
  const { held, last, rows } = found!
  const gone = held.filter((delivery) => !delivery.inFlight)
  // A statement of its own, as `eventsOf` a claim.
  if (gone.length > 0) yield* endWithoutAttempt(sql, gone, date(now))
  return { rows, last, inFlight: held.filter((delivery) => delivery.inFlight).map(({ id }) => id) }
})

/** Ends deliveries of the queue that are locked. Their last attempt becomes that of the row. */
const endWithoutAttempt = (
  sql: SqlClient.SqlClient,
  deliveries: ReadonlyArray<{ readonly orgId: string; readonly lane: string; readonly id: string }>,
  at: Date,
) => sql`
  WITH given AS MATERIALIZED (
    SELECT p.place FROM unnest(${texts(deliveries.map(({ orgId }) => orgId))},
      ${texts(deliveries.map(({ lane }) => lane))},
      ${texts(deliveries.map(({ id }) => id))}) AS d (org_id, lane, id)
    CROSS JOIN LATERAL (
      SELECT ctid AS place FROM pending_deliveries WHERE org_id = d.org_id AND lane = d.lane AND delivery_id = d.id
        LIMIT 1
    ) AS p
  ), gone AS (
    DELETE FROM pending_deliveries WHERE ctid = ANY(ARRAY(SELECT place FROM given)) RETURNING *
  ), forgotten AS (
    DELETE FROM delivery_attempts WHERE org_id = ANY(ARRAY(SELECT org_id FROM gone WHERE attempts > 0))
      AND delivery_id = ANY(ARRAY(SELECT delivery_id FROM gone WHERE attempts > 0))
      AND (delivery_id, number) IN (SELECT delivery_id, attempts FROM gone)
  )
  INSERT INTO deliveries (${sql.literal(endedColumns)})
  SELECT gone.delivery_id, gone.org_id, event_id, ${endpointOf(sql, "lane")}, ${callbackLaneOf(sql, "lane")},
    'canceled', attempts, created_at, ${at}, started_at, duration_ms, status, failure, error, body
  FROM gone LEFT JOIN LATERAL ${lastAttempt(sql, "gone")} ON true`

/**
 * Cancels the pending deliveries of lanes that have just ended: the first ones now, the others by sweeps. From the
 * commit on, every reader and every claim takes all of them as canceled. Runs in the transaction that ends the lanes,
 * after the change of the endpoints: whoever inserts a delivery locks its endpoint first.
 */
export const cancelLanes = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  ended: ReadonlyArray<EndedLane>,
  now: DateTime.Utc,
) {
  if (ended.length === 0) return
  const { inFlight, rows } = yield* cancelBatch(sql, ended, { doneTo: "", inFlight: [] }, inlineCancellations, now)
  if (rows < inlineCancellations && inFlight.length === 0) return
  const ids = yield* Effect.forEach(ended, () => random.ulid)
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, endpoint_id, lane, created_at)
    SELECT id, org_id, 'cancel', endpoint_id, lane, ${date(now)}
    FROM unnest(${texts(ids)}, ${texts(ended.map(({ orgId }) => orgId))},
      ${texts(ended.map(({ endpointId }) => endpointId))}, ${texts(ended.map(({ lane }) => lane))})
      AS ended (id, org_id, endpoint_id, lane)`
})

/**
 * SQL: the org and the lane of a backlogged row `p`, as only the index of the backlog has them.
 *
 * Planner (the lane of a backlog is an expression): by the columns, a plan whose statistics are from an empty queue
 * would read the whole lane by the primary key, and sort it.
 */
export const backlogLane = (sql: SqlClient.SqlClient) => sql.literal("p.org_id || '', p.lane || ''")

interface Lane {
  /** SQL: the org, and the lane. */
  readonly orgId: string
  readonly lane: string
  readonly at: Statement.Fragment
}

/**
 * SQL: the latest `due_at` of a lane's backlog, if it is later than a second ago; else `NULL`. Older entries are not
 * read: they may be those of a million delivered rows that a forgotten transaction keeps. A backlog without a delivery
 * of the last second is taken for none: then a new delivery is queued at the head, and backlogged by a claim. Call it
 * once for a lane and not for each row.
 *
 * @param at SQL: the time of the delivery, by the clock of this process
 */
export const lastOfLane = (sql: SqlClient.SqlClient, { at, lane, orgId }: Lane) => sql`(
    SELECT last.due_at FROM pending_deliveries last
    WHERE last.backlogged AND last.org_id || '' = ${sql.literal(orgId)} AND last.lane || '' = ${sql.literal(lane)}
      AND last.due_at > least(now(), ${at}) - interval '1 second'
    ORDER BY last.due_at DESC, last.delivery_id DESC LIMIT 1
  )`

/**
 * SQL: the `due_at` of a row at the end of a lane that sends in order. By the clock of the database, because replicas
 * have their own: an event that is published after another one has been answered comes after it. Rows of one statement
 * are a microsecond apart.
 *
 * @param last `lastOfLane` of the lane
 * @param number the number of the new row among those of its statement and lane, from 1
 */
export const endOfLane = (sql: SqlClient.SqlClient, last: Statement.Fragment, number: string) =>
  sql`(greatest(now(), ${last}) + ${sql.literal(number)} * interval '1 microsecond')`

/** SQL: whether the endpoint of an id sends in order. */
export const isOrdered = (sql: SqlClient.SqlClient, endpoint: string) =>
  sql.literal(`EXISTS (SELECT FROM webhook_endpoints o WHERE o.id = ${endpoint} AND o.ordered)`)

/** SQL: the `batch_within_ms` of the endpoint of an id. */
export const batchWithin = (sql: SqlClient.SqlClient, endpoint: string) =>
  sql.literal(`(SELECT batch_within_ms FROM webhook_endpoints o WHERE o.id = ${endpoint})`)

/**
 * SQL: when a delivery is due whose endpoint sends events together: at the end of its time span. The spans of all
 * endpoints and replicas are the same, so all deliveries of a span are due, and claimed, together.
 */
export const endOfSpan = (sql: SqlClient.SqlClient, at: string, withinMillis: string) =>
  sql.literal(`CASE WHEN ${withinMillis} > 0
    THEN date_bin(${withinMillis} * interval '1 millisecond', ${at}, 'epoch') + ${withinMillis} * interval '1 millisecond'
    ELSE ${at} END`)

/**
 * A subquery: the endpoint of a lane `l`. No row for a callback lane, and none when the endpoint was deleted or
 * deactivated after its deliveries were queued. `LIMIT 1` keeps the subquery separate, so that no plan reads the whole
 * table.
 */
export const liveEndpoint = (sql: SqlClient.SqlClient) => sql`
  (SELECT * FROM webhook_endpoints WHERE id = left(l.lane, ${sql.literal(`${idLength}`)}) AND active AND lane = l.lane LIMIT 1)`

/** SQL: whether a lane `l` is a callback lane. */
export const isCallbackLane = (sql: SqlClient.SqlClient) => sql.literal(`(${isOfCallbacks("l.lane")})`)

/** SQL: the lane of the endpoint `w` after its deactivation. */
const nextLane = `w.id || '${afterEndpoint}'
  || coalesce(nullif(split_part(w.lane, '${afterEndpoint}', 2), '')::int, 0) + 1`

/**
 * SQL: what an UPDATE sets of an endpoint `w` that is deactivated: its lane ends, and it says when and why.
 *
 * @param reason a `DeactivatedReason`, or SQL of one
 */
export const endLane = (sql: SqlClient.SqlClient, now: DateTime.Utc, reason: string | Statement.Fragment) =>
  sql`lane = ${sql.literal(nextLane)}, deactivated_at = ${date(now)}, deactivated_reason = ${reason}`

/**
 * The deliveries with their columns as the index by endpoint has them.
 *
 * Planner (deliveries of an endpoint by expressions): by the columns, a plan would read all deliveries of the org by
 * its index, or of all orgs by the primary key, to find those of an endpoint that has few.
 */
export const ofEndpoints = (sql: SqlClient.SqlClient) =>
  sql.literal("(SELECT id || '' AS id, org_id || '' AS org_id, endpoint_id, state, created_at FROM deliveries) AS d")

/**
 * Locks what makes ended deliveries of an org pending, until the end of the transaction: shared by retries and resends,
 * alone for the removal of events, so that nothing of them becomes pending while they are removed.
 */
export const lockResends = (sql: SqlClient.SqlClient, orgId: string, how: "shared" | "alone") =>
  sql`SELECT ${sql.literal(how === "shared" ? "pg_advisory_xact_lock_shared" : "pg_advisory_xact_lock")}(
    hashtextextended(${`gatehouse:resend:${orgId}`}, 0))`

/** SQL: the state of delivery `d`, which is in the queue: it is canceled when its endpoint has left its lane. */
export const queuedState = (sql: SqlClient.SqlClient) => sql`
  (CASE WHEN d.endpoint_id IS NULL
    OR EXISTS (SELECT FROM webhook_endpoints w WHERE w.id = d.endpoint_id AND w.lane = d.lane)
    THEN 'pending' ELSE 'canceled' END)`
