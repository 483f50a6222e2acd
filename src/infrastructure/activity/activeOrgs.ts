import { Effect, Schema, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import { type Measure, measureNames, measures } from "../../domain/activity/ActiveOrg.ts"
import type { ActivityRepository } from "../../domain/activity/ActivityRepository.ts"
import { texts } from "../database/arrays.ts"
import { date, decodeRows } from "../database/fragments.ts"

const decode = decodeRows(
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
const maxRowsRead = 500_000

const sumOf = (sql: SqlClient.SqlClient, measure: Measure) => {
  const { kind, outcomes } = measures[measure]
  return sql`
    coalesce(sum(count) FILTER (WHERE kind = ${kind} AND outcome = ANY(${texts(outcomes)})), 0)::float8 AS ${sql(measure)}`
}

/**
 * Ranks orgs by what they did. Reads the counts of one kind by an index, and then all counts of the orgs of the page. Counts
 * and orgs are tables of the platform, so this is one statement on a distributed database, too.
 */
export const activeOrgs = (sql: SqlClient.SqlClient) =>
  Effect.fnUntraced(function* ({
    after,
    by,
    every,
    limit,
    since,
  }: Parameters<ActivityRepository["Service"]["activeOrgs"]>[0]) {
    const { kind, outcomes } = measures[by]
    const next =
      after === undefined ? sql`` : sql`HAVING (-sum(count), org_id) > (${-after.count}::numeric, ${after.orgId})`
    // The list of intervals and the org without an id are those of the partial index.
    const found = yield* sql`
      SELECT r.org_id AS "orgId", o.name, r.total::float8 AS rank, done.*
      FROM (
        SELECT org_id, sum(count) AS total FROM (
          SELECT org_id, outcome, count FROM activity_counts
          WHERE every IN ('hour', 'day') AND org_id <> '' AND every = ${every} AND kind = ${kind} AND at >= ${date(since)}
          ORDER BY every, kind, at DESC LIMIT ${maxRowsRead}
        ) AS counted WHERE outcome = ANY(${texts(outcomes)}) GROUP BY org_id ${next}
        ORDER BY sum(count) DESC, org_id LIMIT ${limit + 1}
      ) AS r
      CROSS JOIN LATERAL (
        SELECT ${sql.csv(measureNames.map((measure) => sumOf(sql, measure)))} FROM activity_counts
        WHERE org_id = r.org_id AND every = ${every} AND at >= ${date(since)}
      ) AS done
      LEFT JOIN orgs o ON o.id = r.org_id
      ORDER BY r.total DESC, r.org_id`.pipe(decode)
    const last = found.length > limit ? found[limit - 1] : undefined
    return {
      orgs: found.slice(0, limit).map(Struct.omit(["rank"])),
      next: last === undefined ? null : `${last.rank}.${last.orgId}`,
    }
  })
