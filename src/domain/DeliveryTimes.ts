import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "./Errors.ts"

/** What the pending deliveries' times are put right by. */
export interface TimesPutRight {
  readonly now: DateTime.Utc
  /** Until when a claim of now would hold. */
  readonly leaseUntil: DateTime.Utc
  /** How many deliveries may be moved at most. */
  readonly limit: number
}

/** The times of pending deliveries, which are the wall clock's, when that was set back. */
export class DeliveryTimes extends Context.Service<
  DeliveryTimes,
  {
    /**
     * Makes due now what was due already, and by the clock of now is not yet: what was not tried since it came, and what
     * waits for room in its lane. A claim holds no longer than one of now would. What is to be tried again waits as
     * before. Passes over what others have locked; gives how many were moved.
     */
    readonly putRight: (right: TimesPutRight) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/DeliveryTimes") {}
