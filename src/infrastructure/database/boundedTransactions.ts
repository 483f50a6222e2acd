import type { PgConnection } from "@effect/sql-pg"
import { Effect, Exit } from "effect"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"

/**
 * Milliseconds that a statement may take that begins or ends a transaction: the deadline of a request, because its
 * interruption does not reach such a statement. A connection that does not answer its cancellation either is closed.
 */
const limitMillis = 4_000

/** A transaction that did not begin, or of which nobody knows whether it ended. */
const lost = (message: string) => {
  const cause = new Error(message)
  return new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause, message, operation: "transaction" }),
  })
}

/** Runs a statement in a fiber of its own, which no interruption reaches but that of the limit. */
const control = (connection: SqlConnection.Connection, statement: string, isPrepared = true) =>
  Effect.callback<unknown, SqlError.SqlError>((resume) => {
    const running = Effect.runFork(
      isPrepared ? connection.executeRaw(statement, []) : connection.executeUnprepared(statement, [], undefined),
    )
    const timer = setTimeout(() => running.interruptUnsafe(), limitMillis)
    running.addObserver((exit) => {
      clearTimeout(timer)
      resume(Exit.hasInterrupts(exit) ? Effect.fail(lost(`${statement} was not answered`)) : exit)
    })
  })

/** PostgreSQL answers `ROLLBACK` to the `COMMIT` of a transaction in which a statement failed. */
const commit = (connection: SqlConnection.Connection) =>
  Effect.flatMap(control(connection, "COMMIT"), (result) =>
    (result as PgConnection.Result).command === "ROLLBACK"
      ? Effect.fail(lost("COMMIT rolled back a transaction that a statement had ended"))
      : Effect.void,
  )

/**
 * Replaces the transactions of a client. Those of the driver wait for the answer to `BEGIN`, `COMMIT` and `ROLLBACK`
 * without a limit, and hold their connection meanwhile: for many minutes if the network has fallen silent.
 */
export const withBoundedTransactions = <A extends SqlClient.SqlClient>(sql: A): A => {
  const rollback = (connection: SqlConnection.Connection) => Effect.asVoid(control(connection, "ROLLBACK"))
  return Object.assign(sql, {
    withTransaction: SqlClient.makeWithTransaction({
      transactionService: sql.transactionService,
      spanAttributes: [["db.system.name", "postgresql"]],
      acquireConnection: (restore) => restore(sql.reserve),
      begin: (connection, statement) =>
        // What was canceled may have begun nevertheless.
        Effect.onError(control(connection, statement ?? "BEGIN", statement === undefined), () =>
          Effect.ignore(rollback(connection)),
        ),
      savepoint: (connection, id) => control(connection, `SAVEPOINT effect_sql_${id}`),
      releaseSavepoint: (connection, id) => control(connection, `RELEASE SAVEPOINT effect_sql_${id}`),
      commit,
      rollback,
      rollbackSavepoint: (connection, id) => control(connection, `ROLLBACK TO SAVEPOINT effect_sql_${id}`),
    }),
  })
}
