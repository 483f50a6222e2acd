import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Layer, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Unavailable } from "#src/domain/Errors.ts"
import { Database } from "#src/infrastructure/Database.ts"
import { orUnavailable } from "#src/infrastructure/orUnavailable.ts"
import { freshPostgres, heard } from "../support/databases.ts"
import { proxied } from "../support/proxy.ts"

const postgres = (url: string) => Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })
const fresh = Layer.unwrap(Effect.map(freshPostgres(), postgres))

const one = Effect.flatMap(SqlClient.SqlClient, (sql) => orUnavailable(sql`SELECT 1 AS one`))
const inTransaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => orUnavailable(sql.withTransaction(effect)))

/** Runs what must be refused with a 503, and gives the milliseconds that took. */
const refused = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const [took, exit] = yield* Effect.timed(Effect.exit(effect))
    assert.isTrue(
      Exit.isFailure(exit) && exit.cause.reasons.every((_) => _._tag === "Fail" && _.error instanceof Unavailable),
      String(exit),
    )
    return Duration.toMillis(took)
  })

const soon = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.retry(effect, Schedule.max([Schedule.spaced("100 millis"), Schedule.recurs(50)]))

describe.concurrent("an outage of PostgreSQL", () => {
  it.live("a listener whose connection is killed is told, and comes back", () =>
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

  it.live("a connection killed in a transaction is a 503, nothing of it stays, and the next one works", () =>
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

  it.live("a server that is gone is a 503 at once, and one that is back is used", () =>
    Effect.gen(function* () {
      const proxy = yield* proxied(yield* freshPostgres())
      yield* Effect.gen(function* () {
        yield* one
        yield* proxy.close
        const times = yield* Effect.all([refused(one), refused(inTransaction(one)), refused(one)], { concurrency: 3 })
        for (const time of times) assert.isBelow(time, 1_000)
        yield* refused((yield* Database).ready)
        yield* proxy.heal
        yield* soon(one)
        yield* (yield* Database).ready
      }).pipe(Effect.provide(postgres(proxy.url)))
    }),
  )

  it.live("a network gone silent: requests and listeners know within 10 seconds, and come back", () =>
    Effect.gen(function* () {
      const proxy = yield* proxied(yield* freshPostgres())
      yield* Effect.gen(function* () {
        const next = yield* heard("silent")
        assert.strictEqual(yield* next, "Up")
        yield* one
        yield* proxy.silence
        const down = Effect.timed(next)
        const [[told, event], ...times] = yield* Effect.all(
          [down, refused(one), refused(inTransaction(one)), refused((yield* Database).ready)],
          { concurrency: 4 },
        )
        assert.strictEqual(event, "Down")
        for (const time of [Duration.toMillis(told), ...times]) assert.isBelow(time, 10_000)
        yield* proxy.heal
        yield* soon(one)
        assert.strictEqual(yield* next, "Up")
      }).pipe(Effect.provide(postgres(proxy.url)))
    }),
  )

  it.live("a statement that takes too long is given up, and a wait for a connection too", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const slow = refused(orUnavailable(sql`SELECT pg_sleep(60)`))
      assert.isBelow(yield* slow, 5_000)
      assert.deepStrictEqual(
        yield* sql`SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'`,
        [],
      )
      const holding = Effect.forkChild(sql.withTransaction(Effect.andThen(sql`SELECT 1`, Effect.sleep("6 seconds"))))
      yield* Effect.all(Array.from({ length: 10 }, () => holding))
      assert.isBelow(yield* Effect.delay(refused(one), "200 millis"), 5_000)
    }).pipe(Effect.provide(fresh)),
  )
})
