import { DateTime, Duration, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Conflict, type NotFound } from "../../domain/Errors.ts"
import type { Page } from "../../domain/Page.ts"
import {
  attemptInFlight,
  Delivery,
  DeliveryAttempt,
  type DeliveryFilter,
  DeliveryLogRepository,
  deliveryNotFound,
  endpointDeleted,
  endpointInactive,
  maxShownAttempts,
  endpointName,
  maxTopEndpoints,
  Resend,
  ResendFilter,
  resendNotFound,
} from "../../domain/webhooks/DeliveryLog.ts"
import { maxFilterSweeps } from "../../domain/sweeps/maxFilterSweeps.ts"
import { endpointNotFound } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { afterCursor, date, decodeRows, Time, idAt, texts } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { changedLanes, queuePositions } from "../queue/queuePositions.ts"
import { endFilterSweep, filterSweeps, startFilterSweep } from "../filterSweeps.ts"
import { maxDeliveriesPerEvent } from "../queue/insertEvents.ts"
import { sentBody } from "../../domain/webhooks/Event.ts"
import { PayloadKind } from "../../domain/webhooks/WebhookEndpoint.ts"
import {
  callbackLaneOf,
  endOfLane,
  endpointOf,
  isOfEvent,
  lanesOf,
  lanesOfEndpoint,
  lastAttempt,
  lastOfLane,
  lockResends,
  ofEndpoints,
  queueColumns,
  queuedState,
} from "../queue/lanes.ts"

/** The log of deliveries in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return DeliveryLogRepository.of({
      list: (orgId, filter, page) => orUnavailable(listDeliveries(sql, orgId, filter, page)),

      find: (orgId, deliveryId) =>
        // One statement, so that the answer has all of an attempt that is being recorded, or nothing of it.
        sql`
          SELECT ${deliveryColumns(sql)}, e.body AS payload, (
            SELECT payload FROM webhook_endpoints WHERE id = d.endpoint_id AND org_id = ${orgId}
          ) AS payload_kind, (
            SELECT coalesce(json_agg(made ORDER BY number), '[]')::text FROM (
              SELECT number, started_at, duration_ms, status, failure, error, body FROM delivery_attempts
              WHERE delivery_id = d.id AND org_id = ${orgId}
              UNION ALL
              SELECT d.attempts, d.attempt_started_at, d.attempt_duration_ms, d.attempt_status, d.attempt_failure,
                d.attempt_error, d.attempt_body
              WHERE d.attempt_started_at IS NOT NULL AND looked.lane IS NULL
              ORDER BY number DESC LIMIT ${maxShownAttempts}
            ) AS made
          ) AS attempt_log
          FROM ${placesOf(sql, orgId, deliveryId)} AS looked ${deliveryJoins(sql, orgId)}`.pipe(
          decodeDetail,
          Effect.flatMap(([row]) => {
            if (row === undefined) return deliveryNotFound()
            const { payload, payload_kind, ...delivery } = row
            return Effect.succeed({ ...delivery, payload: sentBody(payload_kind ?? "envelope", payload) })
          }),
          orUnavailable,
        ),

      retry: (orgId, deliveryId, now) =>
        retryDelivery(sql, orgId, deliveryId, now).pipe(sql.withTransaction, orUnavailable),

      requireActive: (orgId, endpointId) =>
        sql<{ active: boolean }>`
          SELECT active FROM webhook_endpoints WHERE id = ${endpointId} AND org_id = ${orgId}`.pipe(
          Effect.flatMap(([endpoint]): Effect.Effect<void, Conflict | NotFound> => {
            if (endpoint === undefined) return endpointNotFound()
            return endpoint.active ? Effect.void : endpointInactive()
          }),
          orUnavailable,
        ),

      countResend: (orgId, filter) =>
        sql<{ count: number; isAll: boolean }>`
          SELECT (count(*) FILTER (WHERE wanted))::int AS count, count(*) < ${maxCounted} AS "isAll"
          FROM (${resendable(sql, { orgId, filter }, "", maxCounted)}) AS d`.pipe(
          Effect.map(([row]) => row!),
          orUnavailable,
        ),

      resend: (orgId, { count, filter }, entry) => {
        const endpointId = filter.webhook_endpoint_id
        const sweep = { kind: "resend", count, filter: filterJson(filter), endpointId } as const
        return startFilterSweep(sql, orgId, sweep, entry).pipe(
          Effect.flatMap(({ length }) => (length > 0 ? Effect.void : tooManyResends(filter))),
          orUnavailable,
        )
      },

      resends: (orgId) =>
        filterSweeps(sql, orgId, ["resend"]).pipe(
          Effect.map((rows) => rows.map(({ done, id, ...row }) => ({ ...row, resend_id: id, resent: done }))),
          decodeResends,
          orUnavailable,
        ),

      cancelResend: (orgId, entry) =>
        endFilterSweep(sql, orgId, ["resend"], entry).pipe(
          Effect.flatMap(({ length }) => (length > 0 ? Effect.void : resendNotFound())),
          orUnavailable,
        ),

      causes: (orgId, filter) => orUnavailable(listCauses(sql, orgId, filter)),
    })
  }),
)

const Row = Schema.Struct({
  ...Delivery.fields,
  next_attempt_at: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
})
const AttemptRow = Schema.Struct({ ...DeliveryAttempt.fields, started_at: Schema.DateTimeUtcFromString })
const DetailRow = Schema.Struct({
  ...Row.fields,
  payload: Schema.String,
  payload_kind: Schema.NullOr(PayloadKind),
  attempt_log: Schema.fromJsonString(Schema.Array(AttemptRow)),
})

const decodeResends = decodeRows(
  Schema.Struct({ ...Resend.fields, filter: Schema.fromJsonString(ResendFilter), created_at: Time }),
)
const filterJson = Schema.encodeSync(Schema.fromJsonString(ResendFilter))

const CauseRow = Schema.Struct({
  status: Schema.NullOr(Schema.Int),
  failure: Schema.NullOr(Schema.String),
  deliveries: Schema.Int,
  endpoints: Schema.Int,
  top_ids: Schema.Array(Schema.String),
  top_counts: Schema.Array(Schema.Int),
  delivery_id: Schema.String,
  at: Time,
  text: Schema.NullOr(Schema.String),
})
const decodeCauses = decodeRows(CauseRow)

const decodeDeliveries = decodeRows(Row)
const decodeDetail = decodeRows(DetailRow)

/** The columns of a delivery; they read the tables of `deliveryJoins`. */
const deliveryColumns = (sql: Sql) =>
  sql.literal(`
  d.id AS delivery_id, d.event_id, e.job_id, d.endpoint_id AS webhook_endpoint_id, e.type AS event, d.state, d.attempts,
  CASE WHEN d.state = 'pending' THEN d.next_at END AS next_attempt_at,
  d.attempt_status AS last_status, d.attempt_failure AS last_failure, d.attempt_duration_ms AS last_duration_ms,
  d.created_at, d.updated_at`)

/**
 * Joins a row `looked` (id, lane) with its delivery `d` and the event `e`. The lane is that of a pending delivery, and
 * `null` for one that has ended.
 */
const deliveryJoins = (sql: Sql, orgId: string) => sql`
  CROSS JOIN LATERAL (
    SELECT id, event_id, endpoint_id, state, attempts, updated_at AS next_at, created_at, updated_at,
      attempt_started_at, attempt_duration_ms, attempt_status, attempt_failure, attempt_error, attempt_body
    FROM deliveries d WHERE looked.lane IS NULL AND id = looked.id AND org_id = ${orgId}
    UNION ALL
    SELECT d.id, event_id, d.endpoint_id, ${queuedState(sql)}, attempts, coalesce(lease_until, due_at), d.created_at,
      updated_at, last.started_at, last.duration_ms, last.status, last.failure, last.error, last.body
    FROM pending_deliveries p
    CROSS JOIN LATERAL (
      SELECT p.delivery_id AS id, ${endpointOf(sql, "p.lane")} AS endpoint_id, p.lane, p.created_at
    ) AS d
    LEFT JOIN LATERAL ${lastAttempt(sql, "p")} ON true
    WHERE p.org_id = ${orgId} AND p.lane = looked.lane AND p.delivery_id = looked.id
  ) AS d
  CROSS JOIN LATERAL (SELECT type, job_id, body FROM events WHERE id = d.event_id LIMIT 1) AS e`

/** A table (id, lane) of the places where a delivery may be: among those that have ended, and each lane of the org. */
const placesOf = (sql: Sql, orgId: string, deliveryId: string | Statement.Fragment) => sql`(
    SELECT ${deliveryId}::text AS id, NULL::text AS lane UNION ALL
    SELECT ${deliveryId}, lane FROM ${lanesOf(sql, sql`${orgId}`)} AS lanes
  )`

type Sql = SqlClient.SqlClient

/**
 * A table `s` of the states that a resend sends. With one state, an index has the deliveries in the order of their
 * ids.
 */
const unsuccessfulStates = (sql: Sql) => sql.literal("(VALUES ('failed'), ('canceled'), ('skipped')) AS s (state)")

/**
 * The deliveries with their columns as the indexes of unsuccessful ones have them.
 *
 * Planner (unsuccessful deliveries by expressions): by the columns, the primary key and the indexes of an org or an
 * endpoint fit, too, and a plan whose statistics take the org for a small one would read all of its deliveries.
 */
const unsuccessfulDeliveries = (sql: Sql) =>
  sql.literal(`(
    SELECT id || '' AS id, org_id || '' AS org_id, created_at,
      unsuccessful || org_id AS state_of_org, unsuccessful || endpoint_id AS state_of_endpoint FROM deliveries
  ) AS d`)

/** Whether one of the `unsuccessfulDeliveries` of an org or an endpoint has a state. */
const isUnsuccessful = (
  sql: Sql,
  of: "org" | "endpoint",
  state: string | Statement.Fragment,
  id: string | Statement.Fragment,
) => sql`${sql.literal(`state_of_${of}`)} = ${state}::text || ${id}::text`

/**
 * Deliveries that one page reads at most. Matches may be rare among millions of deliveries, or about to be swept: the
 * page is then short, and its cursor continues after the last delivery that was read.
 */
const maxReadPerPage = 10_000
/** Sweeps of an org that one page reads at most. */
const maxSources = 1_000

/** The newest pending deliveries (id, lane) of each of some lanes. `lanes` is a SELECT of a column `lane`. */
const pendingIn = (sql: Sql, orgId: string, lanes: Statement.Fragment, after: Statement.Fragment, limit: number) => sql`
  (SELECT p.id, l.lane FROM (${lanes}) AS l CROSS JOIN LATERAL (
    SELECT id FROM (SELECT org_id, lane, delivery_id AS id FROM pending_deliveries) AS p
    WHERE p.org_id = ${orgId} AND p.lane = l.lane AND ${after}
    ORDER BY id DESC LIMIT ${limit}
  ) AS p)`

/** Pending deliveries of each lane that one page reads at most, when a filter may leave few of them. */
const maxReadPerLane = 1_000

/** The lanes that a list reads pending deliveries of. */
const lanesRead = (sql: Sql, orgId: string, endpoint: string | undefined) => sql`
  SELECT lane FROM ${
    endpoint === undefined ? lanesOf(sql, sql`${orgId}`) : lanesOfEndpoint(sql, sql`${orgId}`, sql`${endpoint}`)
  } AS lanes`

/** SQL: bounds of `id`, so that a range of time reads no index entries of other times. */
const idRange = (sql: Sql, { since, until }: DeliveryFilter, page: Page) => {
  const all = sql.literal("true")
  const from = since === undefined ? all : sql`id > ${idBefore(since)}`
  const to = until === undefined ? all : sql`id < ${idAfter(until)}`
  return sql`${afterCursor(sql, page, "newest")} AND ${from} AND ${to}`
}

/**
 * The deliveries (id, lane) that a list filters, newest first: those that have ended, and those in the queue, each the
 * start of a SELECT without its LIMIT. Reads an index on the wanted state where there is one.
 *
 * @param perLane the deliveries of each lane that are read at most
 */
const candidates = (sql: Sql, orgId: string, filter: DeliveryFilter, page: Page, perLane: number) => {
  const { event_id, job_id, state, webhook_endpoint_id: endpoint } = filter
  const all = sql.literal("true")
  const limit = sql.literal(`LIMIT ${maxSources}`)
  const after = idRange(sql, filter, page)
  const ofEndpoint = endpoint === undefined ? all : sql`endpoint_id = ${endpoint}`
  const newest = (from: Statement.Fragment) =>
    sql`SELECT id, NULL::text AS lane FROM ${from} AND ${after} ORDER BY id DESC`
  if (job_id !== undefined || event_id !== undefined) {
    const isWanted = job_id === undefined ? sql`id = ${event_id!}` : sql`job_id = ${job_id}`
    // The limit is never reached. Without it, a plan could read all deliveries of the org to have them in order.
    const ended = sql`(
      SELECT d.* FROM events e CROSS JOIN LATERAL (
        SELECT id, endpoint_id FROM deliveries WHERE ${isOfEvent(sql, "id", "e.id")} AND org_id = ${orgId}
        LIMIT ${maxDeliveriesPerEvent}
      ) AS d WHERE e.${isWanted} AND e.org_id = ${orgId}
    ) AS of_event WHERE ${ofEndpoint}`
    const pending = sql`
      SELECT id, lane FROM (
        SELECT p.* FROM events e CROSS JOIN LATERAL ${lanesOf(sql, sql`${orgId}`)} AS l CROSS JOIN LATERAL (
          SELECT delivery_id AS id, lane, ${endpointOf(sql, "lane")} AS endpoint_id FROM pending_deliveries
          WHERE org_id = ${orgId} AND lane = l.lane AND ${isOfEvent(sql, "delivery_id", "e.id")}
          LIMIT ${maxDeliveriesPerEvent}
        ) AS p WHERE e.${isWanted} AND e.org_id = ${orgId}
      ) AS of_event WHERE ${ofEndpoint} AND ${after} ORDER BY id DESC`
    return { ended: newest(ended), pending }
  }
  const pendingOf = (lanes: Statement.Fragment) => sql`
    SELECT id, lane FROM ${pendingIn(sql, orgId, lanes, after, perLane)} AS p ORDER BY id DESC`
  if (state === undefined || state === "delivered") {
    const deliveries = endpoint === undefined ? sql`deliveries` : ofEndpoints(sql)
    const ended = newest(sql`${deliveries} WHERE org_id = ${orgId} AND ${ofEndpoint}`)
    return { ended, pending: state === undefined ? pendingOf(lanesRead(sql, orgId, endpoint)) : null }
  }
  if (state === "pending") return { ended: null, pending: pendingOf(lanesRead(sql, orgId, endpoint)) }
  const ofState =
    endpoint === undefined ? isUnsuccessful(sql, "org", state, orgId) : isUnsuccessful(sql, "endpoint", state, endpoint)
  const ended = newest(sql`${unsuccessfulDeliveries(sql)} WHERE ${ofState} AND org_id = ${orgId}`)
  if (state !== "canceled") return { ended, pending: null }
  // Those in ended lanes are canceled, but not swept yet.
  const endedLanes = sql`SELECT lane FROM sweeps WHERE org_id = ${orgId} AND kind = 'cancel' AND ${ofEndpoint} ${limit}`
  return { ended, pending: pendingOf(endedLanes) }
}

/** Lists an org's deliveries, newest first. */
const listDeliveries = Effect.fnUntraced(function* (sql: Sql, orgId: string, filter: DeliveryFilter, page: Page) {
  const state = filter.state ?? null
  const all = sql.literal("true")
  // Also of a list by job or endpoint, where `candidates` knows only one condition.
  const matches = [
    filter.event_id === undefined ? all : sql`d.event_id = ${filter.event_id}`,
    filter.event_type === undefined ? all : sql`e.type = ${filter.event_type}`,
    filter.since === undefined ? all : sql`d.created_at >= ${date(filter.since)}`,
    filter.until === undefined ? all : sql`d.created_at < ${date(filter.until)}`,
    filter.status === undefined ? all : sql`d.attempt_status = ${filter.status}`,
    filter.failure === undefined ? all : sql`d.attempt_failure = ${filter.failure}`,
  ]
  const { event_id, event_type, failure, job_id, status, webhook_endpoint_id: endpoint } = filter
  const isFiltered = matches.some((match) => match !== all)
  // By time, the first ones of a lane are wanted, but for those of an hour.
  const isRare = (event_type ?? status ?? failure) !== undefined
  const perLane = isRare ? Math.max(maxReadPerLane, page.limit + 1) : page.limit + 1
  const { ended, pending } = candidates(sql, orgId, filter, page, perLane)
  // Each reads no more than its first matches.
  const sources = [ended, pending].filter((source) => source !== null)
  const found = sources.map(
    (source) => sql`(
    SELECT ${deliveryColumns(sql)} FROM (${source} LIMIT ${maxReadPerPage}) AS looked ${deliveryJoins(sql, orgId)}
    WHERE (${state}::text IS NULL OR d.state = ${state}) AND ${sql.and(matches)}
    ORDER BY looked.id DESC LIMIT ${page.limit + 1})`,
  )
  const deliveries = yield* sql`
    SELECT * FROM (${sql.join(" UNION ALL ", false)(found)}) AS found
    ORDER BY delivery_id DESC LIMIT ${page.limit + 1}`.pipe(decodeDeliveries)
  const isFull = deliveries.length > page.limit
  const readsLanes = isFiltered && pending !== null && event_id === undefined && job_id === undefined
  if (isFull && !readsLanes) return { deliveries, scannedTo: null }
  // Older ones than the last that was read, of all or of one lane, are for the next page.
  const last = (source: Statement.Fragment | null) =>
    source === null || isFull
      ? sql.literal("NULL")
      : sql`(SELECT id FROM (${source} LIMIT ${maxReadPerPage}) AS looked OFFSET ${maxReadPerPage - 1})`
  const lastOfLanes = sql`(
    SELECT max(p.id) FROM (${lanesRead(sql, orgId, endpoint)}) AS l CROSS JOIN LATERAL (
      SELECT id FROM (SELECT org_id, lane, delivery_id AS id FROM pending_deliveries) AS p
      WHERE p.org_id = ${orgId} AND p.lane = l.lane AND ${idRange(sql, filter, page)}
      ORDER BY id DESC OFFSET ${perLane - 1} LIMIT 1
    ) AS p)`
  const [end] = yield* sql<{ id: string | null }>`
    SELECT greatest(${last(ended)}, ${last(pending)}, ${readsLanes ? lastOfLanes : sql.literal("NULL")}) AS id`
  const scannedTo = end!.id
  if (scannedTo === null) return { deliveries, scannedTo: null }
  const complete = deliveries.filter(({ delivery_id }) => delivery_id >= scannedTo)
  return { deliveries: complete, scannedTo: complete.length > page.limit ? null : scannedTo }
})

/** How much the time of an id may differ from its delivery's `created_at`. */
const maxIdAge = Duration.hours(1)

/** A lower bound for the ids of deliveries that were created at `since` or later. */
const idBefore = (since: DateTime.Utc) => idAt(DateTime.toEpochMillis(since) - Duration.toMillis(maxIdAge))

/** An upper bound for the ids of deliveries that were created before `until`. */
const idAfter = (until: DateTime.Utc) => idAt(DateTime.toEpochMillis(until) + Duration.toMillis(maxIdAge))

/** A delivery that is to be sent again. */
interface Retryable {
  /** `null` for a callback. */
  readonly endpoint: string | null
  /** The lane of the callback. */
  readonly callbackLane: string | null
  /** The lane that it is pending in; `null` when it has ended. */
  readonly pendingIn: string | null
  readonly claimed: boolean
}

/** Fails when the delivery cannot be sent again. */
const findRetryable = Effect.fnUntraced(function* (sql: Sql, orgId: string, deliveryId: string, now: DateTime.Utc) {
  const [delivery] = yield* sql<Retryable>`
    SELECT d.endpoint_id AS endpoint, d.callback_lane AS "callbackLane", looked.lane AS "pendingIn", d.claimed
    FROM ${placesOf(sql, orgId, deliveryId)} AS looked CROSS JOIN LATERAL (
      SELECT endpoint_id, callback_lane, false AS claimed FROM deliveries
      WHERE looked.lane IS NULL AND id = looked.id AND org_id = ${orgId}
      UNION ALL
      SELECT ${endpointOf(sql, "lane")}, ${callbackLaneOf(sql, "lane")}, claim_id IS NOT NULL
        AND lease_until > ${date(now)}
      FROM pending_deliveries WHERE org_id = ${orgId} AND lane = looked.lane AND delivery_id = looked.id
    ) AS d`
  if (delivery === undefined) return yield* deliveryNotFound()
  if (delivery.claimed) return yield* attemptInFlight()
  return delivery
})

/** Locks an active endpoint and returns its lane. */
const lockEndpoint = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, endpointId: string) {
  const [endpoint] = yield* sql<{ active: boolean; lane: string; ordered: boolean }>`
    SELECT active, ordered, lane FROM webhook_endpoints
    WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
  if (endpoint === undefined) return yield* endpointDeleted()
  if (!endpoint.active) return yield* endpointInactive()
  return endpoint
})

/** Where and when a delivery is due again. */
interface Place {
  readonly at: Date
  readonly lane: string
  readonly ordered: boolean
}

/** The CTE `place` (lane, due_at): in a lane that sends in order, the end of it. */
const placeOf = (sql: Sql, orgId: string, { at, lane, ordered }: Place) => {
  const last = lastOfLane(sql, { orgId: "l.org_id", lane: "l.lane", at: sql`${at}::timestamptz` })
  return sql`place AS MATERIALIZED (
      SELECT lane, ${ordered ? endOfLane(sql, last, "1") : sql`${at}::timestamptz`} AS due_at
      FROM (SELECT ${orgId}::text COLLATE "C" AS org_id, ${lane}::text COLLATE "C" AS lane) AS l
    )`
}

/**
 * The CTEs that take deliveries which have ended out of their table; their last attempt gets a row of its own. `gone`
 * has them.
 *
 * @param which SQL: the condition of the rows
 */
const takeEnded = (sql: Sql, which: Statement.Fragment) => sql`
    gone AS (
      DELETE FROM deliveries WHERE ${which} RETURNING *
    ), kept AS (
      INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status, failure, error, body)
      SELECT id, org_id, attempts, attempt_started_at, attempt_duration_ms, attempt_status, attempt_failure,
        attempt_error, attempt_body
      FROM gone WHERE attempt_started_at IS NOT NULL
    )`

/** SQL: the size of the body of a delivery's event. */
const bodySize = "octet_length((SELECT body FROM events WHERE id = event_id))"

/** Queues a delivery that has ended. Returns no row when it is pending meanwhile. */
const queueAgain = (sql: Sql, orgId: string, deliveryId: string, place: Place) => sql`
  WITH ${takeEnded(sql, sql`id = ${deliveryId} AND org_id = ${orgId}`)}, ${placeOf(sql, orgId, place)}
  INSERT INTO pending_deliveries (${sql.literal(queueColumns)})
  SELECT org_id, place.lane, id, event_id, attempts, 0, place.due_at, ${place.ordered}::boolean,
    ${sql.literal(bodySize)}, created_at, ${place.at}
  FROM gone CROSS JOIN place RETURNING delivery_id`

/** Makes a pending delivery due, in the lane that its endpoint has now. No row: it is claimed or has ended. */
const renew = (sql: Sql, orgId: string, deliveryId: string, lane: string, place: Place) => sql`
  WITH ${placeOf(sql, orgId, place)}
  UPDATE pending_deliveries p SET lane = place.lane, due_at = place.due_at, tries = 0,
    backlogged = ${place.ordered}::boolean, claim_id = NULL, lease_until = NULL, updated_at = ${place.at}
  FROM place
  WHERE p.org_id = ${orgId} AND p.lane = ${lane} AND p.delivery_id = ${deliveryId}
    AND (p.claim_id IS NULL OR p.lease_until IS NULL OR p.lease_until <= ${place.at})
  RETURNING p.delivery_id`

/** Tries to send a delivery again that ends, or is canceled, between two statements. */
const maxRetryTries = 3

/** Makes a delivery due now, with the retry schedule from its start. Runs in a transaction. */
const retryDelivery = Effect.fnUntraced(function* (sql: Sql, orgId: string, deliveryId: string, now: DateTime.Utc) {
  yield* lockResends(sql, orgId, "shared")
  for (let tries = 1; tries <= maxRetryTries; tries++) {
    const { callbackLane, endpoint, pendingIn } = yield* findRetryable(sql, orgId, deliveryId, now)
    // The endpoint may have another lane than when the delivery was queued; a callback keeps its lane.
    const { lane, ordered } =
      endpoint === null ? { lane: callbackLane!, ordered: false } : yield* lockEndpoint(sql, orgId, endpoint)
    const place = { at: date(now), lane, ordered }
    const queued =
      pendingIn === null
        ? yield* queueAgain(sql, orgId, deliveryId, place)
        : yield* renew(sql, orgId, deliveryId, pendingIn, place)
    if (queued.length > 0) {
      yield* sql.afterCommit(Effect.sync(() => queuePositions(sql).queued(now.epochMilliseconds)))
      return yield* changedLanes(sql)
    }
  }
  return yield* attemptInFlight()
})

/**
 * A SELECT (id, lane, created_at) of the next deliveries after an id that sweeps still have to cancel, in the order of
 * their ids in each lane.
 *
 * @param of SQL: whose sweeps
 * @param end SQL: the end of the range of `delivery_id`
 */
const inEndedLanes = (
  sql: SqlClient.SqlClient,
  of: Statement.Fragment,
  after: string,
  end: Statement.Fragment,
  limit: number,
) => sql`
  SELECT p.id, s.lane, p.created_at
  FROM (SELECT org_id, lane, done_to, receivers FROM sweeps WHERE ${of} AND kind = 'cancel') AS s
  CROSS JOIN LATERAL (
    -- After what the sweep has done, whose dead entries a plan would read again; in the order of the primary key.
    (SELECT delivery_id AS id, created_at FROM pending_deliveries
    WHERE org_id = s.org_id AND lane = s.lane AND delivery_id > greatest(s.done_to, ${after}) AND ${end}
    ORDER BY delivery_id LIMIT ${limit}::int)
    UNION ALL
    -- Before that, what was in flight then.
    SELECT p.* FROM unnest(s.receivers) AS r (id) CROSS JOIN LATERAL (
      SELECT delivery_id AS id, created_at FROM pending_deliveries
      WHERE org_id = s.org_id AND lane = s.lane AND delivery_id = r.id AND delivery_id > ${after} AND ${end} LIMIT 1
    ) AS p WHERE r.id <= s.done_to
  ) AS p`

/** A delivery that a resend may send. */
interface Looked {
  readonly id: string
  /** The lane that a sweep still has to cancel it in; `null` when it has ended. */
  readonly lane: string | null
  readonly endpointId: string
  readonly wanted: boolean
}

/** An active endpoint. */
interface Receiver {
  readonly id: string
  readonly orgId: string
  readonly lane: string
  readonly ordered: boolean
}

/**
 * Makes unsuccessful deliveries of a locked endpoint due now, and those in its ended lanes, in a transaction. They are
 * backlogged at once, so that a large backlog does not delay other lanes. An attempt in flight continues, and its
 * result is recorded.
 *
 * @returns how many are due now: not those that others have moved
 */
const requeue = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { lane, ordered, orgId }: Receiver,
  rows: ReadonlyArray<Pick<Looked, "id" | "lane">>,
  now: DateTime.Utc,
) {
  const [ended, queued] = [rows.filter((row) => row.lane === null), rows.filter((row) => row.lane !== null)]
  // A statement of its own, as `eventsOf` a claim.
  const waiting =
    queued.length === 0
      ? []
      : yield* sql<{ id: string; lane: string }>`
          SELECT p.* FROM unnest(${texts(queued.map(({ id }) => id))}, ${texts(queued.map((row) => row.lane))})
            AS q (id, lane)
          CROSS JOIN LATERAL (
            SELECT delivery_id AS id, lane FROM pending_deliveries
            WHERE org_id = ${orgId} AND lane = q.lane AND delivery_id = q.id AND lane <> ${lane} FOR UPDATE
          ) AS p`
  const last = lastOfLane(sql, { orgId: "l.org_id", lane: "l.lane", at: sql`${date(now)}::timestamptz` })
  const end = endOfLane(sql, sql.literal("(SELECT last FROM new_lane)"), "number")
  const taken = sql`id = ANY(${texts(ended.map(({ id }) => id))}) AND org_id = ${orgId} AND unsuccessful IS NOT NULL`
  const [done] = yield* sql<{ resent: number }>`
    WITH new_lane AS MATERIALIZED (
      SELECT lane, ${last} AS last
      FROM (SELECT ${orgId}::text COLLATE "C" AS org_id, ${lane}::text COLLATE "C" AS lane) AS l
    ), ${takeEnded(sql, taken)}, waiting AS MATERIALIZED (
      SELECT p.* FROM unnest(${texts(waiting.map(({ id }) => id))}, ${texts(waiting.map((row) => row.lane))})
        AS q (id, lane)
      CROSS JOIN LATERAL (
        SELECT ctid AS place, delivery_id AS id FROM pending_deliveries
        WHERE org_id = ${orgId} AND lane = q.lane AND delivery_id = q.id LIMIT 1
      ) AS p
    ), places AS MATERIALIZED (
      SELECT *, CASE WHEN ${ordered}::boolean THEN ${end} ELSE ${date(now)} END AS due_at FROM (
        SELECT *, row_number() OVER (ORDER BY id) AS number FROM (
          SELECT id, event_id, attempts, created_at, NULL::tid AS place FROM gone
          UNION ALL SELECT id, NULL, NULL, NULL, place FROM waiting
        ) AS all_of_them
      ) AS numbered
    ), queued AS (
      INSERT INTO pending_deliveries (${sql.literal(queueColumns)})
      SELECT ${orgId}, ${lane}, id, event_id, attempts, 0, due_at, true, ${sql.literal(bodySize)}, created_at,
        ${date(now)}
      FROM places WHERE place IS NULL
    ), moved AS (
      UPDATE pending_deliveries p SET lane = ${lane}, due_at = places.due_at, tries = 0, backlogged = true,
        updated_at = ${date(now)}
      FROM places WHERE p.ctid = places.place
      RETURNING p.delivery_id
    )
    SELECT ((SELECT count(*) FROM gone) + (SELECT count(*) FROM moved))::int AS resent`
  yield* changedLanes(sql)
  return done!.resent
})

/** Deliveries that a count of a resend looks at. */
const maxCounted = 10_000

const tooManyResends = ({ webhook_endpoint_id }: ResendFilter) => {
  const of = webhook_endpoint_id === undefined ? "over all endpoints" : "of this endpoint"
  return new Conflict({
    error: `${maxFilterSweeps} resends ${of} are still running; try again when one has ended, or cancel one.`,
  })
}

interface ResendOfOrg {
  readonly orgId: string
  readonly filter: ResendFilter
}

/**
 * A SELECT of the next unsuccessful deliveries of an org, or of an endpoint, after `doneTo`, in the order of their ids:
 * by an index, and those that a sweep still has to cancel; `wanted` says whether the resend sends them.
 */
const resendable = (sql: Sql, { filter, orgId }: ResendOfOrg, doneTo: string, limit: number) => {
  const all = sql.literal("true")
  const { event_type, failure, since, state, status, until, webhook_endpoint_id: endpoint } = filter
  const [of, id] = endpoint === undefined ? (["org", orgId] as const) : (["endpoint", endpoint] as const)
  const before = since === undefined ? "" : idBefore(since)
  const after = doneTo > before ? doneTo : before
  const end = (id: "id" | "delivery_id") => (until === undefined ? all : sql`${sql.literal(id)} < ${idAfter(until)}`)
  // Those of inactive endpoints are not sent.
  const sweepsOf = sql`org_id = ${orgId} AND ${endpoint === undefined ? all : sql`endpoint_id = ${endpoint}`}
    AND (SELECT active FROM webhook_endpoints WHERE id = endpoint_id)`
  const canceled = inEndedLanes(sql, sweepsOf, after, end("delivery_id"), limit)
  const wanted = [
    event_type === undefined ? all : sql`e.type = ${event_type}`,
    status === undefined ? all : sql`d.attempt_status = ${status}`,
    failure === undefined ? all : sql`d.attempt_failure = ${failure}`,
    since === undefined ? all : sql`d.created_at >= ${date(since)}`,
    until === undefined ? all : sql`d.created_at < ${date(until)}`,
  ]
  return sql`
    SELECT d.id, looked.lane, d.endpoint_id AS "endpointId", coalesce(w.active AND ${sql.and(wanted)}, false) AS wanted
    FROM (
      SELECT d.id, NULL::text AS lane, d.created_at FROM ${unsuccessfulStates(sql)} CROSS JOIN LATERAL (
        SELECT id, created_at FROM ${unsuccessfulDeliveries(sql)}
        WHERE ${isUnsuccessful(sql, of, sql.literal("s.state"), id)} AND org_id = ${orgId}
          AND id > ${after} AND ${end("id")}
        ORDER BY id LIMIT ${limit}::int
      ) AS d WHERE ${state === undefined ? all : sql`s.state = ${state}`}
      ${state === undefined || state === "canceled" ? sql`UNION ALL ${canceled}` : sql.literal("")}
      ORDER BY id LIMIT ${limit}::int
    ) AS looked ${deliveryJoins(sql, orgId)}
    LEFT JOIN webhook_endpoints w ON w.id = d.endpoint_id
    ORDER BY looked.id`
}

/** Endpoints whose deliveries one batch of a resend sends. */
const maxEndpointsPerBatch = 50

/**
 * Makes the next deliveries of a resend due now. Locks their endpoints first and then the deliveries, both in the order
 * of their ids, like every statement that queues deliveries.
 *
 * @returns how many deliveries it read, how many are due now, and where to continue; `null` at the end
 */
export const resendBatch = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  filter: string,
  doneTo: string,
  limit: number,
  now: DateTime.Utc,
) {
  const resend = {
    orgId,
    filter: yield* Schema.decodeEffect(Schema.fromJsonString(ResendFilter))(filter).pipe(Effect.orDie),
  }
  yield* lockResends(sql, orgId, "shared")
  const looked = yield* sql<Looked>`${resendable(sql, resend, doneTo, limit)}`
  const byEndpoint = new Map<string, Array<Looked>>()
  let rows = 0
  for (const row of looked) {
    if (row.wanted) {
      const others = byEndpoint.get(row.endpointId)
      if (others === undefined && byEndpoint.size === maxEndpointsPerBatch) break
      if (others === undefined) byEndpoint.set(row.endpointId, [row])
      else others.push(row)
    }
    rows++
  }
  const receivers = yield* sql<Receiver>`
    SELECT id, org_id AS "orgId", lane, ordered FROM webhook_endpoints
    WHERE id = ANY(${texts([...byEndpoint.keys()])}) AND org_id = ${orgId} AND active ORDER BY id FOR SHARE`
  const ids = [...byEndpoint.values()].flatMap((rows) => rows.map(({ id }) => id)).toSorted()
  yield* sql`SELECT FROM deliveries WHERE id = ANY(${texts(ids)}) AND org_id = ${orgId} ORDER BY id FOR UPDATE`
  let done = 0
  for (const receiver of receivers) {
    const wanted = byEndpoint.get(receiver.id)!
    const resent = yield* requeue(sql, receiver, wanted, now)
    done += resent
    // Since it was read, a delivery of an ended lane may have been canceled.
    if (resent < wanted.length) {
      const canceled = wanted.map(({ id }) => ({ id, lane: null }))
      done += yield* requeue(sql, receiver, canceled, now)
    }
  }
  const isEnd = rows === looked.length && looked.length < limit
  return { rows, done, doneTo: isEnd ? null : looked[rows - 1]!.id }
})

/** Failed deliveries, and as many that are retried, whose causes are grouped. */
const maxGrouped = 5_000
const maxCauses = 20

/** Groups the newest deliveries whose last attempt failed by what it ended with. */
const listCauses = (sql: Sql, orgId: string, filter: DeliveryFilter) => {
  const ids = (state: "failed" | "pending") =>
    candidates(sql, orgId, { ...filter, state }, { limit: maxGrouped }, maxGrouped)
  const [failed, retried] = [ids("failed"), ids("pending")]
  const all = sql.literal("true")
  const top = sql.literal(String(maxTopEndpoints))
  return sql`
    WITH failing AS (
      SELECT d.attempt_status AS status, d.attempt_failure AS failure, d.endpoint_id, count(*)::int AS deliveries,
        max(d.id) AS delivery_id
      FROM (
        (${failed.ended!} LIMIT ${maxGrouped})
        UNION (${retried.pending!} LIMIT ${maxGrouped})
      ) AS looked ${deliveryJoins(sql, orgId)}
      WHERE d.attempt_started_at IS NOT NULL
        AND (d.attempt_failure IS NOT NULL OR d.attempt_status NOT BETWEEN 200 AND 299)
        AND ${filter.since === undefined ? all : sql`d.created_at >= ${date(filter.since)}`}
        AND ${filter.until === undefined ? all : sql`d.created_at < ${date(filter.until)}`}
      GROUP BY 1, 2, 3
    ), causes AS (
      SELECT status, failure, sum(deliveries)::int AS deliveries, count(endpoint_id)::int AS endpoints,
        max(delivery_id) AS delivery_id,
        array_agg(endpoint_id ORDER BY deliveries DESC, endpoint_id) FILTER (WHERE endpoint_id IS NOT NULL) AS ids,
        array_agg(deliveries ORDER BY deliveries DESC, endpoint_id) FILTER (WHERE endpoint_id IS NOT NULL) AS counts
      FROM failing GROUP BY 1, 2 ORDER BY 3 DESC LIMIT ${maxCauses}
    )
    SELECT status, failure, deliveries, endpoints, delivery_id, coalesce(ids[1:${top}], '{}') AS top_ids,
      coalesce(counts[1:${top}], '{}') AS top_counts, d.attempt_started_at AS at,
      left(coalesce(d.attempt_error, d.attempt_body), 200) AS text
    FROM causes
    CROSS JOIN LATERAL ${placesOf(sql, orgId, sql.literal("causes.delivery_id"))} AS looked ${deliveryJoins(sql, orgId)}
    ORDER BY deliveries DESC`.pipe(
    decodeCauses,
    Effect.flatMap((rows) =>
      Effect.map(namesOf(sql, orgId, [...new Set(rows.flatMap((row) => row.top_ids))]), (names) =>
        rows.map(({ at, delivery_id, text, top_counts, top_ids, ...cause }) => ({
          ...cause,
          top_endpoints: top_ids.map((id, n) => ({
            webhook_endpoint_id: id,
            name: names.get(id) ?? null,
            deliveries: top_counts[n]!,
          })),
          latest: { delivery_id, at, text },
        })),
      ),
    ),
  )
}

/** What endpoints are called, by their ids. */
const namesOf = (sql: Sql, orgId: string, ids: ReadonlyArray<string>) =>
  Effect.map(
    sql<{ id: string; description: string | null; url: string }>`
      SELECT id, description, url FROM webhook_endpoints WHERE org_id = ${orgId} AND id = ANY(${texts(ids)})`,
    (rows) => new Map(rows.map((row) => [row.id, endpointName(row)])),
  )
