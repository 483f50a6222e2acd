import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { IdempotencyRepository, KeyedOutcome } from "../../domain/Idempotency.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { date } from "../database/fragments.ts"

/**
 * The records of keyed operations in PostgreSQL. An operation runs in the transaction that keeps its record, under a lock
 * on its key that ends with it: there is no moment at which one of the two is done and the other is not.
 */
export const layer = Layer.effect(
  IdempotencyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return IdempotencyRepository.of({
      once: ({ caller, operation: name, key }, { now, expiresAt }, operation) =>
        Effect.gen(function* () {
          const lock = JSON.stringify(["gatehouse:idempotency", caller, name, key])
          const [locked] = yield* sql<{ free: boolean }>`
            SELECT pg_try_advisory_xact_lock(hashtextextended(${lock}, 0)) AS free`
          if (!locked!.free) return KeyedOutcome.InFlight()
          // Begins after the lock is held, so it sees what the holder before has committed.
          const [found] = yield* sql<{ record: string }>`
            SELECT record FROM idempotency_keys
            WHERE caller = ${caller} AND operation = ${name} AND key = ${key} AND expires_at > ${date(now)}`
          if (found !== undefined) return KeyedOutcome.Found({ record: found.record })
          const { answer, record } = yield* operation
          yield* sql`
            INSERT INTO idempotency_keys (caller, operation, key, record, expires_at)
            VALUES (${caller}, ${name}, ${key}, ${record}, ${date(expiresAt)})
            ON CONFLICT (caller, operation, key) DO UPDATE
              SET record = excluded.record, expires_at = excluded.expires_at`
          return KeyedOutcome.Ran({ answer })
        }).pipe(sql.withTransaction, orUnavailable),

      deleteExpired: (now, limit) =>
        sql`
          DELETE FROM idempotency_keys WHERE ctid IN (
            SELECT ctid FROM idempotency_keys WHERE expires_at <= ${date(now)} LIMIT ${limit} FOR UPDATE SKIP LOCKED
          ) RETURNING 1`.pipe(
          Effect.map((deleted) => deleted.length),
          orUnavailableWithin("sweep"),
        ),
    })
  }),
)
