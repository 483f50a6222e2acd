import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { date } from "../database/fragments.ts"

/**
 * Makes a change and its entry in the audit log in one statement: both or neither. The entry belongs to the org of the row
 * that the change returns; a change without a row has no entry. Returns that row.
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
    INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
    SELECT ${entry.id}, "orgId", ${date(entry.at)}, ${entry.actor}, ${entry.action}, ${entry.target},
      ${JSON.stringify(entry.details)}, ${entry.requestId}
    FROM changed
  )
  SELECT * FROM changed`
