import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { minFailuresToDeactivate, wasSent } from "../../domain/webhooks/RetryDecision.ts"
import { type AttemptRecord } from "../../domain/webhooks/DeliveryQueue.ts"
import { isServiceEvent } from "../../domain/webhooks/EventPatterns.ts"
import { laneId } from "../../domain/webhooks/lanes.ts"
import { deactivated, makeServiceEvent } from "../../domain/webhooks/ServiceEvents.ts"
import { integers, texts, times } from "../database/arrays.ts"
import { announcementParts, eventRows } from "./announce.ts"
import type { EndedLane } from "./cancelLanes.ts"
import { date } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
import { nextLane } from "./laneSql.ts"

/** The health of an endpoint or of a callback lane. A callback lane has no URL. */
interface Receiver {
  readonly id: string
  readonly url: string | null
  readonly failing: boolean
  /** Failed attempts since the last success. */
  readonly failures: number
}

/** The receivers whose health the attempts may change, by `laneId`. A success of a healthy receiver changes nothing. */
export const findReceivers = (sql: SqlClient.SqlClient, records: ReadonlyArray<AttemptRecord>) => {
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

/** How attempts change the health of their receivers. */
interface ReceiverChanges {
  /** Receivers that work again. */
  readonly working: ReadonlySet<string>
  /** Failed attempts of receivers that fail now; counted as far as a deactivation needs. */
  readonly failing: ReadonlyMap<string, number>
  /** Attempts that deactivate their endpoints. */
  readonly ending: ReadonlyArray<AttemptRecord>
}

/**
 * How attempts change the health of their receivers; `undefined` when they change nothing.
 *
 * @param records in the order in which the attempts ended
 */
export const receiverChanges = (
  records: ReadonlyArray<AttemptRecord>,
  receivers: ReadonlyMap<string, Receiver>,
): ReceiverChanges | undefined => {
  const working = new Set<string>()
  const failing = new Map<string, number>()
  const ending: Array<AttemptRecord> = []
  for (const record of records) {
    const { delivery, outcome, decision } = record
    const receiver = receivers.get(laneId(delivery))
    // An endpoint with a new URL is another receiver: attempts at the old URL say nothing about it.
    if (receiver === undefined || !wasSent(outcome)) continue
    if (receiver.url !== null && receiver.url !== delivery.url) continue
    const { id } = receiver
    if (decision._tag === "Delivered") {
      failing.delete(id)
      if (receiver.failing) working.add(id)
    } else if (!receiver.failing || working.has(id) || receiver.failures < minFailuresToDeactivate) {
      failing.set(id, (failing.get(id) ?? 0) + 1)
    }
    if (decision._tag === "Deactivate" && delivery.endpointId !== null) ending.push(record)
  }
  return working.size + failing.size + ending.length === 0 ? undefined : { working, failing, ending }
}

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
  const made: Part = {
    name: "made",
    into: "failing_callbacks",
    columns: "lane, org_id, failing_since",
    unlessExists: true,
    rows: sql`
      SELECT lane, org_id, ${date(now)}::timestamptz FROM unnest(${texts(fails)}, ${texts(fails.map((lane) => lanes.get(lane)!))})
        AS l (lane, org_id)`,
  }
  yield* runParts(sql, [made], sql`SELECT 1`)
})

/** The events that announce deactivations. A delivery of an event of the service's own makes no other event. */
const announcements = (
  random: SecureRandom.SecureRandom["Service"],
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) =>
  Effect.forEach(
    records.filter(({ delivery }) => !isServiceEvent(delivery.event)),
    ({ delivery, outcome }) =>
      Effect.map(
        makeServiceEvent(random, deactivated(delivery.endpointId!, outcome.status === 410 ? "gone" : "failing"), now),
        (event) => ({ event, orgId: delivery.orgId }),
      ),
  )

/** Deactivates the endpoints of these attempts, with an entry in the audit log each; returns the lanes that end. */
const deactivate = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  ending: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) {
  const byEndpoint = new Map(ending.map((record) => [record.delivery.endpointId!, record]))
  const records = [...byEndpoint.values()]
  // 410 always deactivates. Five days of failures do so unless the endpoint has worked or was activated since the claim.
  const failingSince = records.map(({ delivery, outcome }) => (outcome.status === 410 ? null : delivery.failingSince))
  const entries = yield* Effect.forEach(records, () => random.ulid)
  const events = yield* announcements(random, records, now)
  const parts: ReadonlyArray<Part> = [
    {
      name: "ending",
      isRead: true,
      rows: sql`
        SELECT e.*, w.lane AS old_lane FROM unnest(${texts(byEndpoint.keys())}, ${texts(records.map((r) => r.delivery.url))},
          ${times(failingSince)}, ${texts(entries)}) AS e (id, url, failing_since, entry)
        CROSS JOIN LATERAL (SELECT coalesce(lane, id) AS lane FROM webhook_endpoints WHERE id = e.id OFFSET 0) w`,
    },
    {
      name: "ended",
      isRead: true,
      columns: "id text, org_id text, deactivated_reason text, old_lane text, entry text",
      rows: sql`
        UPDATE webhook_endpoints w SET active = false, updated_at = ${date(now)}, lane = ${nextLane(sql, "w.")},
          deactivated_at = ${date(now)},
          deactivated_reason = CASE WHEN ending.failing_since IS NULL THEN 'gone' ELSE 'failing' END
        FROM ending
        WHERE w.id = ending.id AND w.url = ending.url AND w.active
          AND (ending.failing_since IS NULL OR ending.failing_since = w.failing_since)
        RETURNING w.id, w.org_id, w.deactivated_reason, ending.old_lane, ending.entry`,
    },
    {
      name: "written",
      into: "audit_log",
      columns: "id, org_id, at, actor, action, target, details, request_id",
      rows: sql`
        SELECT entry, org_id, ${date(now)}::timestamptz, 'service', 'webhook_endpoint.deactivate', id,
          json_build_object('reason', deactivated_reason)::text, NULL
        FROM ended`,
    },
    {
      name: "service_event",
      isRead: true,
      columns: "id text, org_id text, topics text[], subject text, at timestamptz",
      rows: sql`SELECT t.* FROM ended JOIN ${eventRows(sql, events)} ON t.subject = ended.id`,
    },
    ...announcementParts(sql),
  ]
  const select = sql`SELECT org_id AS "orgId", id AS "endpointId", old_lane AS lane FROM ended`
  return yield* runParts<EndedLane>(sql, parts, select)
})

/**
 * Writes how attempts change the health of their receivers; returns the lanes of deactivated endpoints. Runs in a
 * transaction, before any delivery is locked.
 */
export const recordReceivers = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  records: ReadonlyArray<AttemptRecord>,
  receivers: ReadonlyMap<string, Receiver>,
  now: DateTime.Utc,
) {
  const changes = receiverChanges(records, receivers)
  if (changes === undefined) return []
  const { working, failing, ending } = changes
  const changing = [...working, ...failing.keys(), ...ending.map(({ delivery }) => delivery.endpointId)]
  yield* sql`SELECT id FROM webhook_endpoints WHERE id = ANY(${texts(changing)}) ORDER BY id FOR NO KEY UPDATE`
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
