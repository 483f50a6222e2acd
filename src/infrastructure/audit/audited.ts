import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { date } from "../database/fragments.ts"
import { announce } from "../webhooks/announce.ts"

/** The columns of the audit log, in the order in which `audited` and `auditedTogether` insert them. */
export const auditColumns = (sql: SqlClient.SqlClient) =>
  sql.literal("id, org_id, at, actor, action, target, details, request_id")

/**
 * Makes a change, its entry in the audit log and its event in one statement: all or nothing. The entry belongs to the org of
 * the row that the change returns; a change without a row has no entry. Returns that row.
 *
 * @param change an INSERT, UPDATE or DELETE of one row that returns its org as "orgId", and any other columns
 * @param also a change that follows from the row in `changed`
 */
export const audited = (
  sql: SqlClient.SqlClient,
  entry: AuditEntry,
  change: Statement.Fragment,
  also: Statement.Fragment = sql.literal("SELECT 1"),
) => sql`
  WITH changed AS (${change}),
  followed AS (${also}),
  written AS (
    INSERT INTO audit_log (${auditColumns(sql)})
    SELECT ${entry.id}, "orgId", ${date(entry.at)}, ${entry.actor}, ${entry.action}, ${entry.target},
      ${JSON.stringify(entry.details)}, ${entry.requestId}
    FROM changed
  )${announce(sql, entry.event, sql.literal("changed"))}
  SELECT * FROM changed`
