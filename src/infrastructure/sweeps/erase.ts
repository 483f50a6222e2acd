import { Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { deleteFirst, isAmong, isOfOrg, listedId, texts } from "../database/fragments.ts"
import { eraseDocs } from "../docs/projectDocsSql.ts"
import { sumOfErased } from "../orgs/erasureProgress.ts"
import { subtractStoredBytes } from "../orgs/enforceLimits.ts"
import { type Erased, type ErasedKind, erasedKinds } from "../../domain/orgs/OrgErasure.ts"
import { afterCallbacks, afterOrg } from "../queue/lanes.ts"

/** The position of an erasure: whether the pass has found rows, the step, and the last row of the step. */
const positionForm = /^([+-])(\w+):(.*)$/s

/**
 * Erases the next rows, at most `limit`, in a transaction. A pass goes through all steps. Returns where to continue; or
 * `null` after a pass, with whether the pass found rows.
 */
export const eraseBatch = Effect.fnUntraced(function* (sql: Sql, erasure: Erasure, position: string, limit: number) {
  const steps = erasure.moved !== undefined ? movedSteps : erasure.projectId === null ? orgSteps : projectSteps
  const [, mark = "-", name = "", from = ""] = positionForm.exec(position) ?? []
  const first = Math.max(
    0,
    steps.findIndex(([step]) => step === name),
  )
  let hasFound = mark === "+"
  let rows = 0
  let counts: Partial<Erased> = {}
  /** What a batch has done that ends in a step. */
  const stop = (index: number, after: string) => ({
    rows,
    counts,
    hasFound,
    progress: Math.floor((100 * index) / steps.length),
    position: `${hasFound ? "+" : "-"}${steps[index]![0]}:${after}`,
  })
  for (const [index, [step, run]] of steps.entries()) {
    if (index < first) continue
    let after = index === first ? from : ""
    while (true) {
      if (rows >= limit) return stop(index, after)
      const { last, rows: read } = yield* run(sql, erasure, after, limit - rows)
      rows += read
      counts = sumOfErased(counts, { [kindOf(step)]: read })
      hasFound ||= read > 0
      if (last === null) break
      after = last
      // A step that reads more rows than it erases ends the batch, too.
      if (read === 0) return stop(index, after)
    }
  }
  return { rows, counts, hasFound, progress: 100, position: null }
})

/** What a step erases, as a receipt counts it. */
const kindOf = (step: string): ErasedKind => {
  if (step === "finishedJobs") return "jobs"
  if (step === "pendingDeliveries") return "deliveries"
  return Object.hasOwn(erasedKinds, step) ? (step as ErasedKind) : "others"
}

type Sql = SqlClient.SqlClient

/** What is erased: an org with all that it has, or one project of an org. */
interface Erasure {
  readonly orgId: string
  /** `null`: the whole org. */
  readonly projectId: string | null
  /** The org moved to another database: what it had here as a tenant is erased. */
  readonly moved?: {
    /** Events before this id; those of the platform's outbox are later. */
    readonly events: string
    /** Whether this is the platform's database, which keeps its own rows of the org. */
    readonly isPlatform: boolean
  }
}

/** The rows that a step has read, and the last of them when more may follow. */
interface Removed {
  readonly rows: number
  readonly last: string | null
}

type Step = (sql: Sql, erasure: Erasure, after: string, limit: number) => Effect.Effect<Removed, SqlError.SqlError>
type NamedStep = readonly [name: string, step: Step]

const erased = (ids: ReadonlyArray<string>, limit: number): Removed => ({
  rows: ids.length,
  last: ids.length === limit ? ids.at(-1)! : null,
})

/** Erases the first rows that a condition finds, which needs no `after`. */
const eraseFirst = (sql: Sql, table: string, which: Statement.Fragment, limit: number) =>
  Effect.map(deleteFirst(sql, table, sql`${which} LIMIT ${limit} FOR UPDATE SKIP LOCKED`), (rows): Removed => ({
    rows,
    last: rows === limit ? "" : null,
  }))

/**
 * Locks the next rows of a table in the order of their ids. Skips those that others have locked; the next pass takes
 * them. A range of the index by org and id, which the primary key has not: by that, a plan would read the rows of other
 * orgs.
 */
const lockNext = (sql: Sql, table: string, { orgId }: Erasure, after: string, limit: number) =>
  Effect.map(
    sql<{ id: string }>`
      SELECT id FROM ${sql(table)} WHERE (org_id, id) > (${orgId}, ${after}) AND org_id <= ${orgId}
      ORDER BY org_id, id LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
    (rows) => rows.map(({ id }) => id),
  )

const byId = (sql: Sql, table: string, { orgId }: Erasure, ids: ReadonlyArray<string>) =>
  sql`DELETE FROM ${sql(table)} WHERE org_id = ${orgId} AND id = ANY(${texts(ids)}) AND ${isAmong(sql, "id", ids)}`

/** Erases a table that has an index by org and id. */
const table =
  (
    name: string,
    before?: (sql: Sql, erasure: Erasure, ids: ReadonlyArray<string>) => Effect.Effect<unknown, SqlError.SqlError>,
  ): Step =>
  (sql, erasure, after, limit) =>
    Effect.gen(function* () {
      const ids = yield* lockNext(sql, name, erasure, after, limit)
      if (ids.length === 0) return erased(ids, limit)
      if (before !== undefined) yield* before(sql, erasure, ids)
      yield* byId(sql, name, erasure, ids)
      return erased(ids, limit)
    })

/** Erases a table whose rows of an org have no order, by an index that begins with the org. */
const unordered =
  (name: string): Step =>
  (sql, { orgId }, _, limit) =>
    eraseFirst(sql, name, sql`org_id = ${orgId}`, limit)

/** Erases the counters of keys, which replacements share, and the answers of their operations. */
const eraseOfKeys = Effect.fnUntraced(function* (sql: Sql, { orgId }: Erasure, ids: ReadonlyArray<string>) {
  yield* sql`
    DELETE FROM key_counters WHERE org_id = ${orgId} AND id = ANY(ARRAY(
      SELECT coalesce(counter_id, id) FROM api_keys WHERE ${isOfOrg(sql, orgId)} AND id = ANY(${texts(ids)})))`
  yield* sql`DELETE FROM idempotency_keys WHERE org_id = ${orgId} AND caller = ANY(${texts(ids)})`
})

/** Erases a table of jobs by the index of their states; it has none by org and id. `key` is that of its partitions. */
const jobs =
  (table: "jobs" | "finished_jobs", key: "id" | "end_id"): Step =>
  (sql, { orgId }, after, limit) =>
    Effect.gen(function* () {
      const [status = "", id = ""] = after.split("\n")
      const rows = yield* sql<{ status: string; id: string; key: string }>`
        SELECT status, id, ${sql(key)} AS key FROM ${sql(table)}
        WHERE org_id = ${orgId} AND (status, ${sql.literal(listedId)}) > (${status}, ${id})
        ORDER BY status, ${sql.literal(listedId)} LIMIT ${limit} FOR UPDATE SKIP LOCKED`
      if (rows.length === 0) return { rows: 0, last: null }
      const keys = rows.map((row) => row.key)
      yield* sql`
        DELETE FROM ${sql(table)} WHERE ${isOfOrg(sql, orgId)} AND id = ANY(${texts(rows.map((row) => row.id))})
          AND ${isAmong(sql, key, keys)}`
      const last = rows.at(-1)!
      return { rows: rows.length, last: rows.length === limit ? `${last.status}\n${last.id}` : null }
    })

/** Erases the next pending deliveries of an org, by the primary key. */
export const erasePending = (sql: Sql, orgId: string, limit: number) =>
  eraseFirst(sql, "pending_deliveries", sql`org_id = ${orgId} ORDER BY org_id, lane, delivery_id`, limit)

const pendingDeliveries: Step = (sql, { orgId }, _, limit) => erasePending(sql, orgId, limit)

/** Erases the attempts of an org, by the primary key. */
const deliveryAttempts: Step = (sql, { orgId }, after, limit) =>
  Effect.gen(function* () {
    const rows = yield* sql<{ id: string }>`
      SELECT DISTINCT delivery_id AS id FROM (
        SELECT delivery_id FROM delivery_attempts WHERE org_id = ${orgId} AND delivery_id >= ${after}
        ORDER BY org_id, delivery_id, number LIMIT ${limit}
      ) AS next ORDER BY id`
    const ids = rows.map(({ id }) => id)
    const gone = yield* sql`
      DELETE FROM delivery_attempts
      WHERE org_id = ${orgId} AND delivery_id = ANY(${texts(ids)}) AND ${isAmong(sql, "delivery_id", ids)} RETURNING 1`
    return { rows: gone.length, last: gone.length >= limit ? ids.at(-1)! : null }
  })

/** The failing callbacks of an org: a range of the primary key. */
const failingCallbacks: Step = (sql, { orgId }, _, limit) =>
  eraseFirst(
    sql,
    "failing_callbacks",
    sql`org_id = ${orgId} AND lane > ${orgId + afterOrg} AND lane < ${orgId + afterCallbacks}`,
    limit,
  )

/** The other sweeps of the org. Its erasure is the last row of it; its move ends by itself. */
const otherSweeps: Step = (sql, { orgId }, _, limit) =>
  eraseFirst(
    sql,
    "sweeps",
    sql`org_id = ${orgId} AND kind <> 'move' AND NOT (kind = 'erase' AND project_id IS NULL)`,
    limit,
  )

/**
 * The steps of an org's erasure. Every table with a column `org_id` is here or goes with one that is, but for the audit
 * log, which stays for the administrator, and `org_owners`, which goes last: `test/contract/orgs/everyTable.ts`
 * reads the catalog. First what makes new rows, and what others want: names, then schedules.
 */
const orgSteps: ReadonlyArray<NamedStep> = [
  ["projects", table("projects")],
  ["docs", unordered("project_docs")],
  ["docsPages", unordered("docs_pages")],
  ["docsQuestions", unordered("docs_questions")],
  ["keys", table("api_keys", eraseOfKeys)],
  ["roles", unordered("roles")],
  ["alerts", unordered("alerts")],
  ["keyUsage", unordered("key_usage")],
  ["schedules", table("job_schedules")],
  ["endpoints", table("webhook_endpoints")],
  ["throttles", unordered("endpoint_throttles")],
  ["signingKeys", unordered("org_signing_keys")],
  ["pendingDeliveries", pendingDeliveries],
  ["deliveries", table("deliveries")],
  ["deliveryAttempts", deliveryAttempts],
  ["events", table("events")],
  ["eventKeys", unordered("event_keys")],
  ["jobs", jobs("jobs", "id")],
  ["finishedJobs", jobs("finished_jobs", "end_id")],
  ["jobKeys", unordered("job_keys")],
  ["workflows", unordered("workflows")],
  ["eventTypes", table("event_types")],
  ["deployments", table("deployments")],
  ["callbacks", failingCallbacks],
  ["usage", unordered("org_usage")],
  ["sessions", unordered("sessions")],
  ["keyed", unordered("idempotency_keys")],
  ["moves", unordered("org_moves")],
  ["movedRows", unordered("moved_rows")],
  ["activity", unordered("activity_counts")],
  ["endpointAttempts", unordered("endpoint_attempts")],
  ["sweeps", otherSweeps],
]

/** Erases the events of an org that moved. */
const movedEvents: Step = (sql, erasure, after, limit) =>
  Effect.gen(function* () {
    const ids = yield* lockNext(sql, "events", erasure, after, limit)
    const old = ids.filter((id) => id < erasure.moved!.events)
    if (old.length > 0) yield* byId(sql, "events", erasure, old)
    return erased(old, limit)
  })

const stays = new Set(["usage", "keyed", "sweeps", "audit"])

/** Erases rows of an org that moved, unless the platform keeps them. */
const unlessPlatform = ([name, step]: NamedStep): NamedStep => [
  name,
  (sql, erasure, after, limit) =>
    erasure.moved!.isPlatform && stays.has(name)
      ? Effect.succeed({ rows: 0, last: null })
      : step(sql, erasure, after, limit),
]

/** The steps after the move of an org: first what background work would find. */
const movedSteps: ReadonlyArray<NamedStep> = (
  [
    ["sweeps", otherSweeps],
    ["schedules", table("job_schedules")],
    ["pendingDeliveries", pendingDeliveries],
    ["deliveries", table("deliveries")],
    ["deliveryAttempts", deliveryAttempts],
    ["jobs", jobs("jobs", "id")],
    ["finishedJobs", jobs("finished_jobs", "end_id")],
    ["jobKeys", unordered("job_keys")],
    ["workflows", unordered("workflows")],
    ["eventTypes", table("event_types")],
    ["events", movedEvents],
    ["eventKeys", unordered("event_keys")],
    ["endpoints", table("webhook_endpoints")],
    ["throttles", unordered("endpoint_throttles")],
    ["signingKeys", unordered("org_signing_keys")],
    ["callbacks", failingCallbacks],
    ["keyed", unordered("idempotency_keys")],
    ["audit", table("audit_log")],
    ["usage", unordered("org_usage")],
    ["movedRows", unordered("moved_rows")],
  ] satisfies ReadonlyArray<NamedStep>
).map(unlessPlatform)

/** Erases the next hours of usage of keys; returns how many. A key can have more hours than a batch has rows. */
const eraseUsage = (sql: Sql, { orgId }: Erasure, ids: ReadonlyArray<string>, limit: number) =>
  deleteFirst(sql, "key_usage", sql`org_id = ${orgId} AND key_id = ANY(${texts(ids)}) LIMIT ${limit}`)

/** Erases the keys of a project: they are found among all keys of its org. */
const projectKeys: Step = (sql, { orgId, projectId }, after, limit) =>
  Effect.gen(function* () {
    const keys = yield* sql<{ id: string; isOwn: boolean }>`
      SELECT id, coalesce(project_id = ${projectId}, false) AS "isOwn" FROM api_keys
      WHERE org_id = ${orgId} AND id > ${after} ORDER BY id LIMIT ${limit}`
    const own = keys.filter(({ isOwn }) => isOwn).map(({ id }) => id)
    if (own.length > 0) {
      const used = yield* eraseUsage(sql, { orgId, projectId }, own, limit)
      // The keys stay until all their hours are erased, so that the next batch finds them.
      if (used === limit) return { rows: used, last: after }
      yield* eraseOfKeys(sql, { orgId, projectId }, own)
      yield* byId(sql, "api_keys", { orgId, projectId }, own)
    }
    return { rows: own.length, last: keys.length === limit ? keys.at(-1)!.id : null }
  })

const projectDeployments: Step = (sql, { orgId, projectId }, after, limit) =>
  Effect.map(
    sql<{ id: string }>`
      DELETE FROM deployments WHERE org_id = ${orgId} AND id = ANY(ARRAY(
        SELECT id FROM deployments WHERE project_id = ${projectId} AND id > ${after} ORDER BY id LIMIT ${limit}
      )) RETURNING id`,
    (rows) => erased(rows.map(({ id }) => id).toSorted(), limit),
  )

const projectDocs: Step = (sql, { orgId, projectId }, _, limit) =>
  Effect.gen(function* () {
    const { bytes, rows } = yield* eraseDocs(sql, { orgId, projectId: projectId! }, limit)
    if (bytes > 0) yield* subtractStoredBytes(sql, new Map([[orgId, bytes]]))
    return { rows, last: rows < limit ? null : "" }
  })

/** The steps of a project's erasure. */
const projectSteps: ReadonlyArray<NamedStep> = [
  ["docs", projectDocs],
  ["keys", projectKeys],
  ["deployments", projectDeployments],
]
