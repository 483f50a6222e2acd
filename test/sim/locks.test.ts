/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { inject } from "vitest"
import { OpenSocket } from "#src/infrastructure/database/PostgresDatabase.ts"
import * as Races from "../contract/races.ts"
import { adminClient } from "../support/databases.ts"
import { Locks } from "./locks.ts"
import { Dice } from "./world.ts"

/** How many orders of each pair of writes run: the seeds from 1 on, or that of `LOCKS_SEED` alone. */
const seeds = Array.from({ length: Number(process.env["LOCKS"] ?? 10) }, (_, n) => n + 1)
const asked = process.env["LOCKS_SEED"]

/** The controller of all connections of these tests to PostgreSQL. */
const Held = Context.Service<Locks>("gatehouse/test/sim/locks")

const held = Layer.effect(
  Held,
  Effect.gen(function* () {
    const url = inject("postgresUrl")
    const sql = yield* adminClient(url)
    const { hostname, port } = new URL(url)
    return new Locks({ host: hostname, port: Number(port) }, async (pids) => {
      const rows = await Effect.runPromise(sql<{ pid: number }>`
        SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = ANY(${[...pids]}::int[])`)
      return new Set(rows.map(({ pid }) => pid))
    })
  }),
)

const repositories = Races.layer.pipe(
  Layer.provide(Layer.unwrap(Held.useSync((locks) => Layer.succeed(OpenSocket, locks.open)))),
  Layer.provideMerge(held),
)

// Each pair of writes of test/contract/races.ts, and what must hold at its end. A seed decides which statement runs
// next.
layer(repositories, { excludeTestServices: true, timeout: 120_000 })("locks, in an order that a seed decides", (it) => {
  for (const [name, race] of Object.entries(Races.races)) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const locks = yield* Held
        const context = yield* Effect.context<Layer.Success<typeof Races.layer>>()
        for (const seed of asked === undefined ? seeds : [Number(asked)]) {
          const failed = (cause: unknown) =>
            Promise.reject(new Error(`LOCKS_SEED=${seed}: ${String(cause)}`, { cause }))
          const run = locks.run(new Dice(seed), () => Effect.runPromiseWith(context)(race))
          const end = yield* Effect.promise(() => run.catch(failed))
          expect(end).toBeInstanceOf(Array)
        }
      }),
    )
  }
})
