import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Fills the outbox by SQL: a number of deliveries of an endpoint, all of one event, due a second apart until `now`. */
export const insertMany = Effect.fnUntraced(function* (delivery: {
  readonly orgId: string
  readonly endpoint: string
  readonly state: "pending" | "delivered" | "failed" | "canceled"
  readonly count: number
  readonly now: Date
}) {
  const sql = yield* SqlClient.SqlClient
  const { orgId, endpoint, state, count, now } = delivery
  const prefix = `${endpoint}-${state}-`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    VALUES (${endpoint}, ${orgId}, ${endpoint}, 'job.completed', '{}', ${now}) ON CONFLICT DO NOTHING`
  const numbers = sql`generate_series(0, ${count - 1}::int) AS n`
  yield* state === "pending"
    ? sql`
        INSERT INTO pending_deliveries
          (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id, bytes, created_at, updated_at)
        SELECT ${endpoint}, ${prefix}::text || n, ${endpoint}, 0, 0, ${now}::timestamptz - n * interval '1 second',
          false,
          ${orgId}, 2, ${now}, ${now} FROM ${numbers}`
    : sql`
        INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, created_at, updated_at)
        SELECT ${prefix}::text || n, ${orgId}, ${endpoint}, ${endpoint}, ${state}::text, 0, ${now}, ${now}
          FROM ${numbers}`
})
