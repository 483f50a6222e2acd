import { DateTime, Duration, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient, Statement } from "effect/sql"
import { type AttemptRecord, receiverId } from "../../domain/webhooks/DeliveryQueue.ts"
import { isServiceEvent } from "../../domain/webhooks/EventPatterns.ts"
import {
  minFailuresToDeactivate,
  type RetryDecision,
  stateAfter,
  isAboutReceiver,
} from "../../domain/webhooks/RetryDecision.ts"
import { deactivated } from "../../domain/webhooks/Event.ts"
import { makeServiceEvent, type ServiceEvent } from "../../domain/ServiceEvent.ts"
import { auditWritten } from "../audit/audited.ts"
import { date, integers, texts, times } from "../database/fragments.ts"
import { emitAll, emitted, eventRows } from "../queue/emitEvents.ts"
import { callbackLaneOf, cancelLanes, type EndedLane, endedColumns, endLane } from "../queue/lanes.ts"

/** PostgreSQL stores no NUL; the answer of one receiver must not make the record of a whole batch fail. */
const storable = (text: string | null | undefined) => text?.replaceAll("\0", "\uFFFD") ?? null

const text = (records: ReadonlyArray<AttemptRecord>, f: (record: AttemptRecord) => string | null) =>
  texts(records.map(f))
const integer = (records: ReadonlyArray<AttemptRecord>, f: (record: AttemptRecord) => number | null) =>
  integers(records.map(f))
const time = (records: ReadonlyArray<AttemptRecord>, f: (record: AttemptRecord) => DateTime.Utc | null) =>
  times(records.map(f))

/** A delivery without another attempt, and the event about it. */
interface Failed {
  readonly deliveryId: string
  readonly orgId: string
  readonly event: ServiceEvent
}

/**
 * The events for the deliveries that have no attempt left. A delivery of one of the service's own events makes no
 * event.
 */
const failedOf = (
  random: SecureRandom.SecureRandom["Service"],
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) =>
  Effect.forEach(
    records.filter(({ delivery, decision }) => decision._tag === "Exhausted" && !isServiceEvent(delivery.event)),
    ({ delivery, outcome }) => {
      const { attempts, deliveryId, endpointId, eventId, orgId } = delivery
      const data = {
        delivery_id: deliveryId,
        event_id: eventId,
        event: delivery.event,
        webhook_endpoint_id: endpointId,
        attempts: attempts + 1,
        last_status: outcome.status,
        last_error: storable(outcome.failure?.message),
      }
      const about = { type: "delivery.failed", data, except: endpointId } as const
      return Effect.map(makeServiceEvent(random, about, now), (event): Failed => ({ deliveryId, orgId, event }))
    },
  )

/** The CTEs that emit the events of deliveries that have failed now, and were not canceled in flight. */
const emitFailed = (sql: SqlClient.SqlClient, failed: ReadonlyArray<Failed>) =>
  failed.length === 0
    ? sql.literal("")
    : sql`, service_event AS (
        SELECT t.* FROM unnest(${texts(failed.map(({ deliveryId }) => deliveryId))}, ${texts(failed.map(({ event }) => event.id))})
          AS f (delivery_id, event_id)
        JOIN ${eventRows(sql, failed)} ON t.id = f.event_id
        JOIN ended ON ended.id = f.delivery_id AND ended.state = 'failed'
      ), ${emitAll(sql)}`

/**
 * Writes attempts and what becomes of their deliveries, in one statement. Locks the deliveries in the order of their
 * ids, like every statement that changes deliveries.
 *
 * made: the attempts. held: those whose delivery this worker still claims. A delivery whose lane has ended was canceled
 * in flight, and stays so unless it succeeded. ended: the deliveries that leave the queue, with their last attempt.
 * retried: those that wait for a retry, whose attempt is written apart.
 *
 * @param lane SQL: where a delivery is looked for
 * @returns the ids of the deliveries that this worker does not claim
 */
const moveOn = (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
  commit: Statement.Fragment,
  failed: ReadonlyArray<Failed>,
  lane: Statement.Fragment,
) => sql<{ id: string }>`
  WITH transaction AS MATERIALIZED (
    SELECT ${commit}
  ), made AS (
    SELECT made.* FROM transaction CROSS JOIN unnest(
      ${text(records, (r) => r.delivery.deliveryId)}, ${text(records, (r) => r.delivery.orgId)},
        ${text(records, (r) => r.delivery.endpointId)},
      ${text(records, (r) => r.delivery.lane)}, ${text(records, (r) => r.delivery.claimId)},
        ${text(records, (r) => stateAfter[r.decision._tag])},
      ${time(records, (r) => r.nextAttemptAt)}, ${integer(records, (r) => r.delivery.attempts + 1)},
      ${time(records, (r) => r.startedAt)}, ${integer(records, (r) => Math.round(Duration.toMillis(r.outcome.duration)))},
      ${integer(records, (r) => r.outcome.status)}, ${text(records, (r) => r.outcome.failure?.kind ?? null)},
      ${text(records, (r) => storable(r.outcome.failure?.message))}, ${text(records, (r) => storable(r.outcome.body))},
      ${texts(records.map((r) => `${r.delivery.ordered}`))}::boolean[]
    ) AS made (id, org_id, endpoint_id, lane, claim_id, state, next_at, number, started_at, duration_ms, status,
      failure, error, body, ordered)
  ), held AS MATERIALIZED (
    SELECT made.id, made.org_id, made.endpoint_id, p.*, next_at, number, started_at, duration_ms, status, failure,
      error, body, ordered,
      CASE WHEN made.state = 'delivered' OR made.endpoint_id IS NULL
          OR EXISTS (SELECT FROM webhook_endpoints w WHERE w.id = made.endpoint_id AND w.lane = p.lane)
        THEN made.state ELSE 'canceled' END AS state
    FROM made
    CROSS JOIN LATERAL (
      SELECT ctid AS place, lane, event_id, created_at FROM pending_deliveries p
      WHERE p.org_id = made.org_id AND p.lane = ${lane} AND p.delivery_id = made.id AND p.claim_id = made.claim_id
      FOR UPDATE
    ) AS p
  ), ended AS (
    DELETE FROM pending_deliveries p USING held
    WHERE p.ctid = held.place AND held.state <> 'pending'
    RETURNING held.*
  ), logged AS (
    INSERT INTO deliveries (${sql.literal(endedColumns)})
    SELECT id, org_id, event_id, endpoint_id, ${callbackLaneOf(sql, "lane")}, state, number, created_at,
      ${date(now)}::timestamptz, started_at, duration_ms, status, failure, error, body
    FROM ended
  ), retried AS (
    -- In a lane that sends in order, a retry keeps its place, and holds the later ones back until the lease.
    UPDATE pending_deliveries p SET claim_id = NULL, lease_until = CASE WHEN held.ordered THEN held.next_at END,
      due_at = CASE WHEN held.ordered THEN p.due_at ELSE held.next_at END, backlogged = held.ordered,
      attempts = held.number, tries = p.tries + 1, updated_at = ${date(now)}
    FROM held
    WHERE p.ctid = held.place AND held.state = 'pending'
    RETURNING held.*
  ), written AS (
    INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status, failure, error, body)
    SELECT id, org_id, number, started_at, duration_ms, status, failure, error, body FROM retried
  )${emitFailed(sql, failed)}
  SELECT id FROM made WHERE id NOT IN (SELECT id FROM ended UNION ALL SELECT id FROM retried)`

/**
 * Records attempts, and updates the health of their receivers. `commit` is evaluated in the transaction.
 *
 * @returns the attempts as they are decided at last
 */
export const recordAttempts = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  unsorted: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
  commit: Statement.Fragment,
) {
  /** Returns the attempts of deliveries that this worker still claims. */
  const move = Effect.fnUntraced(function* (unsorted: ReadonlyArray<AttemptRecord>) {
    const records = unsorted.toSorted((a, b) => (a.delivery.deliveryId < b.delivery.deliveryId ? -1 : 1))
    const failed = yield* failedOf(random, records, now)
    const missed = yield* moveOn(sql, records, now, commit, failed, sql.literal("made.lane"))
    if (missed.length === 0) return unsorted
    // A resend moves deliveries to the new lane of their endpoint, and a statement does not see what it waited for.
    const ids = new Set(missed.map(({ id }) => id))
    const isMissed = ({ delivery }: AttemptRecord) => ids.has(delivery.deliveryId)
    const others = new Set(
      (yield* moveOn(
        sql,
        records.filter(isMissed),
        now,
        commit,
        failed.filter(({ deliveryId }) => ids.has(deliveryId)),
        sql`ANY(ARRAY[made.lane, (SELECT w.lane FROM webhook_endpoints w WHERE w.id = made.endpoint_id)])`,
      )).map(({ id }) => id),
    )
    return unsorted.filter(({ delivery }) => !others.has(delivery.deliveryId))
  })
  // Reads without a lock: attempts of healthy endpoints change nothing, and do not wait for a lock.
  const receivers = yield* findReceivers(sql, unsorted)
  const changes = receiverChanges(unsorted, receivers)
  const changing = Effect.gen(function* () {
    yield* lockReceivers(sql, changes)
    const decided = yield* decideAgain(sql, unsorted, changes, now)
    // Before the endpoints end, so that what ended here is not canceled.
    const ours = yield* move(decided)
    const ended = yield* recordReceivers(sql, random, ours, receivers, now)
    yield* cancelLanes(sql, random, ended, now)
    return decided
  })
  const changesNothing = changes.working.size + changes.failing.size + changes.ending.length === 0
  const decided = changesNothing ? yield* Effect.as(move(unsorted), unsorted) : yield* sql.withTransaction(changing)
  if (decided.some(({ decision }) => stateAfter[decision._tag] === "failed")) yield* emitted(sql)
  return decided
})

/** The health of an endpoint or of a callback lane. A callback lane has no URL. */
interface Receiver {
  readonly id: string
  readonly url: string | null
  readonly failing: boolean
  /** Failed attempts since the last success. */
  readonly failures: number
}

/** The receivers whose health the attempts may change, by `receiverId`. A success of a healthy one changes nothing. */
const findReceivers = (sql: SqlClient.SqlClient, records: ReadonlyArray<AttemptRecord>) => {
  const failed = records.some(({ decision }) => decision._tag !== "Delivered")
  const endpoints = new Set(records.map(({ delivery }) => delivery.endpointId))
  const callbacks = new Set(records.flatMap(({ delivery }) => (delivery.endpointId === null ? [delivery.lane] : [])))
  return sql<Receiver>`
    SELECT id, url, failing_since IS NOT NULL AS failing, failures FROM webhook_endpoints
    WHERE id = ANY(${texts(endpoints)}) AND (failing_since IS NOT NULL OR ${failed})
    UNION ALL
    SELECT id, NULL, lane IS NOT NULL, ${minFailuresToDeactivate}::int FROM unnest(${texts(callbacks)}) AS l (id)
    LEFT JOIN failing_callbacks ON lane = id
    WHERE lane IS NOT NULL OR ${failed}`.pipe(Effect.map((rows) => new Map(rows.map((row) => [row.id, row]))))
}

/** A record whose attempt is to deactivate its endpoint. */
interface EndingRecord extends AttemptRecord {
  readonly decision: Extract<RetryDecision, { readonly _tag: "Deactivate" }>
}
const isEnding = (record: AttemptRecord): record is EndingRecord => record.decision._tag === "Deactivate"

/** How attempts change the health of their receivers. */
interface ReceiverChanges {
  /** Receivers that work again. */
  readonly working: ReadonlySet<string>
  /** Failed attempts of receivers that fail now; counted as far as a deactivation needs. */
  readonly failing: ReadonlyMap<string, number>
  /** Attempts that are to deactivate their endpoints. */
  readonly ending: ReadonlyArray<EndingRecord>
}

/**
 * How attempts change the health of their receivers.
 *
 * @param records in the order in which the attempts ended
 */
const receiverChanges = (
  records: ReadonlyArray<AttemptRecord>,
  receivers: ReadonlyMap<string, Receiver>,
): ReceiverChanges => {
  const working = new Set<string>()
  const failing = new Map<string, number>()
  for (const record of records) {
    const { delivery, outcome, decision } = record
    const receiver = receivers.get(receiverId(delivery))
    // An endpoint with a new URL is another receiver: attempts at the old URL say nothing about it.
    if (receiver === undefined || !isAboutReceiver(outcome)) continue
    if (receiver.url !== null && receiver.url !== delivery.url) continue
    const { id } = receiver
    if (decision._tag === "Delivered") {
      failing.delete(id)
      if (receiver.failing) working.add(id)
    } else if (!receiver.failing || working.has(id) || receiver.failures < minFailuresToDeactivate) {
      failing.set(id, (failing.get(id) ?? 0) + 1)
    }
  }
  return { working, failing, ending: records.filter(isEnding) }
}

/**
 * Decides again about attempts that are to deactivate their endpoints, which are locked. An endpoint with another URL
 * stays active, and so does one that was activated or, if it had failed for long, has worked since the claim: then the
 * delivery is retried, unless this was its last attempt.
 */
const decideAgain = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  { ending, working }: ReceiverChanges,
  now: DateTime.Utc,
) {
  if (ending.length === 0) return records
  const rows = yield* sql<{ id: string }>`
    SELECT e.id FROM unnest(
      ${text(ending, (r) => r.delivery.deliveryId)}, ${text(ending, (r) => r.delivery.endpointId)},
      ${text(ending, (r) => r.delivery.url)}, ${text(ending, (r) => r.delivery.lane)},
      ${time(ending, (r) => r.delivery.failingSince)}, ${texts(ending.map(({ decision }) => decision.reason))})
      AS e (id, endpoint_id, url, lane, failing_since, reason)
    CROSS JOIN LATERAL (
      SELECT FROM webhook_endpoints w WHERE w.id = e.endpoint_id AND w.active AND w.url = e.url AND w.lane = e.lane
        AND (e.reason = 'gone' OR w.failing_since = e.failing_since AND w.id <> ALL(${texts(working)})) LIMIT 1
    ) AS w`
  const ends = new Set(rows.map(({ id }) => id))
  return records.map((record): AttemptRecord => {
    const { delivery, nextAttemptAt } = record
    if (!isEnding(record) || ends.has(delivery.deliveryId)) return record
    if (nextAttemptAt === null) return { ...record, decision: { _tag: "Exhausted" } }
    return { ...record, decision: { _tag: "Retry", wait: DateTime.distance(now, nextAttemptAt) } }
  })
})

/** Writes which callback lanes work again and which fail. */
const recordCallbacks = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  records: ReadonlyArray<AttemptRecord>,
  { failing, working }: ReceiverChanges,
  now: DateTime.Utc,
) {
  const lanes = new Map(
    records.flatMap(({ delivery }) => (delivery.endpointId === null ? [[delivery.lane, delivery.orgId]] : [])),
  )
  const works = [...working].filter((lane) => lanes.has(lane)).sort()
  const fails = [...failing.keys()].filter((lane) => lanes.has(lane)).sort()
  if (works.length > 0) yield* sql`DELETE FROM failing_callbacks WHERE lane = ANY(${texts(works)})`
  if (fails.length === 0) return
  yield* sql`
    INSERT INTO failing_callbacks (lane, org_id, failing_since)
    SELECT lane, org_id, ${date(now)}::timestamptz FROM unnest(${texts(fails)}, ${texts(fails.map((lane) => lanes.get(lane)!))})
      AS l (lane, org_id)
    ON CONFLICT DO NOTHING`
})

/** The events of deactivations. A delivery of an event of the service's own makes no other event. */
const deactivationEvents = (
  random: SecureRandom.SecureRandom["Service"],
  records: ReadonlyArray<EndingRecord>,
  now: DateTime.Utc,
) =>
  Effect.forEach(
    records.filter(({ delivery }) => !isServiceEvent(delivery.event)),
    ({ delivery, decision }) =>
      Effect.map(makeServiceEvent(random, deactivated(delivery.endpointId!, decision.reason), now), (event) => ({
        event,
        orgId: delivery.orgId,
      })),
  )

/** Deactivates the endpoints of these attempts, with an entry in the audit log each; returns the lanes that end. */
const deactivate = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  ending: ReadonlyArray<EndingRecord>,
  now: DateTime.Utc,
) {
  const byEndpoint = new Map(ending.map((record) => [record.delivery.endpointId!, record]))
  const records = [...byEndpoint.values()]
  const reasons = texts(records.map(({ decision }) => decision.reason))
  const entries = yield* Effect.forEach(records, () => random.ulid)
  const events = yield* deactivationEvents(random, records, now)
  const action = "webhook_endpoint.deactivate"
  const ended = yield* sql<EndedLane & { readonly entry: string; readonly reason: string }>`
    WITH ending AS (
      SELECT * FROM unnest(${texts(byEndpoint.keys())}, ${reasons}, ${texts(entries)},
        ${texts(records.map(({ delivery }) => delivery.lane))}) AS e (id, reason, entry, lane)
    ), ended AS (
      UPDATE webhook_endpoints w SET active = false, updated_at = ${date(now)},
        ${endLane(sql, now, sql.literal("ending.reason"))}
      FROM ending WHERE w.id = ending.id
      RETURNING w.id, w.org_id, w.deactivated_reason, ending.lane AS old_lane, ending.entry
    ), written AS (
      INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
      SELECT entry, org_id, ${date(now)}::timestamptz, 'service', ${action}, id,
        json_build_object('reason', deactivated_reason)::text, NULL
      FROM ended
    ), service_event AS (
      SELECT t.* FROM ended JOIN ${eventRows(sql, events)} ON t.subject = ended.id
    ), ${emitAll(sql)}
    SELECT org_id AS "orgId", id AS "endpointId", old_lane AS lane, entry, deactivated_reason AS reason FROM ended`
  const written = ended.map(({ endpointId: target, entry: id, orgId, reason }) => ({
    orgId,
    entry: {
      id,
      at: now,
      actor: "service",
      person: null,
      action,
      target,
      details: { reason },
      requestId: null,
    } as const,
  }))
  yield* auditWritten(sql, written)
  return ended
})

/** Locks the endpoints whose health attempts may change: before any delivery, in the order of their ids. */
const lockReceivers = (sql: SqlClient.SqlClient, { ending, failing, working }: ReceiverChanges) => {
  const changing = [...working, ...failing.keys(), ...ending.map(({ delivery }) => delivery.endpointId)]
  return sql`SELECT id FROM webhook_endpoints WHERE id = ANY(${texts(changing)}) ORDER BY id FOR NO KEY UPDATE`
}

/** Writes how attempts change the health of their receivers, which are locked; returns the lanes that have ended. */
const recordReceivers = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  records: ReadonlyArray<AttemptRecord>,
  receivers: ReadonlyMap<string, Receiver>,
  now: DateTime.Utc,
) {
  const changes = receiverChanges(records, receivers)
  const { working, failing, ending } = changes
  if (working.size > 0) {
    yield* sql`UPDATE webhook_endpoints SET failing_since = NULL, failures = 0 WHERE id = ANY(${texts(working)})`
  }
  if (failing.size > 0) {
    yield* sql`
      UPDATE webhook_endpoints w SET failing_since = coalesce(failing_since, ${date(now)}),
        failures = CASE WHEN failing_since IS NULL THEN 0 ELSE w.failures END + f.failures
      FROM unnest(${texts(failing.keys())}, ${integers(failing.values())}) AS f (id, failures) WHERE w.id = f.id`
  }
  yield* recordCallbacks(sql, records, changes, now)
  return ending.length === 0 ? [] : yield* deactivate(sql, random, ending, now)
})
