import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { nodeWatch } from "#src/infrastructure/database/citus/DistributedClient.ts"
import { poolConfig } from "#src/infrastructure/database/PostgresDatabase.ts"
import { freshPostgres } from "../../../support/databases.ts"
import { proxied } from "../../../support/proxy.ts"
import { until } from "../../../support/wait.ts"

/** A node behind a proxy, with a pool of one connection that the watch protects. */
const watched = Effect.gen(function* () {
  const proxy = yield* proxied(yield* freshPostgres())
  const url = Redacted.make(proxy.url)
  const { hostname: host, port } = new URL(proxy.url)
  const watch = yield* nodeWatch(url, { host, port: Number(port) })
  const sql = yield* PgClient.make({
    ...(yield* poolConfig(url, {}, watch.open)),
    minConnections: 0,
    maxConnections: 1,
  })
  const untilAnswers = (answers: boolean) =>
    until(`check, ${answers}`, Effect.exit(watch.check), (exit) => Exit.isSuccess(exit) === answers)
  return { proxy, sql, untilAnswers, watch }
}).pipe(Effect.provide(Reactivity.layer))

describe("the watch of a node", () => {
  it.live("what waits for a node that falls silent fails, and so does what comes later, until the node answers", () =>
    Effect.gen(function* () {
      const { proxy, sql, untilAnswers } = yield* watched
      yield* sql`SELECT 1`
      // Would wait for ever: its answer does not arrive.
      const running = yield* Effect.forkChild(Effect.exit(sql`SELECT pg_sleep(600)`))
      const waiting = yield* Effect.forkChild(Effect.exit(sql.withTransaction(sql`SELECT 2`)))
      yield* proxy.silence
      assert.isTrue(Exit.isFailure(yield* Fiber.join(running)))
      assert.isTrue(Exit.isFailure(yield* Fiber.join(waiting)))
      yield* untilAnswers(false)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 3`)))
      yield* proxy.heal
      yield* untilAnswers(true)
      assert.deepStrictEqual(yield* sql`SELECT 4 AS n`, [{ n: 4 }])
    }).pipe(Effect.scoped),
  )

  it.live("a node that refuses connections, or closes them, is not silent", () =>
    Effect.gen(function* () {
      const { proxy, sql, watch } = yield* watched
      yield* proxy.close
      assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
      // Longer than the watch needs to call a node silent.
      yield* Effect.sleep("2500 millis")
      yield* watch.check
      yield* proxy.heal
      assert.deepStrictEqual(yield* sql`SELECT 2 AS n`, [{ n: 2 }])
    }).pipe(Effect.scoped),
  )
})
