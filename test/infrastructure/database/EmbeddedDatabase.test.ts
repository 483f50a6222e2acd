import { PgConnection } from "@effect/sql-pg"
import { PGlite } from "@electric-sql/pglite"
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { renameSync } from "node:fs"
import { join } from "node:path"
import { vi } from "vitest"
import { Unavailable } from "#src/domain/Errors.ts"
import { Database, embeddedClient, embeddedSubscriptions } from "#src/infrastructure/database/Database.ts"
import * as EmbeddedDatabase from "#src/infrastructure/database/embedded/EmbeddedDatabase.ts"
import { describeFault, DurableNodeFS, startParams } from "#src/infrastructure/database/embedded/EmbeddedStorage.ts"
import { maintain } from "#src/infrastructure/database/embedded/EmbeddedDatabase.ts"
import * as Notifications from "#src/infrastructure/database/Notifications.ts"
import { orUnavailable } from "#src/infrastructure/database/orUnavailable.ts"
import { databases, freshFolder, heard, isShutDown } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { eventually } from "../../support/wait.ts"

const fsyncs = vi.hoisted(() => ({ count: 0 }))
vi.mock("node:fs", async (original) => {
  const fs = await original<typeof import("node:fs")>()
  const fsyncSync = (file: number) => {
    fsyncs.count++
    fs.fsyncSync(file)
  }
  return { ...fs, fsyncSync }
})

const refused = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), (error) => assert.instanceOf(error, Unavailable))

describe("the embedded database", () => {
  it.live("each write is on the disk before its answer, and a read does not wait for the disk", function* () {
    const folder = yield* freshFolder()
    const pglite = yield* Effect.acquireRelease(
      Effect.promise(() => PGlite.create({ fs: new DurableNodeFS(join(folder, "postgres")), startParams })),
      (pglite) => Effect.promise(() => pglite.close()),
    )
    const cost = (statement: string) =>
      Effect.promise(async () => {
        const before = fsyncs.count
        await pglite.query(statement)
        return fsyncs.count - before
      })
    yield* cost("CREATE TABLE written (id int)")
    assert.isAtLeast(yield* cost("INSERT INTO written VALUES (1)"), 1)
    assert.strictEqual(yield* cost("SELECT * FROM written"), 0)
    assert.isAtLeast(yield* cost("DELETE FROM written"), 1)
  })

  it.live("each connection starts clean, whatever the one before it did", function* () {
    const database = yield* EmbeddedDatabase.make(yield* freshFolder())
    const open = Effect.gen(function* () {
      const stream = database.connect()
      const connection = yield* PgConnection.make({ stream: () => stream, ssl: false, username: "postgres" })
      return { stream, rows: (sql: string) => Effect.map(connection.query(sql), ({ rows }) => rows) }
    })
    const first = yield* open
    yield* first.rows("CREATE TABLE left_over (id int)")
    yield* first.rows("SET work_mem = '1MB'")
    yield* first.rows("BEGIN")
    yield* first.rows("INSERT INTO left_over VALUES (1)")
    const opening = yield* Effect.forkChild(open)
    yield* Effect.sleep("50 millis")
    assert.deepStrictEqual(yield* first.rows("SELECT id FROM left_over"), [{ id: 1 }], "the next one waits")
    yield* Effect.forkChild(Effect.exit(first.rows("SELECT pg_sleep(0.2)")))
    yield* Effect.sleep("50 millis")
    first.stream.destroy()

    const second = yield* Fiber.join(opening)
    assert.deepStrictEqual(yield* second.rows("SELECT FROM pg_prepared_statements WHERE statement LIKE 'SET %'"), [])
    assert.deepStrictEqual(yield* second.rows("SELECT count(*)::int AS n FROM left_over"), [{ n: 0 }])
    assert.deepStrictEqual(yield* second.rows("SHOW work_mem"), [{ work_mem: "4MB" }])
    yield* second.rows("INSERT INTO left_over VALUES (2)")
    second.stream.destroy()
    const third = yield* open
    assert.deepStrictEqual(yield* third.rows("SELECT id FROM left_over"), [{ id: 2 }])
  })

  it.live("an engine that panics is restarted with everything that was committed", function* () {
    const folder = yield* freshFolder()
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const insert = (id: number) => sql`INSERT INTO kept (id) VALUES (${id})`
      yield* sql`CREATE TABLE kept (id int)`
      const next = yield* heard("panic")
      assert.strictEqual(yield* next, "Up")
      yield* insert(1)

      const log = join(folder, "postgres/pg_wal")
      yield* Effect.sync(() => renameSync(log, `${log}.away`))
      const panicking = Effect.andThen(sql`SELECT pg_switch_wal()::text`, insert(3))
      yield* refused(orUnavailable(sql.withTransaction(Effect.andThen(insert(2), panicking))))
      assert.strictEqual(yield* next, "Down")
      yield* refused(orUnavailable(insert(4))) // It does not start again either.
      yield* Effect.sync(() => renameSync(`${log}.away`, log))

      yield* eventually("an engine that starts", orUnavailable(sql`SELECT 1`))
      yield* insert(5)
      assert.deepStrictEqual(yield* sql`SELECT id FROM kept ORDER BY id`, [{ id: 1 }, { id: 5 }])
      assert.strictEqual(yield* next, "Up")
      yield* sql`SELECT pg_notify('panic', 'over')`
      assert.strictEqual(yield* next, "over")
      assert.isFalse(isShutDown(folder))
    }).pipe(Effect.provide(Database.layer({ dataDir: folder })))
    assert.isTrue(isShutDown(folder), "the restarted engine is shut down in order")
  })

  // Seen failing without the check for a lost engine: the listener got Up, and Down at once.
  it.live("a listener whose engine stops before it listens is not reported as connected", () =>
    Effect.gen(function* () {
      const database = yield* EmbeddedDatabase.make("memory")
      const sql = yield* embeddedClient(database)
      let lost = 0
      const losing: typeof database.subscribe = (subscriber) => {
        if (lost++ === 0) subscriber.onLost(new Error("An engine did not start"))
        return database.subscribe(subscriber)
      }
      const notifications = Notifications.make(embeddedSubscriptions({ subscribe: losing }, sql))
      const next = yield* heard("early").pipe(Effect.provideService(Notifications.Notifications, notifications))
      assert.strictEqual(yield* next, "Up")
      yield* sql`SELECT pg_notify('early', 'heard')`
      assert.strictEqual(yield* next, "heard")
      assert.strictEqual(lost, 2)
    }).pipe(Effect.provide(Reactivity.layer)),
  )

  it.live("its maintenance clears dead rows and shortens the log", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE worn AS SELECT generate_series(1, 500) AS id`
      yield* sql`UPDATE worn SET id = id + 1`
      yield* sql`SELECT pg_stat_force_next_flush()`
      const state = sql<{ dead: number; checkpoint: string }>`
        SELECT n_dead_tup::int AS dead, (SELECT redo_lsn::text FROM pg_control_checkpoint()) AS checkpoint
        FROM pg_stat_user_tables WHERE relname = 'worn'`
      const [before] = yield* state
      yield* maintain(Infinity)
      const [tended] = yield* state
      yield* maintain(0)
      const [shortened] = yield* state
      assert.deepStrictEqual([before!.dead, tended!.dead], [500, 0])
      assert.strictEqual(tended!.checkpoint, before!.checkpoint)
      assert.notStrictEqual(shortened!.checkpoint, before!.checkpoint)
    }).pipe(Effect.provide(databases.embedded)),
  )
})

// Seen failing: the start said "stopped: [object Object]".
it("a fault of the engine's files is told in words", () => {
  assert.deepStrictEqual([{ errno: 51 }, { errno: 29 }, new Error("No memory"), "aborted"].map(describeFault), [
    "no space is left on the disk",
    "error 29 of the file system",
    "Error: No memory",
    "aborted",
  ])
})
