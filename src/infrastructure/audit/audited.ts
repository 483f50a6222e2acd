import { DateTime, Effect, Layer, References } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import * as Batches from "../database/Batches.ts"
import { date } from "../database/fragments.ts"
import { inBatch, orAlone, type RunTogether } from "../database/Batches.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { auditAnnotation } from "../telemetry/Telemetry.ts"
import { emit, emitAll, emitted, eventColumns } from "../queue/emitEvents.ts"

/** The columns of the audit log, in the order in which `audited` and `auditedTogether` insert them. */
const auditColumns = (sql: SqlClient.SqlClient) =>
  sql.literal("id, org_id, at, actor, action, target, details, request_id, person")

/** A row that a change returns, with the org of the audit entry. */
export interface Changed {
  readonly orgId: string
}

/** The clients whose entries are logged, for an exporter of logs. */
const logging = new WeakSet<SqlClient.SqlClient>()

/** Logs each entry of the database after its commit, for an exporter of logs; standard output leaves them out. */
export const logAudit = Layer.effectDiscard(Effect.map(SqlClient.SqlClient, (sql) => void logging.add(sql)))

/** Logs written entries after the commit, if entries are logged; also when LOG_LEVEL shows only errors. */
export const auditWritten = (
  sql: SqlClient.SqlClient,
  written: ReadonlyArray<{ readonly entry: AuditEntry; readonly orgId: string }>,
) => {
  if (!logging.has(sql)) return Effect.void
  const lines = written.map(({ entry: { action, actor, at, details, id, person, requestId, target }, orgId }) =>
    Effect.annotateLogs(Effect.logInfo(`Audit: ${action} by ${actor}`), {
      [auditAnnotation]: id,
      "gatehouse.audit.at": DateTime.formatIso(at),
      "gatehouse.audit.action": action,
      "gatehouse.audit.target": target,
      "gatehouse.audit.details": JSON.stringify(details),
      "gatehouse.org.id": orgId,
      "gatehouse.request.id": requestId ?? "",
      "user.id": actor,
      ...(person && { "user.full_name": person.name ?? "", "user.email": person.email ?? "" }),
    }),
  )
  return sql.afterCommit(
    Effect.provideService(Effect.all(lines, { discard: true }), References.MinimumLogLevel, "Info"),
  )
}

/**
 * Makes a change, its entry in the audit log and its event in one statement: all or nothing. The entry belongs to the
 * org of the row that the change returns; a change without a row has no entry. Returns that row.
 *
 * @param change an INSERT, UPDATE or DELETE of one row that returns its org as "orgId", and the other columns of `Row`
 * @param rows the SELECT of the id of the org as the CTE `rows`, which an INSERT reads
 */
export const audited = <Row extends Changed = Changed>(
  sql: SqlClient.SqlClient,
  entry: AuditEntry,
  change: Statement.Fragment,
  rows: Statement.Fragment = sql.literal("SELECT 1"),
): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> => {
  const { event } = entry
  const written = sql<Row>`
    WITH rows AS MATERIALIZED (${rows}),
    changed AS (${change}),
    written AS (
      INSERT INTO audit_log (${auditColumns(sql)})
      SELECT ${entry.id}, "orgId", ${date(entry.at)}::timestamptz, ${entry.actor}, ${entry.action}, ${entry.target},
        ${JSON.stringify(entry.details)}, ${entry.requestId}, ${entry.person && JSON.stringify(entry.person)}
      FROM changed
    )${emit(sql, event, sql.literal("changed"))}
    SELECT * FROM changed`
  return Effect.tap(written, (rows) => {
    if (rows.length === 0) return Effect.void
    const logged = auditWritten(
      sql,
      rows.map(({ orgId }) => ({ entry, orgId })),
    )
    return event === undefined ? logged : Effect.andThen(emitted(sql), logged)
  })
}

/** Changes of one statement: each may have a name of 1 MiB. */
const maxChangesPerBatch = 64

/** A row that one of several changes returns. */
interface ChangedTogether extends Changed {
  /** The id of the change that returned the row. */
  readonly id: string
}

/**
 * `audited` in batches: changes of one turn of the event loop share a statement and a commit. A change inside a
 * transaction runs alone in that transaction. When a statement dies, or one of its orgs moves, each of its changes runs
 * again alone, so that no change fails because of another caller.
 *
 * @param columns the fields of a change, with its id, as column definitions of `json_to_recordset`
 * @param insert an INSERT … SELECT … FROM asked that returns id, the org as "orgId", and any other columns
 * @param also a change that follows from the rows in `changed`
 */
export const auditedTogether = <Asked extends { readonly id: string }, Row extends ChangedTogether = ChangedTogether>(
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
    return sql<Row>`
      WITH asked AS (SELECT * FROM json_to_recordset(${rows}) AS asked (${sql.literal(columns)}, entry json, event json)),
      changed AS (${insert}),
      followed AS (${also}),
      written AS (
        INSERT INTO audit_log (${auditColumns(sql)})
        SELECT kept.id, changed."orgId", at, actor, action, target, details, "requestId", person
        FROM changed JOIN asked USING (id), json_to_record(entry) AS kept
          (id text, at timestamptz, actor text, action text, target text, details text, "requestId" text, person text)
      ), service_event AS (
        SELECT event.id, changed."orgId" AS org_id, type, body, string_to_array(topics, ' ') AS topics, subject, at
        FROM changed JOIN asked USING (id), json_to_record(event)
          AS event (id text, type text, body text, topics text, subject text, at timestamptz)
        WHERE asked.event IS NOT NULL
      ), ${emitAll(sql)}
      SELECT * FROM changed`.pipe(
      Effect.tap(({ length }) =>
        length > 0 && all.some(({ entry }) => entry.event !== undefined) ? emitted(sql) : Effect.void,
      ),
      Effect.map((rows) => {
        const ofId = new Map(rows.map((row) => [row.id, row]))
        return new Map(
          all.flatMap((wanted) => {
            const row = ofId.get(wanted.asked.id)
            return row === undefined ? [] : [[wanted, row] as const]
          }),
        )
      }),
      Effect.tap((written) =>
        auditWritten(
          sql,
          [...written].map(([{ entry }, { orgId }]) => ({ entry, orgId })),
        ),
      ),
      orUnavailable,
    )
  }

  return Effect.map(
    Batches.make(orAlone(run), maxChangesPerBatch),
    (batch) => (asked: Asked, entry: AuditEntry) => inBatch(sql, run, batch, { asked, entry }),
  )
}
