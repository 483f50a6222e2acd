import type { Duration } from "effect"
import type { AttemptRecord, Claim, Claimed, ClaimedDelivery } from "./DeliveryQueue.ts"

/** An event of the worker. `at` is a monotonic time in milliseconds. */
export type SlotEvent =
  /** `startedAt` is the monotonic time of the claim's `now`. */
  | {
      readonly _tag: "Claimed"
      readonly claim: Claim
      readonly claimed: Claimed
      readonly startedAt: number
      readonly at: number
    }
  | { readonly _tag: "LaneTurn"; readonly lane: string; readonly at: number }
  | { readonly _tag: "AttemptEnded"; readonly record: AttemptRecord; readonly at: number }
  | { readonly _tag: "AttemptDied"; readonly delivery: ClaimedDelivery; readonly at: number }
  | { readonly _tag: "Recorded"; readonly records: ReadonlyArray<AttemptRecord>; readonly at: number }
  | { readonly _tag: "Released"; readonly deliveries: ReadonlyArray<ClaimedDelivery> }
  | { readonly _tag: "Stopping" }

/** A command to the worker. */
export type SlotCommand =
  | { readonly _tag: "Attempt"; readonly delivery: ClaimedDelivery }
  /** Send a `LaneTurn` for each lane, one after the other. */
  | { readonly _tag: "TakeTurns"; readonly lanes: ReadonlyArray<string> }
  /** Send a `LaneTurn` for the lane at this monotonic time. */
  | { readonly _tag: "TakeTurnAt"; readonly lane: string; readonly at: number }
  /** Claim again after this time: a lane that sends in order waits for a retry. */
  | { readonly _tag: "ClaimAfter"; readonly wait: Duration.Duration }
  | { readonly _tag: "Release"; readonly deliveries: ReadonlyArray<ClaimedDelivery> }
  /** Claim: there may be due deliveries with a free slot. */
  | { readonly _tag: "Claim" }
