import { DateTime, Effect, Layer } from "effect"
import { IdempotencyRepository, KeyedOutcome } from "#src/domain/Idempotency.ts"

/** The records of keyed operations in memory. Unlike a database, it does not undo an operation that fails. */
export const layer = Layer.sync(IdempotencyRepository, () => {
  const records = new Map<string, { readonly record: string; readonly expiresAt: DateTime.Utc }>()
  const inFlight = new Set<string>()

  return IdempotencyRepository.of({
    once: Effect.fnUntraced(function* (keyed, { now, expiresAt }, operation) {
      const id = JSON.stringify([keyed.caller, keyed.operation, keyed.key])
      if (inFlight.has(id)) return KeyedOutcome.InFlight()
      const found = records.get(id)
      if (found !== undefined && DateTime.isGreaterThan(found.expiresAt, now)) {
        return KeyedOutcome.Found({ record: found.record })
      }
      inFlight.add(id)
      const { response, record } = yield* Effect.ensuring(
        operation,
        Effect.sync(() => inFlight.delete(id)),
      )
      records.set(id, { record, expiresAt })
      return KeyedOutcome.Ran({ response })
    }),

    deleteExpired: (now, limit) =>
      Effect.sync(() => {
        const expired = [...records].filter(([, { expiresAt }]) => DateTime.isLessThanOrEqualTo(expiresAt, now))
        for (const [id] of expired.slice(0, limit)) records.delete(id)
        return Math.min(expired.length, limit)
      }),
  })
})
