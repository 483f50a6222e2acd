import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { ClaimedDelivery, Verdict } from "./Deliveries.ts"
import type { Unavailable } from "../Errors.ts"
import type { AttemptOutcome } from "./WebhookSender.ts"

/** An attempt that was made, to be recorded. */
export interface AttemptRecord {
  readonly delivery: ClaimedDelivery
  readonly startedAt: DateTime.Utc
  readonly outcome: AttemptOutcome
  readonly verdict: Verdict
  /** When it is tried again; `null` when it is not. */
  readonly nextAttemptAt: DateTime.Utc | null
}

/** What a worker asks for. */
export interface Claim {
  readonly claimId: string
  readonly now: DateTime.Utc
  /** Until when the deliveries are this claim's; longer than any attempt takes. */
  readonly leaseUntil: DateTime.Utc
  readonly limit: number
  /** How many deliveries a lane may have here that has none; 1 for a lane whose last attempt failed. */
  readonly laneCap: number
  /** The lanes that have some here, by `slotOf`. */
  readonly lanes: ReadonlyMap<string, LaneShare>
  /** Slots and bytes that are free here. */
  readonly free: OrgShare
  /**
   * What stays free when an org takes more, at least, as a multiple of what it then has. So an org alone comes to
   * 1 ÷ (1 + reserve) of all, and to an equal share with others, and there is always room for the next.
   */
  readonly reserve: number
  /** An org that has so much here takes of its backlog when it has room for as much again: a small claim costs as a large. */
  readonly minBacklog: number
  /** What the orgs have here that have some. */
  readonly orgs: ReadonlyMap<string, OrgShare>
}

/** What a lane has here of what was claimed. */
export interface LaneShare {
  readonly count: number
  /** How many it may have. */
  readonly cap: number
  /** Whether its last attempt succeeded: then it may have them also when its org runs short of slots. */
  readonly works: boolean
}

/** What an org has here of what was claimed. */
export interface OrgShare {
  readonly count: number
  /** Bytes of the bodies. */
  readonly bytes: number
}

/** What a claim took. */
export interface Claimed {
  readonly deliveries: ReadonlyArray<ClaimedDelivery>
  /** Whether some of the backlog was not looked at: there may be more to claim at once. */
  readonly more: boolean
  /** Whether an org had no share left for something that is due: there may be more to claim when it has. */
  readonly short: boolean
}

/** What shares a limit on attempts in flight: an endpoint, whatever its lane, or a lane of callbacks. */
export const slotOf = ({ endpointId, lane }: Pick<ClaimedDelivery, "endpointId" | "lane">) => endpointId ?? lane

/** What corrects the times of pending deliveries. */
export interface TimesCorrection {
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
export interface CorrectedTimes {
  readonly moved: number
  /** The lane to go on after; `null` when there are no others. */
  readonly next: QueuePlace | null
}

/** Deliveries that are due and not claimed, whether a slot is free for them or not. */
export interface DueDeliveries {
  /** How many; counted up to the limit. */
  readonly count: number
  /** Since when the longest waiting one is due; `null` when none is. */
  readonly oldestDueAt: DateTime.Utc | null
}

/** What the worker needs of pending deliveries, of every org. What people read is `DeliveryLogRepository`'s. */
export class DeliveryQueue extends Context.Service<
  DeliveryQueue,
  {
    /**
     * Claims due deliveries: of a lane the longest due first and at most as many as it has room for, and of an org no more
     * than its share, of which a quarter is for lanes that have nothing here and for those that work. Orgs with a backlog take
     * turns, and the lanes of each.
     */
    readonly claim: (claim: Claim) => Effect.Effect<Claimed, Unavailable>
    /**
     * Records attempts and moves their deliveries on, all or nothing; passes over those whose claim is no longer
     * theirs. `Deactivate` deactivates the endpoint and cancels its other pending deliveries.
     */
    readonly record: (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) => Effect.Effect<void, Unavailable>
    /**
     * Releases deliveries that were claimed and not attempted, to wait behind the others of their lane; passes over
     * those whose claim is no longer theirs.
     */
    readonly release: (
      deliveries: ReadonlyArray<ClaimedDelivery>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /** When the next delivery is due, those left out that wait for room in their lane; `null` when there is none. */
    readonly nextDueAt: Effect.Effect<DateTime.Utc | null, Unavailable>
    readonly countDue: (now: DateTime.Utc, limit: number) => Effect.Effect<DueDeliveries, Unavailable>
    /**
     * After the clock was set back, makes overdue deliveries due again: those without an attempt yet and those that wait
     * for a slot. A claim holds no longer than one of now would; retries wait as before. Passes over what others have
     * locked. Looks at some lanes of the backlog at a time.
     */
    readonly correctTimes: (correction: TimesCorrection) => Effect.Effect<CorrectedTimes, Unavailable>
  }
>()("gatehouse/domain/DeliveryQueue") {}
