import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Delivery, DeliveryAttempt } from "../../domain/Delivery.ts"
import { deliveryNotFound, DeliveryRepository } from "../../domain/DeliveryLog.ts"
import { Conflict } from "../../domain/Errors.ts"
import { endpointNotFound } from "../../domain/WebhookEndpoints.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { afterCursor, date, decodeRows, Time } from "./fragments.ts"

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
const inFlight = () => new Conflict({ error: "An attempt of this delivery is under way." })

/** What became of deliveries, in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const columns = sql.literal(`
      d.id AS delivery_id, d.event_id, d.job_id, d.endpoint_id AS webhook_endpoint_id, e.type AS event, d.state,
      d.attempts, coalesce(p.lease_until, p.due_at) AS next_attempt_at, d.created_at, d.updated_at`)
    const joined = sql.literal(`
      deliveries d JOIN events e ON e.id = d.event_id
      LEFT JOIN pending_deliveries p ON p.lane = d.lane AND p.delivery_id = d.id`)
    /** Whether an attempt is in flight: of the queue, or of what was canceled meanwhile. */
    const claimed = (now: Date) => sql`
      (coalesce(p.lease_until > ${now}, false) OR coalesce(d.lease_until > ${now}, false))`

    return DeliveryRepository.of({
      list: (orgId, filter, page) =>
        sql`
          SELECT * FROM (
            SELECT ${columns}, d.id FROM ${joined}
            WHERE d.org_id = ${orgId}
              ${filter.webhook_endpoint_id === undefined ? sql.literal("") : sql`AND d.endpoint_id = ${filter.webhook_endpoint_id}`}
              ${filter.job_id === undefined ? sql.literal("") : sql`AND d.job_id = ${filter.job_id}`}
              ${filter.state === undefined ? sql.literal("") : sql`AND d.state = ${filter.state}`}
          ) AS found WHERE ${afterCursor(sql, page, "newest")}
          ORDER BY id DESC LIMIT ${page.limit + 1}`.pipe(decode, orUnavailable),

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
          FROM ${joined} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`.pipe(
          decodeDetail,
          Effect.flatMap(([delivery]) => (delivery === undefined ? deliveryNotFound() : Effect.succeed(delivery))),
          orUnavailable,
        ),

      retry: (orgId, deliveryId, now) =>
        Effect.gen(function* () {
          const [delivery] = yield* sql<{ endpoint: string | null; claimed: boolean }>`
            SELECT d.endpoint_id AS endpoint, ${claimed(date(now))} AS claimed
            FROM ${joined} WHERE d.id = ${deliveryId} AND d.org_id = ${orgId}`
          if (delivery === undefined) return yield* deliveryNotFound()
          if (delivery.claimed) return yield* inFlight()
          if (delivery.endpoint !== null) {
            const [endpoint] = yield* sql<{ active: boolean }>`
              SELECT active FROM webhook_endpoints WHERE id = ${delivery.endpoint} AND org_id = ${orgId} FOR SHARE`
            if (endpoint === undefined) return yield* gone()
            if (!endpoint.active) return yield* inactive()
          }
          const held = yield* sql`
            SELECT id FROM deliveries WHERE id = ${deliveryId} AND org_id = ${orgId} FOR NO KEY UPDATE`
          // Removed since it was read, as past its time.
          if (held.length === 0) return yield* deliveryNotFound()
          const started = yield* sql`
            INSERT INTO pending_deliveries AS p (lane, delivery_id, event_id, attempts, tries, due_at, parked)
            SELECT lane, id, event_id, attempts, 0, ${date(now)}, false FROM deliveries
            WHERE id = ${deliveryId} AND org_id = ${orgId} AND (claim_id IS NULL OR lease_until <= ${date(now)})
            ON CONFLICT (lane, delivery_id) DO UPDATE SET due_at = excluded.due_at, tries = 0, parked = false, claim_id = NULL,
              lease_until = NULL
            WHERE p.lease_until IS NULL OR p.lease_until <= excluded.due_at
            RETURNING p.delivery_id`
          if (started.length === 0) return yield* inFlight()
          yield* sql`
            UPDATE deliveries SET state = 'pending', claim_id = NULL, lease_until = NULL, updated_at = ${date(now)}
            WHERE id = ${deliveryId} AND org_id = ${orgId}`
        }).pipe(sql.withTransaction, orUnavailable),

      recover: (orgId, endpointId, since, now) =>
        Effect.gen(function* () {
          const [endpoint] = yield* sql<{ active: boolean }>`
            SELECT active FROM webhook_endpoints WHERE id = ${endpointId} AND org_id = ${orgId} FOR SHARE`
          if (endpoint === undefined) return yield* endpointNotFound()
          if (!endpoint.active) return yield* inactive()
          // Parked from the start: a backlog that comes due at once stays out of the other lanes' way. An attempt in
          // flight goes on, and what it comes to is recorded.
          const recovered = yield* sql`
            WITH held AS (
              SELECT id, lane, event_id, attempts, lease_until, claim_id
              FROM deliveries
              WHERE endpoint_id = ${endpointId} AND org_id = ${orgId} AND created_at >= ${date(since)}
                AND state IN ('failed', 'canceled', 'skipped')
              ORDER BY id FOR NO KEY UPDATE
            ), queued AS (
              INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, claim_id,
                lease_until)
              SELECT lane, id, event_id, attempts, 0, ${date(now)}, true, claim_id, lease_until FROM held
            )
            UPDATE deliveries SET state = 'pending', claim_id = NULL, lease_until = NULL, updated_at = ${date(now)}
            WHERE id IN (SELECT id FROM held) RETURNING id`
          return recovered.length
        }).pipe(sql.withTransaction, orUnavailable),
    })
  }),
)
