import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { Delivery, DeliveryAttempt } from "../../domain/webhooks/Delivery.ts"
import { deliveryNotFound, DeliveryLogRepository } from "../../domain/webhooks/DeliveryLog.ts"
import { Conflict } from "../../domain/Errors.ts"
import { endpointNotFound } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { date, dateOrNull, decodeRows, Time } from "../database/fragments.ts"
import { stateNow } from "./lanes.ts"
import { maxLooked, sourceOf } from "./listDeliveries.ts"
import { countRecovery, recoverBatch } from "./recoverDeliveries.ts"

const Row = Schema.Struct({
  ...Delivery.fields,
  next_attempt_at: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
})
const decode = decodeRows(Row)
const AttemptRow = Schema.Struct({ ...DeliveryAttempt.fields, started_at: Schema.DateTimeUtcFromString })
const decodeDetail = decodeRows(
  Schema.Struct({
    ...Row.fields,
    payload: Schema.String,
    attempt_log: Schema.fromJsonString(Schema.Array(AttemptRow)),
  }),
)

const inactive = () => new Conflict({ error: "The webhook endpoint is inactive; activate it first." })
const gone = () => new Conflict({ error: "The webhook endpoint was deleted." })
const busy = () =>
  new Conflict({ error: "Other recoveries of this endpoint are under way; try again when they have ended." })
const inFlight = () => new Conflict({ error: "An attempt of this delivery is under way." })

/** How many sweeps an endpoint may have. */
const maxSweeps = 10
/** How many deliveries a recovery makes due at once; a sweep follows for the others. */
const inlineRows = 500

/** What became of deliveries, in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const state = stateNow(sql)
    const columns = sql`
      d.id AS delivery_id, d.event_id, d.job_id, d.endpoint_id AS webhook_endpoint_id, e.type AS event, ${state} AS state,
      d.attempts, CASE WHEN ${state} = 'pending' THEN coalesce(p.lease_until, p.due_at, d.updated_at) END AS next_attempt_at,
      d.created_at, d.updated_at`
    const joined = sql.literal(`
      JOIN events e ON e.id = d.event_id
      LEFT JOIN pending_deliveries p ON p.lane = d.lane AND p.delivery_id = d.id`)
    /** Whether an attempt is in flight: of the queue, or of what was canceled meanwhile. */
    const claimed = (now: Date) => sql`
      (coalesce(p.lease_until > ${now}, false) OR coalesce(d.lease_until > ${now}, false))`

    return DeliveryLogRepository.of({
      list: (orgId, filter, page) =>
        Effect.gen(function* () {
          const source = sourceOf(sql, orgId, filter, page)
          const deliveries = yield* sql`
            SELECT ${columns} FROM (${source} LIMIT ${maxLooked}) AS looked
            CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = looked.id AND org_id = ${orgId} OFFSET 0) AS d ${joined}
            WHERE ${filter.state ?? null}::text IS NULL OR ${state} = ${filter.state ?? null}
            ORDER BY looked.id DESC LIMIT ${page.limit + 1}`.pipe(decode)
          if (deliveries.length > page.limit) return { deliveries, scannedTo: null }
          const [last] = yield* sql<{ id: string }>`
            SELECT id FROM (${source} LIMIT ${maxLooked}) AS looked OFFSET ${maxLooked - 1}`
          return { deliveries, scannedTo: last?.id ?? null }
        }).pipe(orUnavailable),

      find: (orgId, deliveryId) =>
        // In one statement: an attempt that is recorded meanwhile is in all of it or in none.
        sql`
          SELECT ${columns}, e.body AS payload, (
            SELECT coalesce(json_agg(made ORDER BY number), '[]')::text FROM (
              SELECT number, started_at, duration_ms, status, failure, error, body FROM delivery_attempts
              WHERE delivery_id = d.id AND org_id = d.org_id
              UNION ALL
              SELECT d.attempts, d.attempt_started_at, d.attempt_duration_ms, d.attempt_status, d.attempt_failure,
                d.attempt_error, d.attempt_body
              WHERE d.attempt_started_at IS NOT NULL
            ) AS made
          ) AS attempt_log
          FROM deliveries d ${joined} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`.pipe(
          decodeDetail,
          Effect.flatMap(([delivery]) => (delivery === undefined ? deliveryNotFound() : Effect.succeed(delivery))),
          orUnavailable,
        ),

      retry: (orgId, deliveryId, now) =>
        Effect.gen(function* () {
          const [delivery] = yield* sql<{ endpoint: string | null; claimed: boolean }>`
            SELECT d.endpoint_id AS endpoint, ${claimed(date(now))} AS claimed
            FROM deliveries d ${joined} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`
          if (delivery === undefined) return yield* deliveryNotFound()
          if (delivery.claimed) return yield* inFlight()
          /** The endpoint's lane, which may not be the one that the delivery was queued in; a callback keeps its own. */
          let lane: string | null = null
          if (delivery.endpoint !== null) {
            const [endpoint] = yield* sql<{ active: boolean; lane: string }>`
              SELECT active, coalesce(lane, id) AS lane FROM webhook_endpoints
              WHERE id = ${delivery.endpoint} AND org_id = ${orgId} FOR SHARE`
            if (endpoint === undefined) return yield* gone()
            if (!endpoint.active) return yield* inactive()
            lane = endpoint.lane
          }
          const held = yield* sql`
            SELECT id FROM deliveries WHERE id = ${deliveryId} AND org_id = ${orgId} FOR NO KEY UPDATE`
          // Removed since it was read, as past its time.
          if (held.length === 0) return yield* deliveryNotFound()
          // In a lane that has ended it is canceled, and its sweep has not come to it.
          yield* sql`
            DELETE FROM pending_deliveries p USING deliveries d
            WHERE d.id = ${deliveryId} AND p.lane = d.lane AND p.delivery_id = d.id AND p.lane <> ${lane}`
          const started = yield* sql`
            INSERT INTO pending_deliveries AS p
              (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
            SELECT coalesce(${lane}, d.lane), d.id, d.event_id, d.attempts, 0, ${date(now)}, false, d.org_id,
              octet_length(e.body)
            FROM deliveries d JOIN events e ON e.id = d.event_id
            WHERE d.id = ${deliveryId} AND d.org_id = ${orgId} AND (d.claim_id IS NULL OR d.lease_until <= ${date(now)})
            ON CONFLICT (lane, delivery_id) DO UPDATE SET due_at = excluded.due_at, tries = 0, parked = false, claim_id = NULL,
              lease_until = NULL
            WHERE p.lease_until IS NULL OR p.lease_until <= excluded.due_at
            RETURNING p.delivery_id`
          if (started.length === 0) return yield* inFlight()
          yield* sql`
            UPDATE deliveries SET state = 'pending', lane = coalesce(${lane}, lane), claim_id = NULL, lease_until = NULL,
              updated_at = ${date(now)}
            WHERE id = ${deliveryId} AND org_id = ${orgId}`
        }).pipe(sql.withTransaction, orUnavailable),

      recover: (recovery, now) =>
        Effect.gen(function* () {
          const { orgId, endpointId, since, until } = recovery
          const [endpoint] = yield* sql<{ active: boolean; sweeps: number }>`
            SELECT active, (SELECT count(*)::int FROM sweeps s WHERE s.endpoint_id = w.id) AS sweeps
            FROM webhook_endpoints w WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
          if (endpoint === undefined) return yield* endpointNotFound()
          if (!endpoint.active) return yield* inactive()
          if (endpoint.sweeps >= maxSweeps) return yield* busy()
          // What earlier sweeps of the endpoint have still to change comes first.
          const first =
            endpoint.sweeps === 0
              ? yield* recoverBatch(sql, recovery, "", inlineRows, now)
              : { rows: inlineRows, last: "", recovered: 0 }
          if (first.rows < inlineRows) return { recovered: first.recovered, hasMore: false }
          const others = yield* countRecovery(sql, recovery)
          yield* sql`
            INSERT INTO sweeps (id, org_id, kind, endpoint_id, since, until, done_to, created_at)
            VALUES (${yield* random.ulid}, ${orgId}, 'recover', ${endpointId}, ${date(since)}, ${dateOrNull(until)}, ${first.last},
              ${date(now)})`
          return { recovered: first.recovered + others, hasMore: true }
        }).pipe(sql.withTransaction, orUnavailable),
    })
  }),
)
