import { assert } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Option } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "#src/infrastructure/database/Database.ts"
import { orUnavailable } from "#src/infrastructure/database/orUnavailable.ts"
import { databases, heard } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

/** A client, and a table for one test. */
const table = (name: string, columns = "id int primary key") =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`CREATE TABLE ${sql(name)} (${sql.literal(columns)})`
    const ids = Effect.map(sql<{ id: number }>`SELECT id FROM ${sql(name)} ORDER BY id`, (rows) =>
      rows.map((_) => _.id),
    )
    return { sql, ids, insert: (id: number) => sql`INSERT INTO ${sql(name)} (id) VALUES (${id})` }
  })

for (const [kind, database] of Object.entries(databases)) {
  layer(database, { excludeTestServices: true })(kind, (it) => {
    it.effect("is ready, and reports its version", function* () {
      const database = yield* Database
      yield* database.ready
      assert.strictEqual(database.kind, kind)
    })

    it.effect("a rollback affects no writes of other fibers", function* () {
      const { ids, insert, sql } = yield* table("rollback")
      const open = yield* Deferred.make<void>()
      const failing = insert(1).pipe(
        Effect.andThen(Deferred.succeed(open, undefined)),
        Effect.andThen(Effect.sleep("50 millis")),
        Effect.andThen(Effect.fail("no")),
        sql.withTransaction,
        Effect.exit,
      )
      yield* Effect.all([failing, Effect.andThen(Deferred.await(open), insert(2))], { concurrency: 2 })
      assert.deepStrictEqual(yield* ids, [2])
    })

    it.effect("fifty fibers count correctly, in and out of transactions", function* () {
      const { insert, sql } = yield* table("counter", "id int primary key, n int not null default 0")
      yield* insert(1)
      const plain = sql`UPDATE counter SET n = n + 1`
      const readThenWrite = sql<{ n: number }>`SELECT n FROM counter FOR UPDATE`.pipe(
        Effect.flatMap(([row]) => sql`UPDATE counter SET n = ${row!.n + 1}`),
        sql.withTransaction,
      )
      const fiber = Effect.all([readThenWrite, plain, readThenWrite, plain], { concurrency: 2, discard: true })
      yield* Effect.all(
        Array.from({ length: 50 }, () => fiber),
        { concurrency: "unbounded", discard: true },
      )
      assert.deepStrictEqual(yield* sql`SELECT n FROM counter`, [{ n: 200 }])
    })

    it.effect("a failed savepoint keeps the rest of its transaction", function* () {
      const { ids, insert, sql } = yield* table("savepoints")
      yield* insert(1).pipe(
        Effect.andThen(Effect.exit(sql.withTransaction(Effect.andThen(insert(2), insert(1))))),
        Effect.andThen(sql.withTransaction(insert(3))),
        sql.withTransaction,
      )
      assert.deepStrictEqual(yield* ids, [1, 3])
    })

    it.effect("an error inside a transaction is reported, and rolls back all of it", function* () {
      const { ids, insert, sql } = yield* table("errors")
      const error = yield* insert(1).pipe(Effect.andThen(insert(1)), sql.withTransaction, Effect.flip)
      assert.strictEqual(error.reason._tag, "UniqueViolation")
      // A statement error aborts the transaction even when it is caught: the COMMIT must not succeed.
      const commit = yield* insert(2).pipe(Effect.andThen(Effect.exit(insert(2))), sql.withTransaction, Effect.exit)
      assert.isTrue(Exit.isFailure(commit))
      assert.deepStrictEqual(yield* ids, [])
    })

    it.effect("concurrent statements continue after one that fails", function* () {
      const { ids, insert } = yield* table("pipeline")
      const exits = yield* Effect.all(
        [1, 1, 2, 2, 3].map((id) => Effect.exit(insert(id))),
        { concurrency: "unbounded" },
      )
      assert.strictEqual(exits.filter(Exit.isSuccess).length, 3)
      assert.deepStrictEqual(yield* ids, [1, 2, 3])
    })

    it.effect("an interrupted statement or transaction does not affect the next ones", function* () {
      const { ids, insert, sql } = yield* table("interrupted")
      const slow = sql`SELECT pg_sleep(1)`
      const interruptSoon = (effect: Effect.Effect<unknown, unknown>) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.forkChild(effect)
          yield* Effect.sleep("50 millis")
          yield* Fiber.interrupt(fiber)
        })
      yield* interruptSoon(slow)
      yield* interruptSoon(insert(1).pipe(Effect.andThen(slow), Effect.andThen(insert(2)), sql.withTransaction))
      yield* Effect.all([sql.withTransaction(insert(3)), insert(4)], { concurrency: 2 })
      assert.deepStrictEqual(yield* ids, [3, 4])
      // A transaction whose statement was interrupted stays one transaction, or fails as a whole.
      const outlived = yield* insert(5).pipe(
        Effect.andThen(interruptSoon(slow)),
        Effect.andThen(insert(6)),
        sql.withTransaction,
        Effect.exit,
      )
      assert.deepStrictEqual(yield* ids, Exit.isSuccess(outlived) ? [3, 4, 5, 6] : [3, 4])
    })

    it.effect("notifications arrive at the commit, and never after a rollback", function* () {
      const sql = yield* SqlClient.SqlClient
      const next = yield* heard("Commits")
      assert.strictEqual(yield* next, "Up")
      const notify = (payload: string) => sql`SELECT pg_notify('Commits', ${payload})`
      yield* notify("undone").pipe(Effect.andThen(Effect.fail("no")), sql.withTransaction, Effect.exit)
      const committing = yield* Deferred.make<void>()
      yield* notify("done").pipe(Effect.andThen(Deferred.await(committing)), sql.withTransaction, Effect.forkChild)
      assert.strictEqual(
        yield* next.pipe(Effect.timeoutOrElse({ duration: "100 millis", orElse: () => Effect.succeed("nothing") })),
        "nothing",
      )
      yield* Deferred.succeed(committing, undefined)
      assert.strictEqual(yield* next, "done")
      yield* Effect.all([1, 2, 3].map((n) => notify(`plain ${n}`)))
      assert.deepStrictEqual(yield* Effect.all([next, next, next]), ["plain 1", "plain 2", "plain 3"])
    })

    it.effect("a listener does not block transactions, and two listeners get the same", function* () {
      const { insert, sql } = yield* table("listeners")
      const [one, two] = yield* Effect.all([heard("both"), heard("both")])
      assert.deepStrictEqual(yield* Effect.all([one, two]), ["Up", "Up"])
      yield* sql.withTransaction(insert(1))
      yield* sql`SELECT pg_notify('both', ${"ünï ✓"})`
      assert.deepStrictEqual(yield* Effect.all([one, two]), ["ünï ✓", "ünï ✓"])
    })

    it.effect("a faulty statement is a defect, not an unavailable database", function* () {
      const sql = yield* SqlClient.SqlClient
      const exit = yield* sql`SELECT * FROM nowhere`.pipe(orUnavailable, Effect.exit)
      assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause) && !Cause.hasFails(exit.cause))
    })

    it.effect("large values are written and read", function* () {
      const sql = yield* SqlClient.SqlClient
      const text = "€".repeat(1_000_000)
      assert.deepStrictEqual(yield* sql`SELECT ${text}::text AS text`, [{ text }])
      // The deepest JSON of a request may be too deep for the server, but must not stop it.
      const deep = `${"[".repeat(500_000)}${"]".repeat(500_000)}`
      for (const type of ["json", "jsonb"]) {
        const exit = yield* Effect.exit(sql`SELECT ${deep}::text::${sql.literal(type)} IS NULL AS absent`)
        const error = Option.getOrUndefined(Exit.findErrorOption(exit))
        assert.notStrictEqual(error?.reason._tag, "ConnectionError")
      }
      assert.deepStrictEqual(yield* sql`SELECT 1 AS one`, [{ one: 1 }])
    })
  })
}
