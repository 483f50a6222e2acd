import { assert } from "@effect/vitest"
import { Clock, DateTime, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { freshPostgres } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { closedPort } from "../../support/receiver.ts"
import { newId } from "../support.ts"

const database = Layer.unwrap(
  Effect.gen(function* () {
    const [url, port] = [yield* freshPostgres(), yield* closedPort]
    const nodes = new Map([["away", Redacted.make(`postgres://nobody@127.0.0.1:${port}/away`)]])
    return Database.layer({ databaseUrl: Redacted.make(url), nodes, dataDir: "unused" })
  }),
)
const repositories = SweepsSql.layer.pipe(Layer.provide(JobsSql.layer), Layer.provide(crypto.layer))

layer(Layer.provideMerge(repositories, database), { excludeTestServices: true })("sweeps", (it) => {
  // Seen failing: each of the node's orgs had its turn, and each turn was as long as the node was waited for.
  it.effect("the sweeps of a node that does not answer take no turns of others, and are tried again", function* () {
    const sql = yield* SqlClient.SqlClient
    const { advance, next } = yield* SweepRepository
    const insert = Effect.fnUntraced(function* (kind: "emit" | "erase" | "move" | "resend", node: string | null) {
      const [id, of] = [yield* newId, { erase: node, move: "" }[kind as string] ?? null]
      yield* sql`INSERT INTO orgs (id, name, node, created_at) VALUES (${id}, 'o', ${node}, now())`
      yield* sql`
        INSERT INTO sweeps (id, org_id, kind, node, source, receivers, created_at)
        VALUES (${id}, ${id}, ${kind}, ${of}, ${kind === "move" ? node : null}, ARRAY['none'], now())`
      return id
    })
    const away = yield* Effect.forEach(["emit", "erase", "move"] as const, (kind) => insert(kind, "away"))
    const other = yield* insert("resend", null)
    const ids = Effect.gen(function* () {
      const seen: Array<string> = []
      for (let sweep = yield* next("", []); sweep !== null; sweep = yield* next("", seen)) seen.push(sweep.sweepId)
      return seen
    })
    const clock = yield* Clock.Clock
    const later = (minutes: number): Clock.Clock =>
      Object.assign(Object.create(clock) as Clock.Clock, {
        monotonicTimeNanos: Effect.map(clock.monotonicTimeNanos, (nanos) => nanos + BigInt(minutes) * 60_000_000_000n),
      })
    for (const [minutes, id] of away.entries()) {
      yield* Effect.gen(function* () {
        assert.sameMembers(yield* ids, [...away, other])
        assert.strictEqual((yield* Effect.flip(advance(id, yield* DateTime.now, 100)))._tag, "Unavailable")
        assert.deepStrictEqual(yield* ids, [other])
      }).pipe(Effect.provideService(Clock.Clock, later(minutes)))
    }
  })
})
