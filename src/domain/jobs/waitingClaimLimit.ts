import { Effect } from "effect"
import type { LimitReached } from "../Errors.ts"
import { limitReached } from "../orgs/OrgLimits.ts"

/** Limits the claims of each org that wait in this replica. */
export const limitWaitingClaims = (limit: number) => {
  // Bounded by the waiting claims: an org without one has no entry.
  const waiting = new Map<string, number>()
  const change = (orgId: string, by: 1 | -1) => {
    const count = (waiting.get(orgId) ?? 0) + by
    if (count === 0) waiting.delete(orgId)
    else waiting.set(orgId, count)
  }

  /** Runs a claim that waits. Fails with `LimitReached` at once when its org has reached the limit. */
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
