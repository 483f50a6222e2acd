import { expect } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { isDeepStrictEqual } from "node:util"
import { inject } from "vitest"
import { OpenSocket } from "#src/infrastructure/database/PostgresDatabase.ts"
import * as Races from "../contract/races.ts"
import { adminClient } from "../support/databases.ts"
import { layer } from "../support/it.ts"
import { Locks } from "./locks.ts"
import { Dice } from "./world.ts"

/** Promise (Two at once): The same pairs end so on real locks, in orders of their statements that seeds decide. */

/** How many orders of each pair of writes run: the seeds from 1 on, or that of `LOCKS_SEED` alone. */
const seeds = Array.from({ length: Number(process.env["LOCKS"] ?? 10) }, (_, n) => n + 1)
const asked = process.env["LOCKS_SEED"]

/** Pairs that run twice here. The others find rows of their first run, or wait for a lock by PostgreSQL's own clock. */
const isRepeated = /^(rotate|complete|cancel|fail|extend|claim)/

/** How often a run is repeated at most, until it is the same as the one before. */
const maxRepeats = 4

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
        SELECT pid FROM unnest(${[...pids]}::int[]) AS pid WHERE pg_blocking_pids(pid) <> '{}'`)
      return new Set(rows.map(({ pid }) => pid))
    })
  }),
)

const repositories = Races.layer.pipe(
  Layer.provide(
    Layer.unwrap(
      Effect.map(Effect.all([Held, Clock.Clock]), ([locks, clock]) =>
        Layer.merge(Layer.succeed(OpenSocket, locks.open), Layer.succeed(Clock.Clock, locks.clock(clock))),
      ),
    ),
  ),
  Layer.provideMerge(held),
)

// Each pair of writes of test/contract/races.ts, and what must hold at its end. A seed decides which statement runs
// next.
layer(repositories, { excludeTestServices: true })("locks, in an order that a seed decides", (it) => {
  for (const [name, race] of Object.entries(Races.races)) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const locks = yield* Held
        const clock = locks.clock(yield* Clock.Clock)
        const context = Context.add(yield* Effect.context<Layer.Success<typeof Races.layer>>(), Clock.Clock, clock)
        for (const seed of asked === undefined ? seeds : [Number(asked)]) {
          const failed = (cause: unknown) =>
            Promise.reject(new Error(`LOCKS_SEED=${seed}: ${String(cause)}`, { cause }))
          const run = () => locks.run(new Dice(seed), () => Effect.runPromiseWith(context)(race)).catch(failed)
          const told = () => Effect.map(Effect.promise(run), (end) => ({ end, choices: [...locks.choices] }))
          let before = yield* told()
          expect(before.end).toBeInstanceOf(Array)
          if (seed !== seeds[0] || !isRepeated.test(name)) continue
          // What runs in the background in real time, such as counts every five seconds, may come into a run.
          for (let left = maxRepeats; ; left--) {
            const again = yield* told()
            if (left === 0 || isDeepStrictEqual(again, before)) {
              expect(again, `LOCKS_SEED=${seed} again`).toEqual(before)
              break
            }
            before = again
          }
        }
      }),
    )
  }
})
