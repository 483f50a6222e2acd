import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import * as Batches from "../database/Batches.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { inBatch, orAlone, type RunTogether } from "../database/changeBatches.ts"
import { auditColumns } from "./audited.ts"
import { announceAll, eventColumns, withEvents } from "../webhooks/announce.ts"

/** Changes of one statement: each may have a name of 1 MiB. */
const maxChangesPerBatch = 64

/** A row that a change returns. */
interface Changed {
  /** The id of the change that returned the row. */
  readonly id: string
  /** The org of the audit entry. */
  readonly orgId: string
}

/**
 * `audited` in batches: changes of one turn of the event loop share a statement and a commit. A change inside a transaction
 * runs alone in that transaction. When a statement fails, each of its changes runs again alone, so that no change fails
 * because of another caller.
 *
 * @param columns the fields of a change, with its id, as column definitions of `json_to_recordset`
 * @param insert an INSERT … SELECT … FROM asked that returns id, the org as "orgId", and any other columns
 * @param also a change that follows from the rows in `changed`
 */
export const auditedTogether = <Asked extends { readonly id: string }, Row extends Changed = Changed>(
  sql: SqlClient.SqlClient,
  columns: string,
  insert: Statement.Fragment,
  also: Statement.Fragment = sql.literal("SELECT 1"),
) => {
  interface Wanted {
    readonly asked: Asked
    readonly entry: AuditEntry
  }

  const run: RunTogether<Wanted, Row> = (all) => {
    const rows = JSON.stringify(
      all.map(({ asked, entry: { event, ...entry } }) => ({ ...asked, entry, event: event && eventColumns(event) })),
    )
    const announcement = sql`, service_event AS (
        SELECT event.id, changed."orgId" AS org_id, type, body, string_to_array(topics, ' ') AS topics, subject, at
        FROM changed JOIN asked USING (id), json_to_record(event)
          AS event (id text, type text, body text, topics text, subject text, at timestamptz)
        WHERE asked.event IS NOT NULL
      ), ${announceAll(sql)}`
    const write = (events: typeof announcement | undefined) => sql<Row>`
      WITH asked AS (SELECT * FROM json_to_recordset(${rows}) AS asked (${sql.literal(columns)}, entry json, event json)),
      changed AS (${insert}),
      followed AS (${also}),
      written AS (
        INSERT INTO audit_log (${auditColumns(sql)})
        SELECT kept.id, changed."orgId", at, actor, action, target, details, "requestId"
        FROM changed JOIN asked USING (id), json_to_record(entry)
          AS kept (id text, at timestamptz, actor text, action text, target text, details text, "requestId" text)
      )${events ?? sql.literal("")}
      SELECT * FROM changed`
    const eventsOf = new Map(all.map(({ asked, entry }) => [asked.id, entry.event]))
    return withEvents(sql, write, announcement, (rows) =>
      rows.flatMap(({ id, orgId }) => {
        const event = eventsOf.get(id)
        return event === undefined ? [] : [{ event, orgId }]
      }),
    ).pipe(
      orUnavailable,
      Effect.map((rows) => {
        const ofId = new Map(rows.map((row) => [row.id, row]))
        return new Map(
          all.flatMap((wanted) => {
            const row = ofId.get(wanted.asked.id)
            return row === undefined ? [] : [[wanted, row] as const]
          }),
        )
      }),
    )
  }

  return Effect.map(
    Batches.make(orAlone(run), maxChangesPerBatch),
    (batch) => (asked: Asked, entry: AuditEntry) => inBatch(sql, run, batch, { asked, entry }),
  )
}
