import { Clock, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { DefaultLimits, startCounting } from "../../domain/orgs/OrgLimits.ts"
import { PendingLimit } from "../../domain/webhooks/PendingLimit.ts"
import { logged } from "../background.ts"
import { idAt } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { countedRows, type CountedRows, countRows, limitOf } from "./orgCounts.ts"
import { type Counted, type CountedLimit, OrgUsage } from "./OrgUsage.ts"
import { writeStoredBytes, writeUsage } from "./storedBytes.ts"

const bounded = orUnavailableWithin("sweep")

/**
 * Every five seconds: writes and counts the usage of orgs, and enforces the limit of pending deliveries. Every minute:
 * measures the bytes of orgs that have changed.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* startCounting
    const refresh = logged("Usage of orgs is not counted", yield* refreshUsage)
    const { enforce } = yield* PendingLimit
    yield* Effect.addFinalizer(() => refresh)
    const measure = logged("The bytes of orgs are not measured", yield* measureBytes)
    yield* Effect.forkScoped(Effect.repeat(measure, Schedule.jittered(Schedule.spaced("1 minute"))))
    yield* Effect.andThen(refresh, logged("Pending deliveries are not counted", enforce)).pipe(
      Effect.repeat(Schedule.spaced("5 seconds")),
      Effect.forkScoped,
    )
  }),
).pipe(Layer.provide(OrgUsage.layer))

/**
 * Writes the bytes that this replica has stored, and counts again the rows whose counts were read since the last
 * call.
 */
export const refreshUsage = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const defaults = yield* DefaultLimits
  const isRows = (name: CountedLimit): name is CountedRows => name in countedRows

  const recount = Effect.fnUntraced(function* (known: Counted, name: CountedRows) {
    const { orgId } = known
    const [org] = yield* bounded(sql<{ limit: number }>`
      SELECT ${sql.literal(limitOf(name, defaults[name]))}::float8 AS "limit" FROM orgs org WHERE id = ${orgId}`)
    if (org === undefined || usage.isFresh(known, org.limit)) return
    const store = usage.counting(name, orgId)
    store(yield* countRows(sql, name, orgId, org.limit))
  })

  return Effect.gen(function* () {
    yield* writeStoredBytes(sql, usage)
    for (const known of usage.takeUsed()) {
      const { name } = known
      if (isRows(name)) yield* recount(known, name)
    }
  })
})

/**
 * The tables whose bytes are measured: an org has few rows in them, or they come one by one. The bytes of jobs,
 * schedules, events, deliveries, attempts and documentation are counted as they change. Each table has an index by org
 * and id.
 */
export const measuredTables = [
  "projects",
  "api_keys",
  "webhook_endpoints",
  "alerts",
  "event_types",
  "deployments",
  "audit_log",
] as const
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
/** How long a transaction may take until its rows are visible. Each look also goes back so far. */
const lookBackMillis = 300_000

/** Measures the rows of a table that an org has. */
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
const measureOrg = (sql: SqlClient.SqlClient, orgId: string) =>
  Effect.map(
    Effect.forEach(measuredTables, (table) => measureTable(sql, table, orgId)),
    (sizes) => sizes.reduce((sum, bytes) => sum + bytes, 0),
  )

/** The orgs that have changed since a time. */
const changedSince = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, millis: number) {
  const found = new Set<string>()
  const read = (table: string) =>
    bounded(sql<{ id: string }>`
      SELECT DISTINCT org_id AS id FROM (
        SELECT org_id FROM ${sql(table)} WHERE id > ${idAt(millis)} ORDER BY id DESC LIMIT ${maxChanges}) AS changed`)
  for (const table of changes) for (const { id } of yield* read(table)) found.add(id)
  return found
})

/** Measures the orgs that have changed since the last call, and writes the bytes. */
export const measureBytes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  let since = (yield* Clock.currentTimeMillis) - lookBackMillis
  /** Orgs to measure. */
  const waiting = new Set<string>()

  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    for (const orgId of yield* changedSince(sql, since)) waiting.add(orgId)
    since = now - lookBackMillis
    const orgs = [...waiting].slice(0, maxOrgs)
    const measured = yield* Effect.forEach(orgs, (orgId) =>
      Effect.map(measureOrg(sql, orgId), (bytes) => [orgId, bytes] as const),
    )
    if (orgs.length > 0) yield* bounded(writeUsage(sql, "measured_bytes", measured))
    for (const orgId of orgs) waiting.delete(orgId)
  })
})
