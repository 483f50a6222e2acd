import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { shardsOf, eachShard, inOrg } from "../database/shards.ts"
import { idAt } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { writeUsage } from "./storedBytes.ts"

/**
 * The tables whose bytes are measured: an org has few rows in them, or they come one by one. The bytes of jobs,
 * schedules, events, deliveries, attempts and documentation are counted as they change. Each table has an index by org
 * and id.
 */
export const measuredTables = ["projects", "api_keys", "webhook_endpoints", "deployments", "audit_log"] as const
/** The tables in which a new row says that its org has changed. */
const changes = ["audit_log", "deployments"] as const

/** What a row takes in indexes, in bytes. */
const indexBytes = 300
/** Rows that one statement measures. */
const batchSize = 5_000
/** Changed orgs that are measured at a time; the others are the first of the next time. */
const maxOrgs = 500
/** Changes that are looked at. */
const maxChanges = 20_000
/** How far back the first look goes, and how long a transaction may take until its rows are seen. */
const overlapMillis = 300_000

const bounded = orUnavailableWithin("sweep")

/** Measures the rows of a table that an org has, where they are. */
const measureTable = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, table: string, orgId: string) {
  let [total, after, more] = [0, "", true]
  while (more) {
    const [batch] = yield* bounded(sql<{ rows: number; bytes: number; last: string | null }>`
      SELECT count(*)::int AS rows, coalesce(sum(bytes), 0)::float8 AS bytes, max(id) AS last FROM (
        SELECT id, pg_column_size(t.*) AS bytes FROM ${sql(table)} t WHERE org_id = ${orgId} AND id > ${after}
        ORDER BY id LIMIT ${batchSize}
      ) AS measured`)
    const { bytes, last, rows } = batch!
    total += bytes + rows * indexBytes
    more = rows === batchSize
    after = last ?? ""
  }
  return total
})

/** Measures what an org has in all of the tables. */
const measureOrg = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string) {
  const here = Effect.map(
    Effect.forEach(measuredTables, (table) => measureTable(sql, table, orgId)),
    (sizes) => sizes.reduce((sum, bytes) => sum + bytes, 0),
  )
  return shardsOf(sql) === undefined ? yield* here : (yield* here) + (yield* inOrg(sql, orgId)(here))
})

/** The orgs that have changed since a time. */
const changedSince = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, millis: number) {
  const found = new Set<string>()
  const read = (table: string) =>
    bounded(sql<{ id: string }>`
      SELECT DISTINCT org_id AS id FROM (
        SELECT org_id FROM ${sql(table)} WHERE id > ${idAt(millis)} ORDER BY id DESC LIMIT ${maxChanges}) AS changed`)
  for (const table of changes) {
    const here = Effect.map(read(table), (rows) => rows.map(({ id }) => id))
    const parts = shardsOf(sql) === undefined ? [yield* here] : [yield* here, ...(yield* eachShard(sql, here))]
    for (const id of parts.flat()) found.add(id)
  }
  return found
})

/** Measures the orgs that have changed since the last call, and writes the bytes. */
export const measure = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  let since = (yield* Clock.currentTimeMillis) - overlapMillis
  /** Orgs to measure. */
  const waiting = new Set<string>()

  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    for (const orgId of yield* changedSince(sql, since)) waiting.add(orgId)
    since = now - overlapMillis
    const orgs = [...waiting].slice(0, maxOrgs)
    const measured = yield* Effect.forEach(orgs, (orgId) =>
      Effect.map(measureOrg(sql, orgId), (bytes) => [orgId, bytes] as const),
    )
    if (orgs.length > 0) yield* bounded(writeUsage(sql, "measured_bytes", measured))
    for (const orgId of orgs) waiting.delete(orgId)
  })
})
