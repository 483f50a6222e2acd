import { DateTime, Effect } from "effect"
import type { Unavailable } from "../Errors.ts"
import { inTurns, type TurnBatch } from "../orgs/Turns.ts"

/** The request of one batch of delayed jobs. */
export interface DelayedBatch extends TurnBatch {
  readonly now: DateTime.Utc
}

/** The result of one batch of delayed jobs. */
export interface QueuedJobs {
  /** The orgs that have such a job. */
  readonly orgs: ReadonlyArray<string>
  readonly moved: number
  readonly next: string | null
}

/** Jobs that one statement opens to claims. */
const maxDelayedBatch = 1_000

/**
 * Opens delayed jobs, whose time to run has come, to claims. Until then they are not in the index that claims read, so any
 * number of them costs a claim nothing.
 *
 * @param queue runs one batch of the repository
 * @param wake signals that an org has queued jobs
 */
export const makeDelayed = (
  queue: (batch: DelayedBatch) => Effect.Effect<QueuedJobs, Unavailable>,
  wake: (orgId: string) => Effect.Effect<void>,
): Effect.Effect<void, Unavailable> =>
  inTurns(
    maxDelayedBatch,
    Effect.fnUntraced(function* (batch) {
      const { moved, next, orgs } = yield* queue({ ...batch, now: yield* DateTime.now })
      yield* Effect.forEach(orgs, wake, { discard: true })
      return { moved, next }
    }),
  )
