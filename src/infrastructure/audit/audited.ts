import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { date } from "../database/fragments.ts"

/**
 * A change together with its entry in the audit log: one statement, so both are made or neither, in one round trip. The
 * entry is kept in the org of the row that the change returns; a change that returns no row leaves none. Gives that row.
 *
 * @param change an INSERT, UPDATE or DELETE of one row that returns its org as "orgId", and what else is wanted of it
 */
export const audited = (sql: SqlClient.SqlClient, entry: AuditEntry, change: Statement.Fragment) => sql`
  WITH changed AS (${change}),
  written AS (
    INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
    SELECT ${entry.id}, "orgId", ${date(entry.at)}, ${entry.actor}, ${entry.action}, ${entry.target},
      ${JSON.stringify(entry.details)}, ${entry.requestId}
    FROM changed
  )
  SELECT * FROM changed`
