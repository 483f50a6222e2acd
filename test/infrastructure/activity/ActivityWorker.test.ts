import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"

/** What has intervals, how long they are, and how many days each is kept, when RETENTION_DAYS is 40. */
const kept = [
  ["activity_counts", "minute", 2],
  ["activity_counts", "hour", 40],
  ["activity_counts", "day", 40],
  ["endpoint_attempts", "hour", 2],
  ["endpoint_attempts", "day", 40],
] as const

const columns = {
  activity_counts: ["org_id, every, at, kind, outcome, count", "'request', '', 1"],
  endpoint_attempts: [
    "org_id, every, at, endpoint_id, cause, bucket, count, last_at, last_status, last_failure",
    "'e', '', 1, 1, now(), 200, NULL",
  ],
} as const

/** A database that has an interval of a day before and one of a day after the end of each. */
const environment = Effect.gen(function* () {
  const environment = yield* onPostgres({ RETENTION_DAYS: "40" })
  const sql = yield* adminClient(environment["DATABASE_URL"]!)
  for (const [table, every, days] of kept) {
    const [names, values] = columns[table]
    yield* sql.unsafe(`
      INSERT INTO ${table} (${names})
      SELECT age || ' days', '${every}', now() - age * interval '1 day', ${values}
      FROM unnest(ARRAY[${days - 1}, ${days + 1}]) AS age`)
  }
  return environment
})

layer(TestServer.layer(environment), { excludeTestServices: true })("activity", (it) => {
  // Seen failing without the removal of the hours of endpoints.
  it.effect("intervals of each length are removed at their age, and not before", function* () {
    const { sql } = yield* TestServer
    const left = Effect.map(
      sql<{ row: string }>`
        SELECT 'activity_counts ' || every || ' ' || org_id AS row FROM activity_counts WHERE org_id LIKE '% days'
        UNION ALL
        SELECT 'endpoint_attempts ' || every || ' ' || org_id FROM endpoint_attempts WHERE org_id LIKE '% days'`,
      (rows) => rows.map(({ row }) => row).toSorted(),
    )
    const young = kept.map(([table, every, days]) => `${table} ${every} ${days - 1} days`).toSorted()
    expect(yield* until("the removal of what is old", left, (rows) => rows.length <= young.length)).toEqual(young)
  })
})
