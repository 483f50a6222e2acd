import { Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

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
  replicaId: Id,
  startedAt: Timestamp,
  seenAt: Timestamp,
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
      description:
        "All tables and indexes, measured at most once a minute. On Citus, those of the coordinator. null: unknown.",
      examples: [1_250_000_000],
    }),
    writable: Schema.Boolean.annotate({ description: "false: the database is read-only.", examples: [true] }),
  }).annotate({ description: "The size of the database, and whether it accepts writes." }),
}).annotate({ identifier: "ServiceState" })
export interface ServiceState extends Schema.Schema.Type<typeof ServiceState> {}
