import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { OrgScope } from "../Principal.ts"
import type { ActiveOrg, Measure } from "./ActiveOrg.ts"
import type { ActivityKind, ActivityOutcome, CountedActivity, Every, FailingEndpoint } from "./Activity.ts"
import type { Replica } from "./Replica.ts"

/** What happened in an interval, to be added to what is counted there. */
export interface ActivityCount {
  /** `""` counts every org. */
  readonly orgId: string
  readonly every: Every
  /** The start of the interval, in milliseconds since 1970. */
  readonly at: number
  readonly kind: ActivityKind
  readonly outcome: ActivityOutcome
  readonly count: number
}

/** Failed attempts of an endpoint in an interval. */
export interface FailureCount {
  readonly orgId: string
  readonly endpointId: string
  readonly every: "hour" | "day"
  readonly at: number
  readonly count: number
  /** The last of them. */
  readonly lastAt: number
  readonly lastStatus: number | null
  readonly lastFailure: string | null
}

/** An org in a ranking. */
export interface RankedOrg extends Omit<ActiveOrg, "name"> {
  readonly name: string | null
}

/** The state of the queue now. */
export interface QueueState {
  /** Counted up to `maxBacklog`. */
  readonly backlog: number
  readonly oldestDueAt: DateTime.Utc | null
  /** Counted up to `maxSweeps`. */
  readonly sweeps: number
  readonly replicas: number
}

export const maxBacklog = 10_000
export const maxSweeps = 1_000
export const maxReplicas = 100

/** Counts of what happened, and the replicas that are alive. */
export class ActivityRepository extends Context.Service<
  ActivityRepository,
  {
    /** Adds counts in one statement. */
    readonly add: (counts: ReadonlyArray<ActivityCount>) => Effect.Effect<void, Unavailable>
    /** Adds failed attempts in one statement. */
    readonly addFailures: (counts: ReadonlyArray<FailureCount>) => Effect.Effect<void, Unavailable>
    /** The counts of a scope from `from` to before `to`. */
    readonly counts: (
      scope: OrgScope,
      every: Every,
      from: DateTime.Utc,
      to: DateTime.Utc,
    ) => Effect.Effect<ReadonlyArray<CountedActivity>, Unavailable>
    readonly queueState: (scope: OrgScope, now: DateTime.Utc) => Effect.Effect<QueueState, Unavailable>
    /**
     * Endpoints by their failed attempts in intervals from `since`, the most first. `null` stands for an endpoint that was
     * deleted. `next` is the place of the last row; `null` on the last page.
     */
    readonly failing: (query: {
      readonly every: "hour" | "day"
      readonly since: DateTime.Utc
      readonly limit: number
      readonly after: { readonly failures: number; readonly endpointId: string } | undefined
    }) => Effect.Effect<
      { readonly endpoints: ReadonlyArray<FailingEndpoint | null>; readonly next: string | null },
      Unavailable
    >
    /**
     * Orgs by a measure in intervals from `since`, the most first. The name is `null` for an org that was deleted. `next` is
     * the place of the last row; `null` on the last page.
     */
    readonly activeOrgs: (query: {
      readonly by: Measure
      readonly every: "hour" | "day"
      readonly since: DateTime.Utc
      readonly limit: number
      readonly after: { readonly count: number; readonly orgId: string } | undefined
    }) => Effect.Effect<{ readonly orgs: ReadonlyArray<RankedOrg>; readonly next: string | null }, Unavailable>
    /** Notes that a replica is alive, and what it measured. */
    readonly heartbeat: (replica: Replica) => Effect.Effect<void, Unavailable>
    /** The replicas that were seen in the last minute, oldest first, up to `maxReplicas`. */
    readonly replicas: (now: DateTime.Utc) => Effect.Effect<ReadonlyArray<Replica>, Unavailable>
    readonly leave: (replicaId: string) => Effect.Effect<void, Unavailable>
    /** Removes intervals that began before a time, up to the limit, and returns their number. */
    readonly removeOld: (every: Every, before: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
    /** Removes replicas that were last seen before a time. */
    readonly removeReplicas: (before: DateTime.Utc) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/Activity/ActivityRepository") {}
