import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "../Errors.ts"

/** What the pending deliveries' times are put right by. */
export interface TimesPutRight {
  readonly now: DateTime.Utc
  /** Until when a claim of now would hold. */
  readonly leaseUntil: DateTime.Utc
  /** How many deliveries may be moved at most. */
  readonly limit: number
  /** The lane to go on after; `null` for the first batch. */
  readonly after: QueuePlace | null
}

/** A lane of the queue. */
export interface QueuePlace {
  readonly orgId: string
  readonly lane: string
}

/** What a batch moved. */
export interface MovedTimes {
  readonly moved: number
  /** The lane to go on after; `null` when there are no others. */
  readonly next: QueuePlace | null
}

/** The times of pending deliveries, which are the wall clock's, when that was set back. */
export class DeliveryTimes extends Context.Service<
  DeliveryTimes,
  {
    /**
     * Makes due now what was due already, and by the clock of now is not yet: what was not tried since it came, and what
     * waits for room in its lane. A claim holds no longer than one of now would. What is to be tried again waits as
     * before. Passes over what others have locked. Looks at some lanes of the backlog at a time.
     */
    readonly putRight: (right: TimesPutRight) => Effect.Effect<MovedTimes, Unavailable>
  }
>()("gatehouse/domain/DeliveryTimes") {}
