import { DateTime, Effect, Layer, Option, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import type { OrgScope } from "../../domain/Principal.ts"
import { type Measure, measureNames, measures, outcomesOf } from "../../domain/activity/Activity.ts"
import {
  ActivityRepository,
  type AttemptCount,
  maxBacklog,
  maxReplicas,
  maxSweeps,
  ReplicaFigures,
} from "../../domain/activity/ActivityRepository.ts"
import {
  aliveOrgs,
  date,
  decodeRows,
  deleteFirst,
  inScope,
  integers,
  isAlive,
  orgOf,
  texts,
  Time,
  times,
} from "../database/fragments.ts"
import { everywhere, Nodes } from "../database/Nodes.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { isPlaced } from "../queue/pickDue.ts"
import { countDue, sumDue } from "../webhooks/deliveryQueueSql.ts"

const decodeCounts = decodeRows(
  Schema.Struct({
    at: Time,
    kind: Schema.Literals(["deliveries", "validations", "jobs"]),
    outcome: Schema.Literals([...new Set(Object.values(outcomesOf).flat())]),
    count: Schema.Int,
  }),
)

const decodeAttempts = decodeRows(
  Schema.Struct({ since: Time, cause: Schema.String, bucket: Schema.Int, count: Schema.Int }),
)

const decodeReplicas = decodeRows(
  Schema.Struct({ replicaId: Schema.String, startedAt: Time, seenAt: Time, figures: Schema.NullOr(Schema.String) }),
)
/** The figures of another version may have other fields; then there are none. */
const decodeFigures = Schema.decodeUnknownOption(Schema.fromJsonString(ReplicaFigures))
const encodeFigures = Schema.encodeSync(Schema.fromJsonString(ReplicaFigures))

const timesOf = (rows: ReadonlyArray<AttemptCount>, f: (row: AttemptCount) => number) =>
  times(rows.map((row) => DateTime.makeUnsafe(f(row))))

/** How long ago a replica of the present was last seen, in seconds. */
const replicaSeconds = 60

/** The queue of a scope in a database, and its open sweeps. */
const stateOf = (scope: OrgScope, now: DateTime.Utc) => (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const due = yield* countDue(sql, now, maxBacklog, orgOf(scope))
    const [open] = yield* sql<{ sweeps: number }>`
      SELECT count(*)::int AS sweeps FROM (SELECT FROM sweeps WHERE ${inScope(sql, scope)} LIMIT ${maxSweeps}) AS open`
    return { ...due, sweeps: open!.sweeps }
  }).pipe(orUnavailable)

/** Counts of what happened, in PostgreSQL. */
export const layer = Layer.effect(
  ActivityRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const nodes = yield* Nodes

    const isPresent = (now: DateTime.Utc) => sql`seen_at > ${date(DateTime.subtract(now, { seconds: replicaSeconds }))}`

    const sumOf = (measure: Measure) => {
      const { kind, outcomes } = measures[measure]
      return sql`
        coalesce(sum(count) FILTER (WHERE kind = ${kind} AND outcome = ANY(${texts(outcomes)})), 0)::float8
          AS ${sql(measure)}`
    }

    /** Adds the endpoints that are on nodes. */
    const withEndpoints = Effect.fnUntraced(function* (rows: ReadonlyArray<Row>) {
      if (nodes.all.length === 0) return rows
      const ids = texts(rows.map(({ endpointId }) => endpointId))
      const found = yield* everywhere(sql, nodes, (sql) =>
        decodeEndpoints(sql`
          SELECT id AS "endpointId", url, description, active, failing_since AS "failingSince",
            deactivated_at AS "deactivatedAt",
            deactivated_reason AS "deactivatedReason"
          FROM webhook_endpoints e WHERE id = ANY(${ids}) AND ${isPlaced(sql, "e")}`).pipe(orUnavailable),
      )
      const endpoints = new Map(found.flat().map((endpoint) => [endpoint.endpointId, endpoint]))
      return rows.map((row): Row => ({ ...row, ...endpoints.get(row.endpointId) }))
    })

    return ActivityRepository.of({
      add: (rows) =>
        sql`
          WITH ${aliveOrgs(
            sql,
            rows.map((r) => r.orgId),
          )}
          INSERT INTO activity_counts AS a (org_id, every, at, kind, outcome, count)
          SELECT * FROM unnest(${texts(rows.map((r) => r.orgId))}, ${texts(rows.map((r) => r.every))},
            ${times(rows.map((r) => DateTime.makeUnsafe(r.at)))}, ${texts(rows.map((r) => r.kind))},
            ${texts(rows.map((r) => r.outcome))}, ${integers(rows.map((r) => r.count))}) AS given (org_id)
          WHERE ${isAlive(sql, "given.org_id")}
          ON CONFLICT (org_id, every, at, kind, outcome) DO UPDATE SET count = a.count + excluded.count`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      addAttempts: (rows) =>
        sql`
          WITH ${aliveOrgs(
            sql,
            rows.map((r) => r.orgId),
          )}
          INSERT INTO endpoint_attempts AS f
            (org_id, endpoint_id, every, at, cause, bucket, count, last_at, last_status, last_failure)
          SELECT * FROM unnest(${texts(rows.map((r) => r.orgId))}, ${texts(rows.map((r) => r.endpointId))},
            ${texts(rows.map((r) => r.every))}, ${timesOf(rows, (r) => r.at)}, ${texts(rows.map((r) => r.cause))},
            ${integers(rows.map((r) => r.bucket))}, ${integers(rows.map((r) => r.count))},
            ${timesOf(rows, (r) => r.lastAt)}, ${integers(rows.map((r) => r.lastStatus))},
            ${texts(rows.map((r) => r.lastFailure))}) AS given (org_id)
          WHERE ${isAlive(sql, "given.org_id")}
          ON CONFLICT (org_id, endpoint_id, every, at, cause, bucket) DO UPDATE SET count = f.count + excluded.count,
            last_at = greatest(f.last_at, excluded.last_at),
            last_status = CASE WHEN excluded.last_at >= f.last_at THEN excluded.last_status ELSE f.last_status END,
            last_failure = CASE WHEN excluded.last_at >= f.last_at THEN excluded.last_failure ELSE f.last_failure END`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      attempts: (orgId, endpointId, ranges) =>
        sql`
          SELECT r.since, a.cause, a.bucket, a.count
          FROM unnest(${texts(ranges.map(({ every }) => every))}, ${times(ranges.map(({ since }) => since))})
            AS r (every, since)
          CROSS JOIN LATERAL (
            SELECT cause, bucket, sum(count)::float8 AS count FROM endpoint_attempts
            WHERE org_id = ${orgId} AND endpoint_id = ${endpointId} AND every = r.every AND at >= r.since
            GROUP BY cause, bucket
          ) AS a`.pipe(decodeAttempts, orUnavailable),

      counts: (scope, every, from, to) =>
        sql`
          SELECT at, kind, outcome, count::float8 AS count FROM activity_counts
          WHERE org_id = ${orgOf(scope) ?? ""} AND every = ${every} AND at >= ${date(from)} AND at < ${date(to)}`.pipe(
          decodeCounts,
          orUnavailable,
        ),

      queueState: (scope, now) =>
        Effect.gen(function* () {
          const states = yield* everywhere(sql, nodes, stateOf(scope, now))
          const [present] = yield* sql<{ replicas: number }>`
            SELECT count(*)::int AS replicas FROM replicas WHERE ${isPresent(now)}`
          const { count, oldestDueAt } = sumDue(states, maxBacklog)
          const sweeps = Math.min(
            maxSweeps,
            states.reduce((sum, { sweeps }) => sum + sweeps, 0),
          )
          return { backlog: count, oldestDueAt, sweeps, replicas: present!.replicas }
        }).pipe(orUnavailable),

      failing: Effect.fnUntraced(function* ({ after, every, limit, since }) {
        const next =
          after === undefined
            ? sql``
            : sql`HAVING (-sum(count), endpoint_id) > (${-after.failures}::numeric, ${after.endpointId})`
        const rows = yield* sql`
          SELECT r.endpoint_id AS "endpointId", r.org_id AS "orgId", w.url, w.description, w.active,
            r.failures::float8 AS "failedAttempts",
            w.failing_since AS "failingSince", w.deactivated_at AS "deactivatedAt",
              w.deactivated_reason AS "deactivatedReason",
            last.last_at AS "lastFailureAt", last.last_status AS "lastStatus", last.last_failure AS "lastFailure"
          FROM (
            SELECT org_id, endpoint_id, sum(count) AS failures FROM (
              SELECT org_id, endpoint_id, count FROM endpoint_attempts
              WHERE cause <> '' AND every = ${every} AND at >= ${date(since)} ORDER BY every, at DESC
                LIMIT ${maxRowsRead}
            ) AS counted GROUP BY org_id, endpoint_id ${next}
            ORDER BY sum(count) DESC, endpoint_id LIMIT ${limit + 1}
          ) AS r
          CROSS JOIN LATERAL (
            SELECT last_at, last_status, last_failure FROM endpoint_attempts f
            WHERE f.org_id = r.org_id AND f.endpoint_id = r.endpoint_id AND f.every = ${every} AND f.cause <> ''
            ORDER BY f.at DESC, f.last_at DESC LIMIT 1
          ) AS last
          LEFT JOIN LATERAL (
            SELECT * FROM webhook_endpoints WHERE id = r.endpoint_id AND org_id = r.org_id LIMIT 1
          ) AS w ON true
          ORDER BY r.failures DESC, r.endpoint_id`.pipe(decode)
        const shown = yield* withEndpoints(rows.slice(0, limit))
        const last = rows.length > limit ? shown.at(-1) : undefined
        return {
          endpoints: shown.map(({ active, url, ...row }) =>
            url === null || active === null
              ? null
              : { ...row, active, host: new URL(url).host, path: new URL(url).pathname },
          ),
          next: last === undefined ? null : `${last.failedAttempts}.${last.endpointId}`,
        }
      }, orUnavailable),
      /**
       * Ranks orgs by what they did. Reads the counts of one kind by an index, and then all counts of the orgs of the
       * page.
       */
      activeOrgs: Effect.fnUntraced(function* ({ after, by, every, limit, since }) {
        const { kind, outcomes } = measures[by]
        const next =
          after === undefined ? sql`` : sql`HAVING (-sum(count), org_id) > (${-after.count}::numeric, ${after.orgId})`
        // The list of intervals and the org without an id are those of the partial index.
        const found = yield* sql`
          SELECT r.org_id AS "orgId", o.name, r.total::float8 AS rank, done.*
          FROM (
            SELECT org_id, sum(count) AS total FROM (
              SELECT org_id, outcome, count FROM activity_counts
              WHERE every IN ('hour', 'day') AND org_id <> '' AND every = ${every} AND kind = ${kind}
                AND at >= ${date(since)}
              ORDER BY every, kind, at DESC LIMIT ${maxOrgRowsRead}
            ) AS counted WHERE outcome = ANY(${texts(outcomes)}) GROUP BY org_id ${next}
            ORDER BY sum(count) DESC, org_id LIMIT ${limit + 1}
          ) AS r
          CROSS JOIN LATERAL (
            SELECT ${sql.csv(measureNames.map((measure) => sumOf(measure)))} FROM activity_counts
            WHERE org_id = r.org_id AND every = ${every} AND at >= ${date(since)}
          ) AS done
          LEFT JOIN orgs o ON o.id = r.org_id
          ORDER BY r.total DESC, r.org_id`.pipe(decodeOrgs)
        const last = found.length > limit ? found[limit - 1] : undefined
        return {
          orgs: found.slice(0, limit).map(Struct.omit(["rank"])),
          next: last === undefined ? null : `${last.rank}.${last.orgId}`,
        }
      }, orUnavailable),

      heartbeat: ({ figures, replicaId, seenAt, startedAt }, encryptionKeyId) =>
        sql`
          INSERT INTO replicas (id, started_at, seen_at, figures, nodes, encryption_key_id)
          VALUES (${replicaId}, ${date(startedAt)}, ${date(seenAt)}, ${figures && encodeFigures(figures)}::text,
            ${texts(nodes.all.map(({ name }) => name))}, ${encryptionKeyId})
          ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, figures = excluded.figures`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      replicas: (now) =>
        sql`
          SELECT id AS "replicaId", started_at AS "startedAt", seen_at AS "seenAt", figures FROM replicas
          WHERE ${isPresent(now)} ORDER BY started_at, id LIMIT ${maxReplicas}`.pipe(
          decodeReplicas,
          Effect.map((rows) => rows.map((row) => ({ ...row, figures: Option.getOrNull(decodeFigures(row.figures)) }))),
          orUnavailable,
        ),

      leave: (replicaId) =>
        sql`DELETE FROM replicas WHERE id = ${replicaId}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),

      removeOld: (of, every, before, limit) =>
        orUnavailableWithin("sweep")(
          deleteFirst(
            sql,
            of,
            sql`every = ${every} AND at < ${date(before)} ORDER BY at LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
          ),
        ),

      removeReplicas: (before) =>
        sql`DELETE FROM replicas WHERE seen_at < ${date(before)}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),
    })
  }),
)

const decodeOrgs = decodeRows(
  Schema.Struct({
    orgId: Schema.String,
    name: Schema.NullOr(Schema.String),
    attempts: Schema.Int,
    failedAttempts: Schema.Int,
    validations: Schema.Int,
    jobs: Schema.Int,
    rank: Schema.Finite,
  }),
)

/** Rows of counts that one list reads: 10,000 orgs with two outcomes in each of 24 hours. */
const maxOrgRowsRead = 500_000

const decode = decodeRows(
  Schema.Struct({
    endpointId: Schema.String,
    orgId: Schema.String,
    url: Schema.NullOr(Schema.String),
    description: Schema.NullOr(Schema.String),
    active: Schema.NullOr(Schema.Boolean),
    failedAttempts: Schema.Int,
    failingSince: Schema.NullOr(Time),
    deactivatedAt: Schema.NullOr(Time),
    deactivatedReason: Schema.NullOr(Schema.String),
    lastFailureAt: Time,
    lastStatus: Schema.NullOr(Schema.Int),
    lastFailure: Schema.NullOr(Schema.String),
  }),
)

type Row = Effect.Success<ReturnType<typeof decode>>[number]
const decodeEndpoints = decodeRows(
  Schema.Struct({
    endpointId: Schema.String,
    url: Schema.String,
    description: Schema.NullOr(Schema.String),
    active: Schema.Boolean,
    failingSince: Schema.NullOr(Time),
    deactivatedAt: Schema.NullOr(Time),
    deactivatedReason: Schema.NullOr(Schema.String),
  }),
)

/** Rows of failures that one list reads: 10,000 endpoints that fail in each of 48 hours. */
const maxRowsRead = 500_000
