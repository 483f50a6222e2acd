import type { PgConnection } from "@effect/sql-pg"
import { Context, Effect, Exit } from "effect"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import { deadlines } from "./deadlines.ts"

/** The deadline of a `COMMIT` in milliseconds. That of a drop removes the files of the tables before it is answered. */
export const CommitMillis = Context.Reference<number>("gatehouse/infrastructure/boundedTransactions/CommitMillis", {
  defaultValue: () => deadlines.request,
})

/** The error of a transaction that did not begin, or whose outcome is unknown. */
const lost = (message: string) => {
  const cause = new Error(message)
  return new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause, message, operation: "transaction" }),
  })
}

/**
 * Runs a statement in a fiber of its own. Only its deadline interrupts it: that of a request, because interrupting the
 * request does not reach it. A connection that does not respond to the cancellation either is closed.
 */
const control = (
  connection: SqlConnection.Connection,
  statement: string,
  { isPrepared = true, millis = deadlines.request }: { readonly isPrepared?: boolean; readonly millis?: number } = {},
) =>
  Effect.callback<unknown, SqlError.SqlError>((resume) => {
    const running = Effect.runFork(
      isPrepared ? connection.executeRaw(statement, []) : connection.executeUnprepared(statement, [], undefined),
    )
    const timer = setTimeout(() => running.interruptUnsafe(), millis)
    running.addObserver((exit) => {
      clearTimeout(timer)
      resume(Exit.hasInterrupts(exit) ? Effect.fail(lost(`${statement} was not answered`)) : exit)
    })
  })

/** PostgreSQL answers `ROLLBACK` to the `COMMIT` of a transaction in which a statement failed. */
const commit = (connection: SqlConnection.Connection) =>
  Effect.gen(function* () {
    const result = yield* control(connection, "COMMIT", { millis: yield* CommitMillis })
    if ((result as PgConnection.Result).command !== "ROLLBACK") return
    return yield* lost("COMMIT rolled back a transaction that a statement had ended")
  })

/**
 * Replaces the transactions of a client. Those of the driver wait for the answer to `BEGIN`, `COMMIT` and `ROLLBACK`
 * without a limit, and hold their connection meanwhile: for many minutes if the network has fallen silent.
 */
export const withBoundedTransactions = <A extends SqlClient.SqlClient>(sql: A): A => {
  // A transaction that is still open when a statement was canceled would fail everything that its connection runs next:
  // a canceled ROLLBACK is sent again, and so is one after a COMMIT that failed.
  const rollback = (connection: SqlConnection.Connection) =>
    Effect.asVoid(Effect.retry(control(connection, "ROLLBACK"), { times: 1 }))
  return Object.assign(sql, {
    withTransaction: SqlClient.makeWithTransaction({
      transactionService: sql.transactionService,
      spanAttributes: [["db.system.name", "postgresql"]],
      acquireConnection: (restore) => restore(sql.reserve),
      begin: (connection, statement) =>
        // A canceled `BEGIN` may have begun the transaction nevertheless.
        Effect.onError(control(connection, statement ?? "BEGIN", { isPrepared: statement === undefined }), () =>
          Effect.ignore(rollback(connection)),
        ),
      savepoint: (connection, id) => control(connection, `SAVEPOINT effect_sql_${id}`),
      releaseSavepoint: (connection, id) => control(connection, `RELEASE SAVEPOINT effect_sql_${id}`),
      commit,
      onCommitFailure: rollback,
      rollback,
      rollbackSavepoint: (connection, id) => control(connection, `ROLLBACK TO SAVEPOINT effect_sql_${id}`),
    }),
  })
}

/** Runs an effect outside of the transaction in which it is called. */
export const outsideTransaction =
  (sql: SqlClient.SqlClient) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.updateContext(
      effect,
      (context: Context.Context<R>) =>
        Context.omit(sql.transactionService)(context as Context.Context<never>) as Context.Context<R>,
    )

/**
 * Makes changes with the same name one after the other, each in a transaction. What a change then counts has all that
 * the one before has committed.
 */
export const oneAtATime = <A, E, R>(sql: SqlClient.SqlClient, name: string, change: Effect.Effect<A, E, R>) =>
  sql.withTransaction(Effect.andThen(lockName(sql, name), change))

/**
 * Locks a name until the end of a transaction. A statement of its own: the next one sees what the previous holder of
 * the lock has committed.
 */
export const lockName = (sql: SqlClient.SqlClient, name: string) =>
  sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:${name}`}, 0))`
