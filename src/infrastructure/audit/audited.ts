import { Context, Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { texts } from "../database/arrays.ts"
import { Bucket, bucketsOf } from "../database/buckets.ts"
import { date } from "../database/fragments.ts"
import type { Part } from "../database/parts.ts"
import { runParts } from "../database/runParts.ts"
import { announce, withEvents, writeEvents } from "../webhooks/announce.ts"

const columnsOfEntry = "id, org_id, at, actor, action, target, details, request_id"

/** The columns of the audit log, in the order in which `audited` and `auditedTogether` insert them. */
export const auditColumns = (sql: SqlClient.SqlClient) => sql.literal(columnsOfEntry)

/** A row that a change returns: its org as "orgId", and any other columns. */
type Changed = Readonly<Record<string, unknown>>

/** SQL: the audit entry of each row of the part `changed`. */
const entryOf = (sql: SqlClient.SqlClient, entry: AuditEntry) => sql`
  SELECT ${entry.id}, "orgId", ${date(entry.at)}::timestamptz, ${entry.actor}, ${entry.action}, ${entry.target},
    ${JSON.stringify(entry.details)}, ${entry.requestId}
  FROM changed`

/**
 * `audited` in a bucket: the change, its entry and its event are statements of one transaction, because Citus sends the rows
 * between the parts of one statement that inserts to every node. `also` is for changes of the platform.
 */
const inSteps = (
  sql: SqlClient.SqlClient,
  entry: AuditEntry,
  change: Statement.Fragment,
  rows: Statement.Fragment | undefined,
): Effect.Effect<ReadonlyArray<Changed>, SqlError.SqlError> =>
  Effect.gen(function* () {
    const given = rows === undefined ? [] : yield* sql<{ id: string }>`${rows}`
    const read = sql`WITH rows AS (SELECT * FROM unnest(${texts(given.map(({ id }) => id))}) AS rows (id))`
    const changed = yield* sql<Changed>`${rows === undefined ? sql.literal("") : read} ${change}`
    const orgs = changed.map((row) => row["orgId"] as string)
    if (orgs.length === 0) return changed
    const parts: ReadonlyArray<Part> = [
      { name: "changed", rows: sql`SELECT * FROM unnest(${texts(orgs)}) AS changed ("orgId")` },
      { name: "written", into: "audit_log", columns: columnsOfEntry, rows: entryOf(sql, entry) },
    ]
    yield* runParts(sql, parts, sql`SELECT 1`)
    const { event } = entry
    if (event !== undefined)
      yield* writeEvents(
        sql,
        orgs.map((orgId) => ({ event, orgId })),
      )
    return changed
  }).pipe(sql.withTransaction)

/**
 * Makes a change, its entry in the audit log and its event in one statement: all or nothing. The entry belongs to the org of
 * the row that the change returns; a change without a row has no entry. Returns that row.
 *
 * @param change an INSERT, UPDATE or DELETE of one row that returns its org as "orgId", and any other columns
 * @param also a change that follows from the row in `changed`
 * @param rows the SELECT of the id of the org as the CTE `rows`, which an INSERT reads
 */
export const audited = (
  sql: SqlClient.SqlClient,
  entry: AuditEntry,
  change: Statement.Fragment,
  also: Statement.Fragment = sql.literal("SELECT 1"),
  rows?: Statement.Fragment,
): Effect.Effect<ReadonlyArray<Changed>, SqlError.SqlError> => {
  const write = (event: typeof entry.event) => sql<Changed>`
  WITH rows AS MATERIALIZED (${rows ?? sql.literal("SELECT 1")}),
  changed AS (${change}),
  followed AS (${also}),
  written AS (INSERT INTO audit_log (${auditColumns(sql)}) ${entryOf(sql, entry)})${announce(sql, event, sql.literal("changed"))}
  SELECT * FROM changed`
  const { event } = entry
  const whole =
    event === undefined
      ? write(event)
      : withEvents(sql, write, event, (made) => made.map((row) => ({ event, orgId: row["orgId"] as string })))
  if (bucketsOf(sql) === undefined) return whole
  return Effect.withFiber(({ context }) =>
    Context.get(context, Bucket) === undefined ? whole : inSteps(sql, entry, change, rows),
  )
}
