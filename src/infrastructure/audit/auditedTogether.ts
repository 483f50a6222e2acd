import { Effect, Exit, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import * as Batches from "../database/Batches.ts"
import type { Unavailable } from "../../domain/Errors.ts"
import { answerOrUnavailable, orUnavailable } from "../database/orUnavailable.ts"

/** Changes of one statement: each may have a name of 1 MiB. */
const maxBatchSize = 64

/** A row that a change returns. */
interface Changed {
  /** The id of the change that returned the row. */
  readonly id: string
  /** The org of the audit entry. */
  readonly orgId: string
}

/** The outcome of a change: the row that it returned, if any. */
type Outcome<Row> = Exit.Exit<Row | undefined, Unavailable>

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

  const runBatch = (all: ReadonlyArray<Wanted>) => {
    const rows = JSON.stringify(all.map(({ asked, entry }) => ({ ...asked, entry })))
    return sql<Row>`
      WITH asked AS (SELECT * FROM json_to_recordset(${rows}) AS asked (${sql.literal(columns)}, entry json)),
      changed AS (${insert}),
      followed AS (${also}),
      written AS (
        INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
        SELECT kept.id, changed."orgId", at, actor, action, target, details, "requestId"
        FROM changed JOIN asked USING (id), json_to_record(entry)
          AS kept (id text, at timestamptz, actor text, action text, target text, details text, "requestId" text)
      )
      SELECT * FROM changed`.pipe(
      orUnavailable,
      Effect.map((rows) => new Map(rows.map((row) => [row.id, row]))),
      Effect.exit,
    )
  }

  const outcomeOf = (made: Effect.Success<ReturnType<typeof runBatch>>, { asked }: Wanted): Outcome<Row> =>
    Exit.map(made, (rows) => rows.get(asked.id))

  const alone = (wanted: Wanted) => Effect.map(runBatch([wanted]), (made) => outcomeOf(made, wanted))

  const together = (all: ReadonlyArray<Wanted>) =>
    Effect.flatMap(runBatch(all), (made) =>
      all.length > 1 && Exit.hasDies(made)
        ? Effect.forEach(all, alone)
        : Effect.succeed(all.map((wanted) => outcomeOf(made, wanted))),
    ).pipe(Effect.map((outcomes) => new Map(all.map((wanted, at) => [wanted, outcomes[at]!]))))

  return Effect.map(
    Batches.make(together, maxBatchSize),
    (changeTogether) => (asked: Asked, entry: AuditEntry) =>
      Effect.flatMap(Effect.serviceOption(sql.transactionService), (transaction) => {
        const wanted = { asked, entry }
        if (Option.isSome(transaction)) return Effect.flatten(alone(wanted))
        return answerOrUnavailable<Row | undefined, Unavailable>((done) =>
          changeTogether(wanted, (found) => done(Effect.flatMap(found, (outcome) => outcome!))),
        )
      }),
  )
}
