import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { date } from "../database/fragments.ts"
import { announce, withEvents } from "../webhooks/announce.ts"

/** The columns of the audit log, in the order in which `audited` and `auditedTogether` insert them. */
export const auditColumns = (sql: SqlClient.SqlClient) =>
  sql.literal("id, org_id, at, actor, action, target, details, request_id")

/**
 * Makes a change, its entry in the audit log and its event in one statement: all or nothing. The entry belongs to the org of
 * the row that the change returns; a change without a row has no entry. Returns that row.
 *
 * @param change an INSERT, UPDATE or DELETE of one row that returns its org as "orgId", and any other columns
 * @param also a change that follows from the row in `changed`
 * @param rows the SELECT of the CTE `rows`, which an INSERT reads: Citus plans an INSERT only without a table in its SELECT
 */
export const audited = (
  sql: SqlClient.SqlClient,
  entry: AuditEntry,
  change: Statement.Fragment,
  also: Statement.Fragment = sql.literal("SELECT 1"),
  rows: Statement.Fragment = sql.literal("SELECT 1"),
) => {
  const write = (event: typeof entry.event) => sql`
  WITH rows AS MATERIALIZED (${rows}),
  changed AS (${change}),
  followed AS (${also}),
  written AS (
    INSERT INTO audit_log (${auditColumns(sql)})
    SELECT ${entry.id}, "orgId", ${date(entry.at)}, ${entry.actor}, ${entry.action}, ${entry.target},
      ${JSON.stringify(entry.details)}, ${entry.requestId}
    FROM changed
  )${announce(sql, event, sql.literal("changed"))}
  SELECT * FROM changed`
  const { event } = entry
  if (event === undefined) return write(event)
  return withEvents(sql, write, event, (rows) => rows.map((row) => ({ event, orgId: row["orgId"] as string })))
}
