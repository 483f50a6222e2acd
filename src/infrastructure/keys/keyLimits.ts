import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { changeLimits, newCounter } from "../../domain/keys/KeyCounter.ts"
import type { RateLimit, SettingsChange } from "../../domain/keys/KeySettings.ts"
import { lockCounters, nowMillis, writeCounters } from "./counterRows.ts"

/** A key whose limits change. */
interface LimitedKey {
  readonly orgId: string
  readonly counterId: string
  /** The rate limit that counts when there is no counter. */
  readonly rateLimit: RateLimit | null
}

export const changesLimits = ({ credits, rateLimit }: SettingsChange) =>
  rateLimit !== undefined || credits !== undefined

/**
 * In a transaction: changes the limits of a key's counter, and creates the counter when there is none. Without a change, it
 * only creates a counter that a limit of the key needs. Returns whether there is a counter.
 */
export const changeCounter = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { counterId: id, orgId, rateLimit }: LimitedKey,
  change: SettingsChange,
) {
  const [stored] = yield* lockCounters(sql, [{ orgId, id }])
  if (stored !== undefined) {
    if (changesLimits(change)) {
      yield* writeCounters(sql, [{ orgId, id, counter: changeLimits(stored.counter, change, stored.now) }])
    }
    return true
  }
  const limits = {
    rateLimit: change.rateLimit === undefined ? rateLimit : change.rateLimit,
    credits: change.credits ?? null,
  }
  if (limits.rateLimit === null && limits.credits === null) return false
  const [clock] = yield* sql<{ readonly now: number }>`SELECT ${sql.literal(nowMillis)}::float8 AS now`
  yield* writeCounters(sql, [{ orgId, id, counter: newCounter(limits, clock!.now) }])
  return true
})
