import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { ActivityRepository } from "../../domain/activity/ActivityRepository.ts"
import { texts } from "../database/arrays.ts"
import { bucketsOf, byBucket } from "../database/buckets.ts"
import { date, decodeRows, Time } from "../database/fragments.ts"

const decode = decodeRows(
  Schema.Struct({
    endpointId: Schema.String,
    orgId: Schema.String,
    url: Schema.NullOr(Schema.String),
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
    active: Schema.Boolean,
    failingSince: Schema.NullOr(Time),
    deactivatedAt: Schema.NullOr(Time),
    deactivatedReason: Schema.NullOr(Schema.String),
  }),
)

/** Adds to the rows of a distributed database the endpoints, which are in the buckets of their orgs. */
const withEndpoints = (sql: SqlClient.SqlClient, rows: ReadonlyArray<Row>) => {
  if (bucketsOf(sql) === undefined) return Effect.succeed(rows)
  const read = (part: ReadonlyArray<Row>) =>
    decodeEndpoints(sql`
      SELECT id AS "endpointId", url, active, failing_since AS "failingSince", deactivated_at AS "deactivatedAt",
        deactivated_reason AS "deactivatedReason"
      FROM webhook_endpoints
      WHERE id = ANY(${texts(part.map(({ endpointId }) => endpointId))}) AND org_id = ANY(${texts(part.map(({ orgId }) => orgId))})`)
  return Effect.map(
    byBucket(sql, rows, ({ orgId }) => orgId, read),
    (parts) => {
      const endpoints = new Map(parts.flat().map((endpoint) => [endpoint.endpointId, endpoint]))
      return rows.map((row): Row => ({ ...row, ...endpoints.get(row.endpointId) }))
    },
  )
}

/** Rows of failures that one list reads: 10,000 endpoints that fail in each of 48 hours. */
const maxRowsRead = 500_000

/** Ranks endpoints by their failed attempts. Reads an index, and then only the endpoints of the page. */
export const failingEndpoints = (sql: SqlClient.SqlClient) =>
  Effect.fnUntraced(function* ({
    after,
    every,
    limit,
    since,
  }: Parameters<ActivityRepository["Service"]["failing"]>[0]) {
    const next =
      after === undefined
        ? sql``
        : sql`HAVING (-sum(count), endpoint_id) > (${-after.failures}::numeric, ${after.endpointId})`
    const rows = yield* sql`
      SELECT r.endpoint_id AS "endpointId", r.org_id AS "orgId", w.url, w.active, r.failures::float8 AS "failedAttempts",
        w.failing_since AS "failingSince", w.deactivated_at AS "deactivatedAt", w.deactivated_reason AS "deactivatedReason",
        last.last_at AS "lastFailureAt", last.last_status AS "lastStatus", last.last_failure AS "lastFailure"
      FROM (
        SELECT org_id, endpoint_id, sum(count) AS failures FROM (
          SELECT org_id, endpoint_id, count FROM endpoint_failures
          WHERE every = ${every} AND at >= ${date(since)} ORDER BY every, at DESC LIMIT ${maxRowsRead}
        ) AS counted GROUP BY org_id, endpoint_id ${next}
        ORDER BY sum(count) DESC, endpoint_id LIMIT ${limit + 1}
      ) AS r
      CROSS JOIN LATERAL (
        SELECT last_at, last_status, last_failure FROM endpoint_failures f
        WHERE f.org_id = r.org_id AND f.endpoint_id = r.endpoint_id AND f.every = ${every} ORDER BY f.at DESC LIMIT 1
      ) AS last
      LEFT JOIN LATERAL (
        SELECT * FROM webhook_endpoints WHERE id = r.endpoint_id AND org_id = r.org_id OFFSET 0
      ) AS w ON true
      ORDER BY r.failures DESC, r.endpoint_id`.pipe(decode)
    const shown = yield* withEndpoints(sql, rows.slice(0, limit))
    const last = rows.length > limit ? shown.at(-1) : undefined
    return {
      endpoints: shown.map(({ active, url, ...row }) =>
        url === null || active === null ? null : { ...row, active, host: new URL(url).host },
      ),
      next: last === undefined ? null : `${last.failedAttempts}.${last.endpointId}`,
    }
  })
