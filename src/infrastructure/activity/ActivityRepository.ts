import { DateTime, Effect, Layer, Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { outcomesOf } from "../../domain/activity/Activity.ts"
import {
  ActivityRepository,
  type FailureCount,
  maxBacklog,
  maxReplicas,
  maxSweeps,
} from "../../domain/activity/ActivityRepository.ts"
import { ReplicaFigures } from "../../domain/activity/Replica.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { integers, texts, times } from "../database/arrays.ts"
import { date, decodeRows, inScope, orgOf, Time } from "../database/fragments.ts"
import { bucketsOf, eachBucket, inOrg } from "../database/buckets.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { earliest } from "../webhooks/bucketQueues.ts"
import { countDue } from "../webhooks/countDue.ts"
import { activeOrgs } from "./activeOrgs.ts"
import { failingEndpoints } from "./failingEndpoints.ts"

const decodeCounts = decodeRows(
  Schema.Struct({
    at: Time,
    kind: Schema.Literals(["deliveries", "validations", "jobs"]),
    outcome: Schema.Literals([...new Set(Object.values(outcomesOf).flat())]),
    count: Schema.Int,
  }),
)

const decodeReplicas = decodeRows(
  Schema.Struct({ replicaId: Schema.String, startedAt: Time, seenAt: Time, figures: Schema.NullOr(Schema.String) }),
)
/** The figures of another version may have other fields; then there are none. */
const decodeFigures = Schema.decodeUnknownOption(Schema.fromJsonString(ReplicaFigures))
const encodeFigures = Schema.encodeSync(Schema.fromJsonString(ReplicaFigures))

const timesOf = (rows: ReadonlyArray<FailureCount>, f: (row: FailureCount) => number) =>
  times(rows.map((row) => DateTime.makeUnsafe(f(row))))

/** How long ago a replica of the present was last seen, in seconds. */
const replicaSeconds = 60

/** The open sweeps of a scope in the schema of the fiber. */
const countSweeps = (sql: SqlClient.SqlClient, scope: OrgScope) => sql`
  (SELECT count(*)::int FROM (SELECT FROM sweeps WHERE ${inScope(sql, scope)} LIMIT ${maxSweeps}) AS open)`

/** The queue of a scope, and its open sweeps, in the buckets of a distributed database. */
const stateOfBuckets = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, scope: OrgScope, now: DateTime.Utc) {
  const state = Effect.gen(function* () {
    const due = yield* countDue(sql, now, maxBacklog, orgOf(scope))
    const [open] = yield* sql<{ sweeps: number }>`SELECT ${countSweeps(sql, scope)} AS sweeps`
    return { ...due, sweeps: open!.sweeps }
  }).pipe(orUnavailable)
  if (scope._tag !== "EveryOrg") return [yield* inOrg(sql, scope.orgId)(state)]
  return yield* eachBucket(sql, state)
})

const isPresent = (sql: SqlClient.SqlClient, now: DateTime.Utc) =>
  sql`seen_at > ${date(DateTime.subtract(now, { seconds: replicaSeconds }))}`

/** The open sweeps of a scope, and the replicas that were seen lately. */
const countOpen = (sql: SqlClient.SqlClient, scope: OrgScope, now: DateTime.Utc) =>
  sql<{ sweeps: number; replicas: number }>`
    SELECT ${countSweeps(sql, scope)} AS sweeps,
      (SELECT count(*)::int FROM replicas WHERE ${isPresent(sql, now)}) AS replicas`.pipe(Effect.map(([row]) => row!))

/** Counts of what happened, in PostgreSQL. */
export const layer = Layer.effect(
  ActivityRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const failing = failingEndpoints(sql)
    const ranked = activeOrgs(sql)

    return ActivityRepository.of({
      add: (rows) =>
        sql`
          INSERT INTO activity_counts AS a (org_id, every, at, kind, outcome, count)
          SELECT * FROM unnest(${texts(rows.map((r) => r.orgId))}, ${texts(rows.map((r) => r.every))},
            ${times(rows.map((r) => DateTime.makeUnsafe(r.at)))}, ${texts(rows.map((r) => r.kind))},
            ${texts(rows.map((r) => r.outcome))}, ${integers(rows.map((r) => r.count))})
          ON CONFLICT (org_id, every, at, kind, outcome) DO UPDATE SET count = a.count + excluded.count`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      addFailures: (rows) =>
        sql`
          INSERT INTO endpoint_failures AS f (org_id, endpoint_id, every, at, count, last_at, last_status, last_failure)
          SELECT * FROM unnest(${texts(rows.map((r) => r.orgId))}, ${texts(rows.map((r) => r.endpointId))},
            ${texts(rows.map((r) => r.every))}, ${timesOf(rows, (r) => r.at)}, ${integers(rows.map((r) => r.count))},
            ${timesOf(rows, (r) => r.lastAt)}, ${integers(rows.map((r) => r.lastStatus))},
            ${texts(rows.map((r) => r.lastFailure))})
          ON CONFLICT (org_id, endpoint_id, every, at) DO UPDATE SET count = f.count + excluded.count,
            last_at = greatest(f.last_at, excluded.last_at),
            last_status = CASE WHEN excluded.last_at >= f.last_at THEN excluded.last_status ELSE f.last_status END,
            last_failure = CASE WHEN excluded.last_at >= f.last_at THEN excluded.last_failure ELSE f.last_failure END`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      counts: (scope, every, from, to) =>
        sql`
          SELECT at, kind, outcome, count::float8 AS count FROM activity_counts
          WHERE org_id = ${orgOf(scope) ?? ""} AND every = ${every} AND at >= ${date(from)} AND at < ${date(to)}`.pipe(
          decodeCounts,
          orUnavailable,
        ),

      queueState: (scope, now) =>
        bucketsOf(sql) === undefined
          ? Effect.gen(function* () {
              const { count, oldestDueAt } = yield* countDue(sql, now, maxBacklog, orgOf(scope))
              return { backlog: count, oldestDueAt, ...(yield* countOpen(sql, scope, now)) }
            }).pipe(orUnavailable)
          : Effect.gen(function* () {
              const open = yield* orUnavailable(countOpen(sql, scope, now))
              const parts = yield* stateOfBuckets(sql, scope, now)
              return {
                replicas: open.replicas,
                backlog: Math.min(
                  maxBacklog,
                  parts.reduce((sum, { count }) => sum + count, 0),
                ),
                sweeps: Math.min(
                  maxSweeps,
                  parts.reduce((sum, { sweeps }) => sum + sweeps, open.sweeps),
                ),
                oldestDueAt: earliest(parts.map(({ oldestDueAt }) => oldestDueAt)),
              }
            }),

      failing: (query) => orUnavailable(failing(query)),
      activeOrgs: (query) => orUnavailable(ranked(query)),

      heartbeat: ({ figures, replicaId, seenAt, startedAt }) =>
        sql`
          INSERT INTO replicas (id, started_at, seen_at, figures)
          VALUES (${replicaId}, ${date(startedAt)}, ${date(seenAt)}, ${figures && encodeFigures(figures)}::text)
          ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, figures = excluded.figures`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      replicas: (now) =>
        sql`
          SELECT id AS "replicaId", started_at AS "startedAt", seen_at AS "seenAt", figures FROM replicas
          WHERE ${isPresent(sql, now)} ORDER BY started_at, id LIMIT ${maxReplicas}`.pipe(
          decodeReplicas,
          Effect.map((rows) => rows.map((row) => ({ ...row, figures: Option.getOrNull(decodeFigures(row.figures)) }))),
          orUnavailable,
        ),

      leave: (replicaId) =>
        sql`DELETE FROM replicas WHERE id = ${replicaId}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),

      removeOld: (every, before, limit) =>
        sql<{ removed: number }>`
          WITH counts AS (
            DELETE FROM activity_counts WHERE ctid = ANY(ARRAY(
              SELECT ctid FROM activity_counts WHERE every = ${every} AND at < ${date(before)} ORDER BY at LIMIT ${limit}
              FOR UPDATE SKIP LOCKED)) RETURNING 1
          ), failures AS (
            DELETE FROM endpoint_failures WHERE ctid = ANY(ARRAY(
              SELECT ctid FROM endpoint_failures WHERE every = ${every} AND at < ${date(before)} ORDER BY at LIMIT ${limit}
              FOR UPDATE SKIP LOCKED)) RETURNING 1
          )
          SELECT greatest((SELECT count(*) FROM counts), (SELECT count(*) FROM failures))::int AS removed`.pipe(
          Effect.map(([row]) => row!.removed),
          orUnavailableWithin("sweep"),
        ),

      removeReplicas: (before) =>
        sql`DELETE FROM replicas WHERE seen_at < ${date(before)}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),
    })
  }),
)
