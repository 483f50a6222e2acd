import { Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { Delivery, DeliveryAttempt } from "../../domain/webhooks/Delivery.ts"
import { decodeRows, Time } from "../database/fragments.ts"
import { stateNow } from "./laneSql.ts"

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
  attempt_log: Schema.fromJsonString(Schema.Array(AttemptRow)),
})

export const decodeDeliveries = decodeRows(Row)
export const decodeDetail = decodeRows(DetailRow)

/** The columns of a delivery; they read the tables of `deliveryJoins`. */
export const deliveryColumns = (sql: SqlClient.SqlClient) => sql`
  d.id AS delivery_id, d.event_id, d.job_id, d.endpoint_id AS webhook_endpoint_id, e.type AS event, ${stateNow(sql)} AS state,
  d.attempts,
  CASE WHEN ${stateNow(sql)} = 'pending' THEN coalesce(p.lease_until, p.due_at, d.updated_at) END AS next_attempt_at,
  d.created_at, d.updated_at`

/** Joins a delivery `d` with its event `e` and its row in the queue `p`, if it has one. */
export const deliveryJoins = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    JOIN events e ON e.id = d.event_id
    LEFT JOIN pending_deliveries p ON p.lane = d.lane AND p.delivery_id = d.id`)
