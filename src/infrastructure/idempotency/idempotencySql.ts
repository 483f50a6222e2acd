import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Idempotency, IdempotencyRepository, KeyedOutcome } from "../../domain/Idempotency.ts"
import { date, deleteFirst } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { hourly } from "../background.ts"

/**
 * The records of operations with an idempotency key, in PostgreSQL. An operation and its record share a transaction,
 * under a lock of the key until the transaction ends: both are committed, or neither.
 */
export const layer = Layer.effect(
  IdempotencyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return IdempotencyRepository.of({
      once: ({ orgId, caller, operation: name, key }, { now, expiresAt }, operation) =>
        Effect.gen(function* () {
          const lockName = JSON.stringify(["gatehouse:idempotency", caller, name, key])
          const [lock] = yield* sql<{ free: boolean }>`
            SELECT pg_try_advisory_xact_lock(hashtextextended(${lockName}, 0)) AS free`
          if (!lock!.free) return KeyedOutcome.InFlight()
          // A separate statement after the lock, so that it sees what the previous holder of the lock has committed.
          const [found] = yield* sql<{ record: string }>`
            SELECT record FROM idempotency_keys
            WHERE org_id = ${orgId} AND caller = ${caller} AND operation = ${name} AND key = ${key} AND expires_at > ${date(now)}`
          if (found !== undefined) return KeyedOutcome.Found({ record: found.record })
          const { response, record } = yield* operation
          yield* sql`
            INSERT INTO idempotency_keys (org_id, caller, operation, key, record, expires_at)
            VALUES (${orgId}, ${caller}, ${name}, ${key}, ${record}, ${date(expiresAt)})
            ON CONFLICT (org_id, caller, operation, key) DO UPDATE
              SET record = excluded.record, expires_at = excluded.expires_at`
          return KeyedOutcome.Ran({ response })
        }).pipe(sql.withTransaction, orUnavailable),

      deleteExpired: (now, limit) =>
        orUnavailableWithin("sweep")(
          deleteFirst(
            sql,
            "idempotency_keys",
            sql`expires_at <= ${date(now)} ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
          ),
        ),
    })
  }),
)

/** Deletes expired idempotency keys and their responses about every hour. */
export const idempotencyWorker = Layer.effectDiscard(
  Effect.flatMap(Idempotency, ({ deleteExpired }) => hourly("Expired idempotency keys are not deleted", deleteExpired)),
)
