import { DateTime, Effect, Layer } from "effect"
import { IdempotencyRepository, KeyedOutcome } from "#src/domain/Idempotency.ts"

/** The records of keyed operations in memory. An operation that fails is not undone, as a database would undo it. */
export const layer = Layer.sync(IdempotencyRepository, () => {
  const records = new Map<string, { readonly record: string; readonly expiresAt: DateTime.Utc }>()
  const underWay = new Set<string>()

  return IdempotencyRepository.of({
    once: Effect.fnUntraced(function* (keyed, { now, expiresAt }, operation) {
      const id = JSON.stringify([keyed.caller, keyed.operation, keyed.key])
      if (underWay.has(id)) return KeyedOutcome.UnderWay()
      const found = records.get(id)
      if (found !== undefined && DateTime.isGreaterThan(found.expiresAt, now)) {
        return KeyedOutcome.Found({ record: found.record })
      }
      underWay.add(id)
      const { answer, record } = yield* Effect.ensuring(
        operation,
        Effect.sync(() => underWay.delete(id)),
      )
      records.set(id, { record, expiresAt })
      return KeyedOutcome.Made({ answer })
    }),

    forgetExpired: (now, limit) =>
      Effect.sync(() => {
        const expired = [...records].filter(([, { expiresAt }]) => DateTime.isLessThanOrEqualTo(expiresAt, now))
        for (const [id] of expired.slice(0, limit)) records.delete(id)
        return Math.min(expired.length, limit)
      }),
  })
})
