import { Effect } from "effect"
import type { LimitReached } from "../Errors.ts"
import { limitReached } from "../orgs/OrgLimits.ts"

/** Counts the claims of each org that wait at this replica, and refuses those past the limit. */
export const make = (limit: number) => {
  // Bounded by the claims that wait: an org with none has no entry.
  const waiting = new Map<string, number>()
  const change = (orgId: string, by: 1 | -1) => {
    const count = (waiting.get(orgId) ?? 0) + by
    if (count === 0) waiting.delete(orgId)
    else waiting.set(orgId, count)
  }

  /** Runs a claim that waits; past the limit of its org it is a `LimitReached` at once. */
  return <A, E, R>(orgId: string, claim: Effect.Effect<A, E, R>) =>
    Effect.suspend((): Effect.Effect<A, E | LimitReached, R> => {
      if ((waiting.get(orgId) ?? 0) >= limit) return limitReached("waitingClaims", limit)
      change(orgId, 1)
      return Effect.ensuring(
        claim,
        Effect.sync(() => change(orgId, -1)),
      )
    })
}
