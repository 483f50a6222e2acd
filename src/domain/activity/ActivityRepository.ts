import { Context, type DateTime, type Effect, Schema } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { OrgScope } from "../Principal.ts"
import { Id, time } from "../Schemas.ts"
import type {
  ActiveOrg,
  ActivityKind,
  ActivityOutcome,
  CountedActivity,
  Every,
  FailingEndpoint,
  Measure,
} from "./Activity.ts"

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

/** Attempts of an endpoint in an interval. */
export interface AttemptCount {
  readonly orgId: string
  readonly endpointId: string
  readonly every: "hour" | "day"
  readonly at: number
  /** What they ended with; `""`: they delivered. */
  readonly cause: string
  /** Their place in the histogram of `attemptMillis`. */
  readonly bucket: number
  readonly count: number
  /** The last of them. */
  readonly lastAt: number
  readonly lastStatus: number | null
  readonly lastFailure: string | null
}

/** Attempts of an endpoint since the start of a range. */
export interface CountedAttempts extends Pick<AttemptCount, "cause" | "bucket" | "count"> {
  readonly since: DateTime.Utc
}

/** An org in a ranking. */
interface RankedOrg extends Omit<ActiveOrg, "name"> {
  readonly name: string | null
}

/** The state of the queue now. */
interface QueueState {
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
    /** Adds attempts in one statement. */
    readonly addAttempts: (counts: ReadonlyArray<AttemptCount>) => Effect.Effect<void, Unavailable>
    /** What the attempts of an endpoint ended with in each of some ranges that end now. */
    readonly attempts: (
      orgId: string,
      endpointId: string,
      ranges: ReadonlyArray<{ readonly every: "hour" | "day"; readonly since: DateTime.Utc }>,
    ) => Effect.Effect<ReadonlyArray<CountedAttempts>, Unavailable>
    /** The counts of a scope from `from` to before `to`. */
    readonly counts: (
      scope: OrgScope,
      every: Every,
      from: DateTime.Utc,
      to: DateTime.Utc,
    ) => Effect.Effect<ReadonlyArray<CountedActivity>, Unavailable>
    readonly queueState: (scope: OrgScope, now: DateTime.Utc) => Effect.Effect<QueueState, Unavailable>
    /**
     * Endpoints by their failed attempts in intervals from `since`, the most first. `null` stands for an endpoint that
     * was deleted. `next` is the place of the last row; `null` on the last page.
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
     * Orgs by a measure in intervals from `since`, the most first. The name is `null` for an org that was deleted.
     * `next` is the place of the last row; `null` on the last page.
     */
    readonly activeOrgs: (query: {
      readonly by: Measure
      readonly every: "hour" | "day"
      readonly since: DateTime.Utc
      readonly limit: number
      readonly after: { readonly count: number; readonly orgId: string } | undefined
    }) => Effect.Effect<{ readonly orgs: ReadonlyArray<RankedOrg>; readonly next: string | null }, Unavailable>
    /** Notes that a replica is alive, what it measured, and the id of the key with which it encrypts secrets. */
    readonly heartbeat: (replica: Replica, encryptionKeyId: string) => Effect.Effect<void, Unavailable>
    /** The replicas that were seen in the last minute, oldest first, up to `maxReplicas`. */
    readonly replicas: (now: DateTime.Utc) => Effect.Effect<ReadonlyArray<Replica>, Unavailable>
    readonly leave: (replicaId: string) => Effect.Effect<void, Unavailable>
    /** Removes intervals that began before a time, up to the limit, and returns their number. */
    readonly removeOld: (
      of: "activity_counts" | "endpoint_attempts",
      every: Every,
      before: DateTime.Utc,
      limit: number,
    ) => Effect.Effect<number, Unavailable>
    /** Removes replicas that were last seen before a time. */
    readonly removeReplicas: (before: DateTime.Utc) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/Activity/ActivityRepository") {}

/** The range that the figures of a replica are of. */
export const figuresMinutes = 5

const millis = (description: string, example: number) =>
  Schema.NullOr(Schema.Finite).annotate({ description: `${description} null: nothing happened.`, examples: [example] })

/** How often something happened, and how long it took. */
const Durations = Schema.Struct({
  perMinute: Schema.Finite.annotate({ description: "How often it happened in a minute.", examples: [120] }),
  p50Millis: millis("The median in milliseconds, estimated from the histogram of `/metrics`.", 1.2),
  p99Millis: millis("The 99th percentile in milliseconds, estimated in the same way.", 8.4),
}).annotate({ identifier: "Durations" })
export interface Durations extends Schema.Schema.Type<typeof Durations> {}

/** What a replica measured in the last minutes. */
export const ReplicaFigures = Schema.Struct({
  requests: Durations.annotate({
    description: "Operations under /api and /v1, without validations and without those that wait for others.",
  }),
  validations: Durations.annotate({ description: "Validations of keys." }),
  attempts: Durations.annotate({ description: "Attempts of deliveries: how long receivers took." }),
  database: Durations.annotate({ description: "Operations of the database, with the wait for a connection." }),
  databaseInFlight: Schema.Int.annotate({
    description: "Operations of the database in flight when the replica was last seen.",
    examples: [2],
  }),
  databaseConnections: Schema.Int.annotate({
    description:
      "The most connections that the replica opens. On PostgreSQL, operations wait when more of them are in flight; the one " +
      "connection of the embedded database is shared by all.",
    examples: [10],
  }),
}).annotate({ identifier: "ReplicaFigures" })
export interface ReplicaFigures extends Schema.Schema.Type<typeof ReplicaFigures> {}

/** A process that was seen in the last minute. */
export const Replica = Schema.Struct({
  replicaId: Id.annotate({ description: "The process. It gets a new id when it starts." }),
  startedAt: time("When the process started."),
  seenAt: time("When the process last said that it is alive: every 20 seconds."),
  figures: Schema.NullOr(ReplicaFigures).annotate({
    description: `What it measured in the ${figuresMinutes} minutes before. null: its version does not say.`,
  }),
}).annotate({ identifier: "Replica" })
export interface Replica extends Schema.Schema.Type<typeof Replica> {}

/** The replicas and the database of the service. */
export const ServiceState = Schema.Struct({
  replicas: Schema.Array(Replica).annotate({
    description: "Processes that were seen in the last minute, oldest first; at most 100.",
  }),
  database: Schema.Struct({
    bytes: Schema.NullOr(Schema.Finite).annotate({
      description: "All tables and indexes, measured at most once a minute. null: unknown.",
      examples: [1_250_000_000],
    }),
    writable: Schema.Boolean.annotate({ description: "false: the database is read-only.", examples: [true] }),
  }).annotate({ description: "The size of the database, and whether it accepts writes." }),
}).annotate({ identifier: "ServiceState" })
export interface ServiceState extends Schema.Schema.Type<typeof ServiceState> {}
