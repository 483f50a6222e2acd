import { Clock, Effect, Exit, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { startCounting } from "../../domain/orgs/OrgLimits.ts"
import { PendingLimit } from "../../domain/webhooks/PendingLimit.ts"
import { logged } from "../background.ts"
import { idAt } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { correct, writeUsage } from "./enforceLimits.ts"
import { OrgUsage } from "./OrgUsage.ts"

const bounded = orUnavailableWithin("sweep")

/**
 * Every five seconds: writes what this replica has added to the usage of orgs, and enforces the limit of pending
 * deliveries. Every minute: measures the bytes of orgs that have changed.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* startCounting
    const refresh = logged("Usage of orgs is not written", yield* refreshUsage)
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

/** Writes what this replica has added. */
export const refreshUsage = Effect.zipWith(SqlClient.SqlClient, OrgUsage, writeUsage)

/**
 * The tables whose bytes are measured, each with the other column of an index by org: an org has few rows in them, or
 * they come one by one. What is created or changed counts before. The bytes of jobs, schedules, events, deliveries,
 * attempts and pages of documentation are never measured.
 */
export const measuredTables = {
  projects: "id",
  api_keys: "id",
  roles: "name",
  project_docs: "project_id",
  webhook_endpoints: "id",
  workflows: "workflow",
  alerts: "id",
  event_types: "id",
  deployments: "id",
  audit_log: "id",
}
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

/** Measures the orgs that have changed since the last call, and writes the bytes. */
export const measureBytes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  let since = (yield* Clock.currentTimeMillis) - lookBackMillis
  /** Orgs to measure. */
  const waiting = new Set<string>()

  /** Measures the rows of a table that an org has. */
  const measureTable = Effect.fnUntraced(function* (table: string, column: string, orgId: string) {
    let [total, after, more] = [0, "", true]
    while (more) {
      const [batch] = yield* bounded(sql<{ rows: number; bytes: number; last: string | null }>`
        SELECT count(*)::int AS rows, coalesce(sum(bytes), 0)::float8 AS bytes, max(id) AS last FROM (
          SELECT ${sql(column)} AS id, pg_column_size(t.*) AS bytes FROM ${sql(table)} t
          WHERE org_id = ${orgId} AND ${sql(column)} > ${after} ORDER BY ${sql(column)} LIMIT ${batchSize}
        ) AS measured`)
      const { bytes, last, rows } = batch!
      total += bytes + rows * indexBytes
      more = rows === batchSize
      after = last ?? ""
    }
    return total
  })

  /** Measures what an org has in all of the tables. */
  const measureOrg = (orgId: string) =>
    Effect.suspend(() => {
      const claimed = usage.claim(orgId, ["measured_bytes"])
      const measure = Effect.gen(function* () {
        const [written] = yield* bounded(sql<{ bytes: number }>`
          SELECT measured_bytes::float8 AS bytes FROM org_usage WHERE org_id = ${orgId}`)
        let bytes = 0
        for (const [table, column] of Object.entries(measuredTables)) {
          bytes += yield* measureTable(table, column, orgId)
        }
        yield* bounded(correct(sql, "measured_bytes", orgId, written?.bytes ?? 0, bytes))
      })
      return Effect.onExit(measure, (exit) =>
        Effect.sync(() => usage.settle(claimed, Exit.isSuccess(exit) ? {} : claimed.amounts)),
      )
    })

  /** The orgs that have changed since a time. */
  const changedSince = Effect.fnUntraced(function* (millis: number) {
    const found = new Set<string>()
    const read = (table: string) =>
      bounded(sql<{ id: string }>`
        SELECT DISTINCT org_id AS id FROM (
          SELECT org_id FROM ${sql(table)} WHERE id > ${idAt(millis)} ORDER BY id DESC
            LIMIT ${maxChanges}) AS changed`)
    for (const table of changes) for (const { id } of yield* read(table)) found.add(id)
    return found
  })

  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    for (const orgId of yield* changedSince(since)) waiting.add(orgId)
    since = now - lookBackMillis
    for (const orgId of [...waiting].slice(0, maxOrgs)) {
      yield* measureOrg(orgId)
      waiting.delete(orgId)
    }
  })
})
