import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { RetryDecision } from "./RetryDecision.ts"
import type { HeaderNames } from "./WebhookEndpoint.ts"
import type { AttemptOutcome } from "./WebhookSender.ts"

/** An encrypted secret, and the id that it is encrypted for. */
export interface StoredSecret {
  readonly stored: string
  readonly owner: string
}

/** A delivery that a worker has claimed for the time of a lease. Only a record with the same `claimId` changes it. */
export interface ClaimedDelivery {
  readonly deliveryId: string
  readonly claimId: string
  readonly orgId: string
  /** `null` for the job's callback. */
  readonly endpointId: string | null
  /** The lane of the row in the queue. */
  readonly lane: string
  readonly url: string
  /** The encrypted secrets, the current one first, each with the id that it is encrypted for. */
  readonly secrets: ReadonlyArray<StoredSecret>
  /** The encrypted private keys of the org, the newest first; empty without `ed25519`. */
  readonly signingKeys: ReadonlyArray<StoredSecret>
  /** The encrypted extra headers, as JSON. */
  readonly headers: StoredSecret | null
  /** The encrypted `EndpointAuth`, as JSON. */
  readonly auth: StoredSecret | null
  /** The waits before the retries, in seconds; `null` for the schedule of the service. */
  readonly retryDelays: ReadonlyArray<number> | null
  /** Whether its lane sends one delivery at a time, in order. */
  readonly ordered: boolean
  /**
   * When it may be sent, in milliseconds after the answer to the claim; `null` in a lane without a limit per second.
   */
  readonly delayMillis: number | null
  readonly eventId: string
  readonly event: string
  /** What is signed and sent. */
  readonly body: string
  /** The bytes of the event, which `body` is or is a part of. */
  readonly bytes: number
  readonly headerNames: typeof HeaderNames.Type
  /** The most deliveries of its endpoint that a request has; `null`: each has its own. */
  readonly batchMax: number | null
  /** All attempts so far. */
  readonly attempts: number
  /** The attempts since the delivery was created or resent. */
  readonly attemptsSinceResend: number
  /** When the endpoint began to fail; `null` when its last attempt succeeded. */
  readonly failingSince: DateTime.Utc | null
  /** The lane's failed attempts since its last success, counted up to `minFailuresToDeactivate`. */
  readonly failures: number
}

/** What shares a limit of attempts in flight: an endpoint with all its lanes, or the lane of the callback. */
export const receiverId = ({ endpointId, lane }: Pick<ClaimedDelivery, "endpointId" | "lane">) => endpointId ?? lane

/** A finished attempt, to be recorded. */
export interface AttemptRecord {
  readonly delivery: ClaimedDelivery
  readonly startedAt: DateTime.Utc
  readonly outcome: AttemptOutcome
  readonly decision: RetryDecision
  /** The time of the retry; of `Deactivate`, the one that follows if the endpoint stays active. `null`: none. */
  readonly nextAttemptAt: DateTime.Utc | null
}

/** The request of one claim. "Here" means in this process. */
export interface Claim {
  readonly claimId: string
  readonly now: DateTime.Utc
  /** The end of the lease; a lease is longer than any attempt. */
  readonly leaseUntil: DateTime.Utc
  readonly limit: number
  /** The limit of a lane with no delivery here. It is 1 for a lane whose last attempt failed. */
  readonly laneCap: number
  /** The lanes with claimed deliveries here, by `receiverId`. */
  readonly lanes: ReadonlyMap<string, LaneShare>
  /** The free slots and bytes here. */
  readonly free: OrgShare
  /** What stays free when an org takes more, as a multiple of what the org then has: `slotsLeft`. */
  readonly reserve: number
  /**
   * An org claims from its backlog only when its share has this many free slots, or as many as it has deliveries here:
   * a small claim costs as much as a large one.
   */
  readonly minBacklog: number
  /** The orgs with claimed deliveries here. */
  readonly orgs: ReadonlyMap<string, OrgShare>
}

/** The claimed deliveries of a lane in this process. */
export interface LaneShare {
  readonly count: number
  /** The most deliveries of the lane that may be claimed in this process at the same time. */
  readonly cap: number
  /** Whether its last attempt succeeded. Such a lane keeps its slots when its org runs out of them. */
  readonly works: boolean
}

/** Deliveries in this process, such as the claimed ones of an org. */
export interface OrgShare {
  readonly count: number
  /** The bytes of the bodies. */
  readonly bytes: number
}

/** The result of a claim. */
export interface Claimed {
  readonly deliveries: ReadonlyArray<ClaimedDelivery>
  /** Whether the claim did not read the whole backlog, so that the next claim may find more at once. */
  readonly more: boolean
  /**
   * Whether an org has due deliveries beyond its share, so that a claim may find more when its share has free slots.
   */
  readonly short: boolean
  /** When a lane with a limit per second may send its next delivery; `null` when none waits for its limit. */
  readonly throttledUntil: DateTime.Utc | null
}

/** The request of one batch that corrects the times of pending deliveries. */
export interface TimesCorrection {
  readonly now: DateTime.Utc
  /** The end of a lease that begins now. */
  readonly leaseUntil: DateTime.Utc
  /** The maximum of deliveries to move. */
  readonly limit: number
}

/** The result of a look. */
interface Looked {
  readonly found: boolean
  readonly waitMillis: number
}

/** The deliveries that are due and not claimed, with or without a free slot. */
export interface DueDeliveries {
  /** Counted up to the limit. */
  readonly count: number
  /** The earliest due time; `null` when none is due. */
  readonly oldestDueAt: DateTime.Utc | null
}

/** The pending deliveries of all orgs, for the delivery worker. People read `DeliveryLogRepository`. */
export class DeliveryQueue extends Context.Service<
  DeliveryQueue,
  {
    /**
     * Claims due deliveries. A lane gets its longest due deliveries first, up to its cap. An org gets at most its
     * share; a quarter of the share is for lanes with no delivery here and for lanes whose last attempt succeeded. Orgs
     * with a backlog take turns, and so do the lanes of each org.
     */
    readonly claim: (claim: Claim) => Effect.Effect<Claimed, Unavailable>
    /**
     * Records attempts and updates their deliveries in one transaction. Skips deliveries that another claim has taken.
     * `Deactivate` deactivates the endpoint and cancels its other pending deliveries. An endpoint that has another URL,
     * or was activated or works since the claim, stays active, and the delivery is retried or has failed.
     */
    readonly record: (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) => Effect.Effect<void, Unavailable>
    /**
     * Releases deliveries without an attempt; they wait behind the others of their lane. Skips deliveries that another
     * claim has taken.
     */
    readonly release: (
      deliveries: ReadonlyArray<ClaimedDelivery>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /**
     * Looks for deliveries that claims may not see, such as those that other replicas left. Returns whether a claim may
     * find more, and how long to wait before the next look.
     */
    readonly look: Effect.Effect<Looked, Unavailable>
    /** The next due time of deliveries outside the backlogs that no claim has; `null` when there is none. */
    readonly nextDueAt: Effect.Effect<DateTime.Utc | null, Unavailable>
    readonly countDue: (now: DateTime.Utc, limit: number) => Effect.Effect<DueDeliveries, Unavailable>
    /**
     * After the clock steps back, makes deliveries without an attempt due again, and shortens leases that end later
     * than `leaseUntil`. Retries keep their times, and a backlog is due whatever the clock says. Returns how many it
     * moved.
     */
    readonly correctTimes: (correction: TimesCorrection) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/DeliveryQueue") {}
