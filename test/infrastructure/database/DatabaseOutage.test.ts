import { assert, describe } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Unavailable } from "#src/domain/Errors.ts"
import { deadlines } from "#src/infrastructure/database/deadlines.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { orUnavailable } from "#src/infrastructure/database/orUnavailable.ts"
import { freshPostgres, heard } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { proxied } from "../../support/proxy.ts"
import { eventually, within } from "../../support/wait.ts"

/**
 * Promise (The network fails): A listener reconnects by itself. Slow statements and waits for a connection are
 * canceled.
 */

const postgres = (url: string) => Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })
const fresh = Layer.unwrap(Effect.map(freshPostgres(), postgres))

const one = Effect.flatMap(SqlClient.SqlClient, (sql) => orUnavailable(sql`SELECT 1 AS one`))
const inTransaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => orUnavailable(sql.withTransaction(effect)))

/** Runs an effect that must fail with a 503; returns its duration in milliseconds. */
const refused = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const [took, exit] = yield* within("a 503", Effect.timed(Effect.exit(effect)))
    assert.isTrue(
      Exit.isFailure(exit) && exit.cause.reasons.every((_) => _._tag === "Fail" && _.error instanceof Unavailable),
      String(exit),
    )
    return Duration.toMillis(took)
  })

describe.concurrent("an outage of PostgreSQL", () => {
  it.live("a listener whose connection is killed is notified, and reconnects", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const next = yield* heard("killed")
      assert.strictEqual(yield* next, "Up")
      yield* sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'gatehouse notifications'`
      assert.deepStrictEqual(yield* Effect.all([next, next]), ["Down", "Up"])
      yield* sql`SELECT pg_notify('killed', 'after')`
      assert.strictEqual(yield* next, "after")
    }).pipe(Effect.provide(fresh)),
  )

  it.live("with LISTEN_URL the listener uses that address, and statements the other", function* () {
    const url = yield* freshPostgres()
    const proxy = yield* proxied(url)
    const options = { databaseUrl: Redacted.make(url), listenUrl: Redacted.make(proxy.url), dataDir: "unused" }
    yield* Effect.gen(function* () {
      const next = yield* heard("apart")
      assert.strictEqual(yield* next, "Up")
      yield* proxy.close
      assert.strictEqual(yield* next, "Down")
      yield* one
      yield* proxy.heal
      assert.strictEqual(yield* next, "Up")
      yield* (yield* SqlClient.SqlClient)`SELECT pg_notify('apart', 'after')`
      assert.strictEqual(yield* next, "after")
    }).pipe(Effect.provide(Database.layer(options)))
  })

  it.live("a connection killed in a transaction is a 503 and leaves no row, and the next one works", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE killed (id int)`
      const insert = sql`INSERT INTO killed (id) VALUES (1)`
      const kill = sql`SELECT pg_terminate_backend(pg_backend_pid())`
      yield* refused(inTransaction(Effect.andThen(insert, kill)))
      yield* refused(inTransaction(Effect.all([insert, Effect.ignore(kill), insert])))
      yield* inTransaction(insert)
      assert.deepStrictEqual(yield* sql`SELECT id FROM killed`, [{ id: 1 }])
    }).pipe(Effect.provide(fresh)),
  )

  it.live("a stopped server is a 503 at once, and is used again when it is back", function* () {
    const proxy = yield* proxied(yield* freshPostgres())
    yield* Effect.gen(function* () {
      yield* one
      yield* proxy.close
      const times = yield* Effect.all([refused(one), refused(inTransaction(one)), refused(one)], { concurrency: 3 })
      // The outage ends them, not their deadline.
      for (const time of times) assert.isBelow(time, deadlines.request)
      yield* refused((yield* Database).ready)
      yield* proxy.heal
      yield* eventually("the database", one)
      yield* (yield* Database).ready
    }).pipe(Effect.provide(postgres(proxy.url)))
  })

  // test/faults/network.test.ts measures how soon they know.
  it.live("a silent network is reported to requests and listeners, which recover", function* () {
    const proxy = yield* proxied(yield* freshPostgres())
    yield* Effect.gen(function* () {
      const next = yield* heard("silent")
      assert.strictEqual(yield* next, "Up")
      yield* one
      yield* proxy.silence
      const down = within("the notification of the listener", next)
      const [event] = yield* Effect.all(
        [down, refused(one), refused(inTransaction(one)), refused((yield* Database).ready)],
        { concurrency: 4 },
      )
      assert.strictEqual(event, "Down")
      yield* proxy.heal
      yield* eventually("the database", one)
      assert.strictEqual(yield* within("the listener to reconnect", next), "Up")
    }).pipe(Effect.provide(postgres(proxy.url)))
  })

  // Seen failing with the control statements of the driver, which wait for TCP to give up: BEGIN, COMMIT and ROLLBACK.
  /**
   * Promise (The network fails): A transaction whose connection falls silent at any of its statements is a 503 at the
   * deadline or five seconds later, and returns its connection.
   */
  it.live(
    "a transaction whose network falls silent at any statement is a 503, and gives its connection back",
    function* () {
      const one = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT 1`)
      const steps = {
        BEGIN: (silence: Effect.Effect<void>) => Effect.andThen(silence, inTransaction(one)),
        statement: (silence: Effect.Effect<void>) => inTransaction(Effect.andThen(silence, one)),
        COMMIT: (silence: Effect.Effect<void>) => inTransaction(Effect.andThen(one, silence)),
        ROLLBACK: (silence: Effect.Effect<void>) =>
          inTransaction(Effect.all([one, silence, Effect.fail(new Unavailable({ error: "ended" }))])),
        SAVEPOINT: (silence: Effect.Effect<void>) =>
          Effect.flatMap(SqlClient.SqlClient, (sql) =>
            inTransaction(Effect.andThen(silence, sql.withTransaction(one))),
          ),
      }
      yield* Effect.forEach(
        Object.values(steps),
        Effect.fnUntraced(function* (step) {
          const proxy = yield* proxied(yield* freshPostgres())
          yield* Effect.gen(function* () {
            yield* one
            yield* refused(step(proxy.silence))
            yield* proxy.heal
            yield* eventually("the database", inTransaction(one))
          }).pipe(Effect.provide(postgres(proxy.url)))
        }),
        { concurrency: 5 },
      )
    },
  )

  it.live("a statement past its deadline is canceled, and so is a wait for a connection", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const slow = yield* Effect.flip(orUnavailable(sql`SELECT pg_sleep(60)`))
      assert.strictEqual(slow.error, `The database did not answer within ${deadlines.request / 1000} s; try again.`)
      assert.deepStrictEqual(
        yield* sql`SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'`,
        [],
      )
      // Not idle, for which PostgreSQL ends a transaction after ten seconds.
      const work = Effect.forever(Effect.andThen(sql`SELECT 1`, Effect.sleep("1 second")))
      const hold = Effect.forkChild(sql.withTransaction(work))
      const holders = yield* Effect.all(Array.from({ length: 10 }, () => hold))
      yield* eventually("all connections to be in use", refused(one))
      // The pool closes when their connections are returned.
      yield* Fiber.interruptAll(holders)
    }).pipe(Effect.provide(fresh)),
  )
})
