import { describe, expect } from "@effect/vitest"
import { Context, Effect } from "effect"
import { type SqlClient, type SqlConnection, SqlError } from "effect/sql"
import { withBoundedTransactions } from "#src/infrastructure/database/boundedTransactions.ts"
import { it } from "../../support/it.ts"

const canceled = new SqlError.SqlError({
  reason: new SqlError.UnknownError({ cause: { code: "57014" }, message: "canceled", operation: "execute" }),
})

/** A client with one connection, which is in a transaction or not, and cancels the first statement with a text. */
const makeClient = (cancels: string) => {
  const state = { transaction: "none" as "none" | "open" | "aborted", sent: new Array<string>() }
  const run = (text: string) =>
    Effect.suspend(() => {
      const isCanceled = text === cancels && !state.sent.includes(text)
      state.sent.push(text)
      if (isCanceled) {
        if (state.transaction === "open") state.transaction = "aborted"
        return Effect.fail(canceled)
      }
      const command = state.transaction === "aborted" && text === "COMMIT" ? "ROLLBACK" : text
      state.transaction = text === "BEGIN" ? "open" : "none"
      return Effect.succeed({ command })
    })
  const connection = { executeRaw: run, executeUnprepared: run } as unknown as SqlConnection.Connection
  const sql = withBoundedTransactions({
    transactionService: Context.Service<SqlClient.TransactionConnection>(`test/${cancels}`),
    reserve: Effect.succeed(connection),
  } as unknown as SqlClient.SqlClient)
  return { sql, state }
}

describe("a connection leaves no open transaction behind when the database cancels", () => {
  // Seen failing: each statement that the connection ran next failed with 25P02, until it was closed.
  for (const [text, work] of [
    ["BEGIN", Effect.void],
    ["COMMIT", Effect.void],
    ["ROLLBACK", Effect.fail("no")],
  ] as const) {
    it.effect(text, () =>
      Effect.gen(function* () {
        const { sql, state } = makeClient(text)
        expect((yield* Effect.exit(sql.withTransaction(work)))._tag).toBe("Failure")
        expect(state.transaction).toBe("none")
        expect(state.sent.at(-1)).toBe("ROLLBACK")
      }),
    )
  }
})
