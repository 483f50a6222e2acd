import { Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { deliveryNotFound } from "../../domain/webhooks/deliveryErrors.ts"
import { DeliveryLogRepository } from "../../domain/webhooks/DeliveryLog.ts"
import { inOrgs } from "../database/buckets.ts"
import { isOfOrg } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { decodeDetail, deliveryColumns, deliveryJoins } from "./deliveryRows.ts"
import { listDeliveries } from "./listDeliveries.ts"
import { recoverDeliveries } from "./recoverDeliveries.ts"
import { retryDelivery } from "./retryDelivery.ts"

/** The log of deliveries in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom

    const repository = DeliveryLogRepository.of({
      list: (orgId, filter, page) => orUnavailable(listDeliveries(sql, orgId, filter, page)),

      find: (orgId, deliveryId) =>
        // One statement, so that the answer has all of an attempt that is being recorded, or nothing of it.
        sql`
          SELECT ${deliveryColumns(sql)}, e.body AS payload, (
            SELECT coalesce(json_agg(made ORDER BY number), '[]')::text FROM (
              SELECT number, started_at, duration_ms, status, failure, error, body FROM delivery_attempts
              WHERE delivery_id = d.id AND org_id = d.org_id
              UNION ALL
              SELECT d.attempts, d.attempt_started_at, d.attempt_duration_ms, d.attempt_status, d.attempt_failure,
                d.attempt_error, d.attempt_body
              WHERE d.attempt_started_at IS NOT NULL
            ) AS made
          ) AS attempt_log
          FROM deliveries d ${deliveryJoins(sql)} WHERE d.id = ${deliveryId} AND ${isOfOrg(sql, orgId, "d.org_id")}`.pipe(
          decodeDetail,
          Effect.flatMap(([delivery]) => (delivery === undefined ? deliveryNotFound() : Effect.succeed(delivery))),
          orUnavailable,
        ),

      retry: (orgId, deliveryId, now) =>
        retryDelivery(sql, orgId, deliveryId, now).pipe(sql.withTransaction, orUnavailable),

      recover: (recovery, now) =>
        recoverDeliveries(sql, random, recovery, now).pipe(sql.withTransaction, orUnavailable),
    })
    return inOrgs(sql, repository, ["list", "find", "retry", "recover"])
  }),
)
