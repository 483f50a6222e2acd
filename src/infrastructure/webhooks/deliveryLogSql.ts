import { DateTime, Duration, Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import { Conflict } from "../../domain/Errors.ts"
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
  type Recovery,
  endpointName,
  maxTopEndpoints,
  Resend,
  ResendFilter,
  resendNotFound,
} from "../../domain/webhooks/DeliveryLog.ts"
import { endpointNotFound } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { afterCallbacks, afterOrg } from "../../domain/webhooks/lane.ts"
import { afterCursor, date, dateOrNull, decodeRows, Time, idAt, texts } from "../database/fragments.ts"
import { oneAtATime } from "../database/boundedTransactions.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { changedLanes, queuePositions } from "../queue/queuePositions.ts"
import { endFilterSweep, filterSweeps, startFilterSweep } from "../filterSweeps.ts"
import { isOfEvent, maxDeliveriesPerEvent } from "../queue/insertEvents.ts"
import { sentBody } from "../../domain/webhooks/Event.ts"
import { PayloadKind } from "../../domain/webhooks/WebhookEndpoint.ts"
import {
  endOfLane,
  isCovered,
  isUnsuccessful,
  lastOfLane,
  lockRecoveries,
  ofEndpoints,
  queueColumns,
  stateNow,
  unsuccessfulDeliveries,
  unsuccessfulStates,
} from "../queue/lanes.ts"

/** The log of deliveries in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom

    return DeliveryLogRepository.of({
      list: (orgId, filter, page) => orUnavailable(listDeliveries(sql, orgId, filter, page)),

      find: (orgId, deliveryId) =>
        // One statement, so that the answer has all of an attempt that is being recorded, or nothing of it.
        sql`
          SELECT ${deliveryColumns(sql)}, e.body AS payload, (
            SELECT payload FROM webhook_endpoints WHERE id = d.endpoint_id AND org_id = d.org_id
          ) AS payload_kind, (
            SELECT coalesce(json_agg(made ORDER BY number), '[]')::text FROM (
              SELECT number, started_at, duration_ms, status, failure, error, body FROM delivery_attempts
              WHERE delivery_id = d.id AND org_id = d.org_id
              UNION ALL
              SELECT d.attempts, d.attempt_started_at, d.attempt_duration_ms, d.attempt_status, d.attempt_failure,
                d.attempt_error, d.attempt_body
              WHERE d.attempt_started_at IS NOT NULL
              ORDER BY number DESC LIMIT ${maxShownAttempts}
            ) AS made
          ) AS attempt_log
          FROM deliveries d ${deliveryJoins(sql)} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`.pipe(
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

      recover: (recovery, now) =>
        oneAtATime(sql, `recoveries:${recovery.endpointId}`, recoverDeliveries(sql, random, recovery, now)).pipe(
          orUnavailable,
        ),

      countResend: (orgId, filter) =>
        sql<{ count: number; isAll: boolean }>`
          SELECT (count(*) FILTER (WHERE wanted))::int AS count, count(*) < ${maxCountedRecoveries} AS "isAll"
          FROM (${resendable(sql, { orgId, filter }, "", maxCountedRecoveries)}) AS d`.pipe(
          Effect.map(([row]) => row!),
          orUnavailable,
        ),

      resend: (orgId, resend, entry) =>
        startFilterSweep(sql, orgId, { ...resend, kind: "resend", filter: filterJson(resend.filter) }, entry).pipe(
          Effect.flatMap(({ length }) => (length > 0 ? Effect.void : tooManyResends())),
          orUnavailable,
        ),

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

const ResendRow = Schema.Struct({
  ...Resend.fields,
  filter: Schema.fromJsonString(ResendFilter),
  created_at: Time,
})
const decodeResends = decodeRows(ResendRow)
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
const deliveryColumns = (sql: SqlClient.SqlClient) => sql`
  d.id AS delivery_id, d.event_id, d.job_id, d.endpoint_id AS webhook_endpoint_id, e.type AS event, ${stateNow(sql)} AS state,
  d.attempts,
  CASE WHEN ${stateNow(sql)} = 'pending' THEN coalesce(p.lease_until, p.due_at, d.updated_at) END AS next_attempt_at,
  d.attempt_status AS last_status, d.attempt_failure AS last_failure, d.attempt_duration_ms AS last_duration_ms,
  d.created_at, d.updated_at`

/** Joins a delivery `d` with its event `e` and its row in the queue `p`, if it has one. */
const deliveryJoins = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    CROSS JOIN LATERAL (SELECT type, body FROM events WHERE id = d.event_id LIMIT 1) AS e
    LEFT JOIN pending_deliveries p ON p.lane = d.lane AND p.delivery_id = d.id`)

type Sql = SqlClient.SqlClient

/**
 * Deliveries that one page reads at most. Matches may be rare among millions of deliveries, or about to be swept: the
 * page is then short, and its cursor continues after the last delivery that was read.
 */
const maxReadPerPage = 10_000
/** Lanes or sweeps of an org that one page reads at most. */
const maxSources = 1_000

/** The newest pending deliveries of each of some lanes. `lanes` is a SELECT of a column `lane`. */
const pendingIn = (sql: Sql, lanes: Statement.Fragment, page: Page) => sql`
  (SELECT p.id FROM (${lanes}) AS l CROSS JOIN LATERAL (
    SELECT id FROM (SELECT lane, delivery_id AS id FROM pending_deliveries) AS p
    WHERE p.lane = l.lane AND ${afterCursor(sql, page, "newest")}
    ORDER BY id DESC LIMIT ${page.limit + 1}
  ) AS p)`

/** The callback lanes of an org. Reads one index entry for each. */
const callbackLanes = (sql: Sql, orgId: string) => sql`
  WITH RECURSIVE lanes AS (
    SELECT (${orgId + afterOrg}::text) COLLATE "C" AS lane
    UNION ALL
    SELECT next.lane FROM lanes before CROSS JOIN LATERAL (
      SELECT lane FROM pending_deliveries p WHERE p.lane > before.lane AND p.lane < ${orgId + afterCallbacks}
      ORDER BY p.lane LIMIT 1
    ) AS next
  ) SELECT lane FROM lanes LIMIT ${sql.literal(`${maxSources}`)}`

/**
 * The ids that a list filters, newest first: the start of a SELECT without its LIMIT. Reads an index on the wanted
 * state where there is one.
 */
const candidates = (
  sql: Sql,
  orgId: string,
  { event_id, job_id, since, state, until, webhook_endpoint_id: endpoint }: DeliveryFilter,
  page: Page,
) => {
  const all = sql.literal("true")
  const limit = sql.literal(`LIMIT ${maxSources}`)
  // Bounds of the ids, so that a range of time reads no index entries of other times.
  const [from, to] = [
    since === undefined ? all : sql`id > ${idBefore(since)}`,
    until === undefined ? all : sql`id < ${idAfter(until)}`,
  ]
  const after = sql`${afterCursor(sql, page, "newest")} AND ${from} AND ${to}`
  const ofEndpoint = endpoint === undefined ? all : sql`endpoint_id = ${endpoint}`
  if (job_id !== undefined || event_id !== undefined) {
    const isWanted = job_id === undefined ? sql`id = ${event_id!}` : sql`job_id = ${job_id}`
    // The limit is never reached. Without it, a plan could read all deliveries of the org to have them in order.
    return sql`
      SELECT id FROM (
        SELECT d.id, d.endpoint_id FROM events e CROSS JOIN LATERAL (
          SELECT id, endpoint_id FROM deliveries WHERE ${isOfEvent(sql, "id", "e.id")} AND org_id = ${orgId}
          LIMIT ${maxDeliveriesPerEvent}
        ) AS d WHERE e.${isWanted} AND e.org_id = ${orgId}
      ) AS of_event WHERE ${ofEndpoint} AND ${after} ORDER BY id DESC`
  }
  if (state === undefined || state === "delivered") {
    const deliveries = endpoint === undefined ? sql`deliveries` : ofEndpoints(sql)
    return sql`SELECT id FROM ${deliveries} WHERE org_id = ${orgId} AND ${ofEndpoint} AND ${after} ORDER BY id DESC`
  }

  // Deliveries in ended lanes: canceled or recovered, but not swept yet.
  const endedLanes = sql`SELECT lane FROM sweeps WHERE org_id = ${orgId} AND kind = 'cancel' AND ${ofEndpoint} ${limit}`
  const inEndedLanes = pendingIn(sql, endedLanes, page)
  if (state === "pending") {
    const liveLanes = sql`
      SELECT lane FROM webhook_endpoints WHERE org_id = ${orgId}
      AND ${endpoint === undefined ? all : sql`id = ${endpoint}`}`
    const inCallbackLanes =
      endpoint === undefined ? sql`UNION ALL ${pendingIn(sql, callbackLanes(sql, orgId), page)}` : sql.literal("")
    const recovering = sql`
      (SELECT d.id FROM (
        SELECT * FROM sweeps WHERE org_id = ${orgId} AND kind = 'recover' AND ${ofEndpoint} ORDER BY id ${limit}
      ) AS r CROSS JOIN LATERAL (
        SELECT d.id FROM ${unsuccessfulStates(sql)} CROSS JOIN LATERAL (
          SELECT id FROM ${unsuccessfulDeliveries(sql)}
          WHERE ${isUnsuccessful(sql, "endpoint", sql.literal("s.state"), sql.literal("r.endpoint_id"))}
            AND ${isCovered(sql, "", "r")} AND ${after}
          ORDER BY id DESC LIMIT ${page.limit + 1}
        ) AS d ORDER BY d.id DESC LIMIT ${page.limit + 1}
      ) AS d)`
    return sql`
      SELECT id FROM (
        ${pendingIn(sql, liveLanes, page)} ${inCallbackLanes} UNION ${inEndedLanes} UNION ${recovering}
      ) AS candidates ORDER BY id DESC`
  }
  const ofState =
    endpoint === undefined ? isUnsuccessful(sql, "org", state, orgId) : isUnsuccessful(sql, "endpoint", state, endpoint)
  const unsuccessful = sql`
    SELECT id FROM ${unsuccessfulDeliveries(sql)} WHERE ${ofState} AND org_id = ${orgId} AND ${after} ORDER BY id DESC`
  if (state !== "canceled") return unsuccessful
  return sql`
    SELECT id FROM ((${unsuccessful} LIMIT ${maxReadPerPage}) UNION ${inEndedLanes}) AS candidates ORDER BY id DESC`
}

/** Lists an org's deliveries, newest first. */
const listDeliveries = Effect.fnUntraced(function* (sql: Sql, orgId: string, filter: DeliveryFilter, page: Page) {
  const state = filter.state ?? null
  const all = sql.literal("true")
  // Also of a list by job or endpoint, where `source` knows only one condition.
  const matches = [
    filter.event_id === undefined ? all : sql`d.event_id = ${filter.event_id}`,
    filter.event_type === undefined ? all : sql`e.type = ${filter.event_type}`,
    filter.since === undefined ? all : sql`d.created_at >= ${date(filter.since)}`,
    filter.until === undefined ? all : sql`d.created_at < ${date(filter.until)}`,
    filter.status === undefined ? all : sql`d.attempt_status = ${filter.status}`,
    filter.failure === undefined ? all : sql`d.attempt_failure = ${filter.failure}`,
  ]
  const source = candidates(sql, orgId, filter, page)
  const deliveries = yield* sql`
    SELECT ${deliveryColumns(sql)} FROM (${source} LIMIT ${maxReadPerPage}) AS looked
    CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = looked.id AND org_id = ${orgId} LIMIT 1) AS d
    ${deliveryJoins(sql)}
    WHERE (${state}::text IS NULL OR ${stateNow(sql)} = ${state}) AND ${sql.and(matches)}
    ORDER BY looked.id DESC LIMIT ${page.limit + 1}`.pipe(decodeDeliveries)
  if (deliveries.length > page.limit) return { deliveries, scannedTo: null }
  const [last] = yield* sql<{ id: string }>`
    SELECT id FROM (${source} LIMIT ${maxReadPerPage}) AS looked OFFSET ${maxReadPerPage - 1}`
  return { deliveries, scannedTo: last?.id ?? null }
})

/** How much the time of an id may differ from its delivery's `created_at`. */
const maxIdAge = Duration.hours(1)

/** A lower bound for the ids of deliveries that were created at `since` or later. */
const idBefore = (since: DateTime.Utc) => idAt(DateTime.toEpochMillis(since) - Duration.toMillis(maxIdAge))

/** An upper bound for the ids of deliveries that were created before `until`. */
const idAfter = (until: DateTime.Utc) => idAt(DateTime.toEpochMillis(until) + Duration.toMillis(maxIdAge))

/** Fails when the delivery cannot be sent again; returns the id of its endpoint, `null` for a callback. */
const findRetryable = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  now: DateTime.Utc,
) {
  const at = date(now)
  // A canceled delivery is not in the queue: its own row keeps the claim of the attempt in flight.
  const [delivery] = yield* sql<{ endpoint: string | null; claimed: boolean }>`
    SELECT d.endpoint_id AS endpoint,
      (coalesce(p.claim_id IS NOT NULL AND p.lease_until > ${at}, false) OR coalesce(d.lease_until > ${at}, false)) AS claimed
    FROM deliveries d ${deliveryJoins(sql)} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`
  if (delivery === undefined) return yield* deliveryNotFound()
  if (delivery.claimed) return yield* attemptInFlight()
  return delivery.endpoint
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

/**
 * Queues a delivery whose row is locked, or makes its row in the queue due; returns no row while an attempt is in
 * flight. Whoever queues a delivery locks its row, so only a claim can change the queue meanwhile.
 */
const queueAgain = (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  { at, lane, ordered }: { readonly at: Date; readonly lane: string | null; readonly ordered: boolean },
) => {
  // In a lane that sends in order it joins at the end.
  const end = endOfLane(sql, lastOfLane(sql, { orgId: "d.org_id", lane: "d.lane", at: sql`${at}::timestamptz` }), "1")
  const isQueued = sql`p.lane = coalesce(${lane}, d.lane) AND p.delivery_id = d.id`
  return sql`
    WITH rows AS MATERIALIZED (
      SELECT coalesce(${lane}, d.lane) AS lane, d.id, d.event_id, d.attempts,
        ${ordered ? end : sql`${at}::timestamptz`} AS due_at, d.org_id,
        octet_length((SELECT body FROM events WHERE id = d.event_id)) AS bytes,
        EXISTS (SELECT FROM pending_deliveries p WHERE ${isQueued}) AS queued_already
      FROM deliveries d
      WHERE d.id = ${deliveryId} AND d.org_id = ${orgId} AND (d.claim_id IS NULL OR d.lease_until <= ${at})
    ), renewed AS (
      UPDATE pending_deliveries p SET due_at = (SELECT due_at FROM rows), tries = 0, backlogged = ${ordered}::boolean,
        claim_id = NULL, lease_until = NULL
      WHERE p.lane = (SELECT lane FROM rows) AND p.delivery_id = ${deliveryId}
        AND (p.claim_id IS NULL OR p.lease_until IS NULL OR p.lease_until <= ${at})
      RETURNING p.delivery_id
    ), queued AS (
      INSERT INTO pending_deliveries (${sql.literal(queueColumns)})
      SELECT lane, id, event_id, attempts, 0, due_at, ${ordered}::boolean, org_id, bytes FROM rows
      WHERE NOT queued_already RETURNING delivery_id
    )
    SELECT delivery_id FROM renewed UNION ALL SELECT delivery_id FROM queued`
}

/** Makes a delivery due now, with the retry schedule from its start. Runs in a transaction. */
const retryDelivery = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  deliveryId: string,
  now: DateTime.Utc,
) {
  const at = date(now)
  const endpointId = yield* findRetryable(sql, orgId, deliveryId, now)
  // The endpoint may have another lane than when the delivery was queued; a callback keeps its lane.
  const endpoint = endpointId === null ? null : yield* lockEndpoint(sql, orgId, endpointId)
  const lane = endpoint?.lane ?? null
  const ordered = endpoint?.ordered === true
  const locked = yield* sql`
    SELECT id FROM deliveries WHERE id = ${deliveryId} AND org_id = ${orgId} FOR NO KEY UPDATE`
  // Retention has removed the delivery since it was read.
  if (locked.length === 0) return yield* deliveryNotFound()
  // A delivery in an ended lane is canceled, but the sweep has not deleted its row from the queue.
  yield* sql`
    DELETE FROM pending_deliveries p USING deliveries d
    WHERE d.id = ${deliveryId} AND p.lane = d.lane AND p.delivery_id = d.id AND p.lane <> ${lane}`
  const queued = yield* queueAgain(sql, orgId, deliveryId, { lane, ordered, at })
  if (queued.length === 0) return yield* attemptInFlight()
  yield* sql.afterCommit(Effect.sync(() => queuePositions(sql).queued(now.epochMilliseconds)))
  yield* changedLanes(sql)
  yield* sql`
    UPDATE deliveries SET state = 'pending', lane = coalesce(${lane}, lane), claim_id = NULL, lease_until = NULL,
      updated_at = ${at}
    WHERE id = ${deliveryId} AND org_id = ${orgId}`
})

/** Sweeps of an endpoint with which a recovery still starts another. */
const maxSweepsPerEndpoint = 10
/** Deliveries that a recovery makes due itself; a sweep does the others. */
const inlineRecoveries = 500

/**
 * A SELECT of the next deliveries that may be of a recovery, after `doneTo`, in the order of their ids, and whether the
 * recovery covers them: unsuccessful ones, the first of each state by an index, and those in ended lanes, which a sweep
 * still has to cancel. It looks at `limit` of them whatever their times.
 */
const firstCovered = (
  sql: SqlClient.SqlClient,
  { endpointId, orgId, since, until }: Recovery,
  doneTo: string,
  limit: number,
) => {
  const before = idBefore(since)
  const after = doneTo > before ? doneTo : before
  const end = (id: "id" | "delivery_id") =>
    until === null ? sql.literal("true") : sql`${sql.literal(id)} < ${idAfter(until)}`
  return sql`
    SELECT d.*, coalesce(${isCovered(sql, "d.", { since, until, doneTo })}, false) AS wanted FROM (
      SELECT d.id, d.created_at FROM ${unsuccessfulStates(sql)} CROSS JOIN LATERAL (
        SELECT id, created_at FROM ${unsuccessfulDeliveries(sql)}
        WHERE ${isUnsuccessful(sql, "endpoint", sql.literal("s.state"), endpointId)} AND org_id = ${orgId}
          AND id > ${after} AND ${end("id")}
        ORDER BY id LIMIT ${limit}::int
      ) AS d
      UNION ALL
      SELECT p.id, (SELECT created_at FROM deliveries WHERE id = p.id)
      FROM (${inEndedLanes(sql, sql`endpoint_id = ${endpointId}`, after, end("delivery_id"), limit)}) AS p
    ) AS d ORDER BY d.id LIMIT ${limit}::int`
}

/**
 * A SELECT of the next deliveries after an id that sweeps still have to cancel, in the order of their ids in each lane.
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
  SELECT p.id FROM (SELECT lane, done_to FROM sweeps WHERE ${of} AND kind = 'cancel') AS s CROSS JOIN LATERAL (
    -- After what the sweep has done, whose dead entries a plan would read again; in the order of the primary key.
    SELECT delivery_id AS id FROM pending_deliveries
    WHERE lane = s.lane AND delivery_id > greatest(s.done_to, ${after}) AND ${end}
    ORDER BY delivery_id LIMIT ${limit}::int
  ) AS p`

/** Makes the next deliveries of a recovery after `doneTo` due now. */
export const recoverBatch = (
  sql: SqlClient.SqlClient,
  recovery: Recovery,
  doneTo: string,
  limit: number,
  now: DateTime.Utc,
  locked: "wait" | "skip" = "wait",
) => requeue(sql, recovery, firstCovered(sql, recovery, doneTo, limit), now, locked)

/**
 * Makes unsuccessful deliveries of an endpoint due now, if it is active, and those in its ended lanes. They are
 * backlogged at once, so that a large backlog does not delay other lanes. An attempt in flight continues, and its
 * result is recorded.
 *
 * @param first a SELECT of their ids, and which of them are wanted
 * @returns how many deliveries it read, the last of them, how many of them are wanted, and how many are due now
 */
const requeue = (
  sql: SqlClient.SqlClient,
  recovery: Pick<Recovery, "endpointId" | "orgId">,
  first: Statement.Fragment,
  now: DateTime.Utc,
  locked: "wait" | "skip" = "wait",
) => {
  const end = endOfLane(sql, sql.literal("(SELECT last FROM endpoint)"), "h.number")
  return sql<{ rows: number; last: string | null; wanted: number; recovered: number }>`
    WITH endpoint AS (
      SELECT id, ordered, lane,
        ${lastOfLane(sql, { orgId: "w.org_id", lane: "w.lane", at: sql`${date(now)}::timestamptz` })} AS last
      FROM webhook_endpoints w
      WHERE id = ${recovery.endpointId} AND org_id = ${recovery.orgId} AND active FOR SHARE
    ), head AS (
      SELECT first.id, first.wanted FROM (${first}) AS first WHERE EXISTS (SELECT FROM endpoint)
    ), held AS (
      SELECT d.*, endpoint.lane, endpoint.ordered,
        octet_length((SELECT body FROM events WHERE id = d.event_id)) AS bytes
      FROM (SELECT id FROM head WHERE wanted ORDER BY id) AS head
      CROSS JOIN endpoint
      CROSS JOIN LATERAL (
        SELECT id, org_id, event_id, attempts, lease_until, claim_id FROM deliveries
        WHERE id = head.id AND (unsuccessful IS NOT NULL OR state = 'pending' AND lane <> endpoint.lane)
        FOR NO KEY UPDATE ${sql.literal(locked === "skip" ? "SKIP LOCKED" : "")}
      ) AS d
    ), gone AS (
      DELETE FROM pending_deliveries
      WHERE lane = ANY(ARRAY(SELECT lane FROM sweeps WHERE endpoint_id = ${recovery.endpointId} AND kind = 'cancel'))
        AND delivery_id = ANY(ARRAY(SELECT id FROM held))
      RETURNING delivery_id AS id, claim_id, lease_until
    ), claimed AS MATERIALIZED (
      SELECT id, claim_id, lease_until FROM gone WHERE claim_id IS NOT NULL
      UNION ALL SELECT id, claim_id, lease_until FROM held WHERE claim_id IS NOT NULL
    ), places AS MATERIALIZED (
      SELECT h.lane, h.id, event_id, attempts, CASE WHEN ordered THEN ${end} ELSE ${date(now)} END AS due_at,
        c.claim_id, c.lease_until, bytes
      FROM (SELECT *, row_number() OVER (ORDER BY id) AS number FROM held) AS h LEFT JOIN claimed c ON c.id = h.id
    ), queued AS (
      INSERT INTO pending_deliveries (${sql.literal(queueColumns)}, claim_id, lease_until)
      SELECT lane, id, event_id, attempts, 0, due_at, true, ${recovery.orgId}, bytes, claim_id, lease_until FROM places
    ), changed AS (
      UPDATE deliveries SET state = 'pending', lane = (SELECT lane FROM endpoint), claim_id = NULL, lease_until = NULL,
        updated_at = ${date(now)}
      WHERE id = ANY(ARRAY(SELECT id FROM held))
    )
    SELECT count(*)::int AS rows, max(id) AS last, (count(*) FILTER (WHERE wanted))::int AS wanted,
      (SELECT count(*)::int FROM held) AS recovered FROM head`.pipe(
    Effect.map(([row]) => row!),
    Effect.tap(changedLanes(sql)),
  )
}

/** Deliveries that `countRecovery` looks at. */
const maxCountedRecoveries = 10_000

/** Counts the deliveries of a recovery that no other one covers, among the first `maxCountedRecoveries`. */
export const countRecovery = (sql: SqlClient.SqlClient, recovery: Recovery) =>
  sql<{ count: number; isAll: boolean }>`
    SELECT (count(*) FILTER (WHERE wanted AND NOT EXISTS (
        SELECT FROM sweeps s
        WHERE s.endpoint_id = ${recovery.endpointId} AND s.kind = 'recover' AND ${isCovered(sql, "d.", "s")}
      )))::int AS count, count(*) < ${maxCountedRecoveries} AS "isAll"
    FROM (${firstCovered(sql, recovery, "", maxCountedRecoveries)}) AS d`.pipe(Effect.map(([row]) => row!))

/**
 * Starts a recovery, in a transaction: makes the first deliveries due now, and leaves the others to a sweep.
 *
 * @returns how many deliveries it recovers, whether that is all of them, and whether a sweep follows
 */
const recoverDeliveries = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  recovery: Recovery,
  now: DateTime.Utc,
) {
  const { orgId, endpointId, since, until } = recovery
  yield* lockRecoveries(sql, orgId, "shared")
  const [endpoint] = yield* sql<{ active: boolean }>`
    SELECT active FROM webhook_endpoints WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
  if (endpoint === undefined) return yield* endpointNotFound()
  if (!endpoint.active) return yield* endpointInactive()
  // A statement after the lock, so that it sees the sweep of a deactivation that it waited for.
  const [open] = yield* sql<{ sweeps: number; recoveries: number }>`
    SELECT count(*)::int AS sweeps, (count(*) FILTER (WHERE kind = 'recover'))::int AS recoveries
    FROM sweeps WHERE endpoint_id = ${endpointId}`
  const { recoveries, sweeps } = open!
  if (sweeps >= maxSweepsPerEndpoint) {
    return yield* new Conflict({
      error: "Other recoveries of this endpoint are still running; try again when they have ended.",
    })
  }
  // What an earlier recovery covers is pending already, so this one leaves all its deliveries to its own sweep. It
  // waits for no lock of a sweep that runs: its own sweep does what is locked now.
  const first =
    recoveries === 0
      ? yield* recoverBatch(sql, recovery, "", inlineRecoveries, now, "skip")
      : { rows: inlineRecoveries, last: "", wanted: 0, recovered: 0 }
  const isAllOfThem = first.recovered === first.wanted
  if (isAllOfThem && first.rows < inlineRecoveries) {
    return { recovered: first.recovered, isAll: true, hasMore: false }
  }
  const others = yield* countRecovery(sql, recovery)
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, endpoint_id, since, until, done_to, created_at)
    VALUES (${yield* random.ulid}, ${orgId}, 'recover', ${endpointId}, ${date(since)}, ${dateOrNull(until)},
      ${isAllOfThem ? first.last : ""}, ${date(now)})`
  return { recovered: first.recovered + others.count, isAll: others.isAll, hasMore: true }
})

const tooManyResends = () =>
  new Conflict({ error: "Ten resends of this org are still running; try again when one has ended, or cancel one." })

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
    SELECT first.id, d.endpoint_id AS "endpointId", coalesce(w.active AND ${sql.and(wanted)}, false) AS wanted
    FROM (
      SELECT d.id FROM ${unsuccessfulStates(sql)} CROSS JOIN LATERAL (
        SELECT id FROM ${unsuccessfulDeliveries(sql)}
        WHERE ${isUnsuccessful(sql, of, sql.literal("s.state"), id)} AND org_id = ${orgId}
          AND id > ${after} AND ${end("id")}
        ORDER BY id LIMIT ${limit}::int
      ) AS d WHERE ${state === undefined ? all : sql`s.state = ${state}`}
      ${state === undefined || state === "canceled" ? sql`UNION ALL ${canceled}` : sql.literal("")}
      ORDER BY id LIMIT ${limit}::int
    ) AS first
    CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = first.id LIMIT 1) AS d
    LEFT JOIN LATERAL (SELECT type FROM events WHERE id = d.event_id LIMIT 1) AS e ON true
    LEFT JOIN webhook_endpoints w ON w.id = d.endpoint_id
    ORDER BY first.id`
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
  const looked = yield* sql<{ id: string; endpointId: string; wanted: boolean }>`
    ${resendable(sql, resend, doneTo, limit)}`
  const byEndpoint = new Map<string, Array<string>>()
  let rows = 0
  for (const { endpointId, id, wanted } of looked) {
    if (wanted) {
      const ids = byEndpoint.get(endpointId)
      if (ids === undefined && byEndpoint.size === maxEndpointsPerBatch) break
      if (ids === undefined) byEndpoint.set(endpointId, [id])
      else ids.push(id)
    }
    rows++
  }
  const endpoints = [...byEndpoint.keys()]
  yield* sql`
    SELECT FROM webhook_endpoints WHERE id = ANY(${texts(endpoints)}) AND org_id = ${orgId} ORDER BY id FOR SHARE`
  yield* sql`
    SELECT FROM deliveries WHERE id = ANY(${texts([...byEndpoint.values()].flat().toSorted())}) AND org_id = ${orgId}
    ORDER BY id FOR NO KEY UPDATE`
  let done = 0
  for (const [endpointId, ids] of byEndpoint) {
    const { recovered } = yield* requeue(
      sql,
      { orgId, endpointId },
      sql`SELECT unnest(${texts(ids)}) AS id, true AS wanted`,
      now,
    )
    done += recovered
  }
  const isEnd = rows === looked.length && looked.length < limit
  return { rows, done, doneTo: isEnd ? null : looked[rows - 1]!.id }
})

/** Failed deliveries, and as many that are retried, whose causes are grouped. */
const maxGrouped = 5_000
const maxCauses = 20

/** Groups the newest deliveries whose last attempt failed by what it ended with. */
const listCauses = (sql: Sql, orgId: string, filter: DeliveryFilter) => {
  const ids = (state: "failed" | "pending") => candidates(sql, orgId, { ...filter, state }, { limit: maxGrouped })
  const all = sql.literal("true")
  const top = sql.literal(String(maxTopEndpoints))
  return sql`
    WITH failing AS (
      SELECT d.attempt_status AS status, d.attempt_failure AS failure, d.endpoint_id, count(*)::int AS deliveries,
        max(d.id) AS delivery_id
      FROM (
        (SELECT id FROM (${ids("failed")}) AS failed LIMIT ${maxGrouped})
        UNION (SELECT id FROM (${ids("pending")}) AS retried LIMIT ${maxGrouped})
      ) AS looked
      CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = looked.id AND org_id = ${orgId} LIMIT 1) AS d
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
    FROM causes CROSS JOIN LATERAL (
      SELECT attempt_started_at, attempt_error, attempt_body FROM deliveries WHERE id = causes.delivery_id LIMIT 1
    ) AS d
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
