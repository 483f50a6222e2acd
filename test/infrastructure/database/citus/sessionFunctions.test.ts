import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { inOrg } from "#src/infrastructure/database/shards.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as EventsSql from "#src/infrastructure/webhooks/EventRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import { at, insertOrg } from "../../../contract/support.ts"
import { publish } from "../../../contract/webhooks/webhookSupport.ts"
import * as crypto from "../../../fakes/crypto.ts"
import { citusUrl, freshCitus } from "../../../support/citus.ts"

const repositories = Layer.mergeAll(EventsSql.layer, OrgsSql.layer).pipe(Layer.provide(crypto.layer))

describe.skipIf(citusUrl === undefined)("Functions of connections to shards", () => {
  it.live("work after the transaction that created them was rolled back", () =>
    Effect.gen(function* () {
      const database = Database.layer({ databaseUrl: Redacted.make(yield* freshCitus("one")), dataDir: "unused" })
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { orgId } = yield* insertOrg()
        const inTransaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
          inOrg(sql, orgId)(sql.withTransaction(effect))

        const undone = publish(orgId, "a", at(0)).pipe(Effect.andThen(Effect.fail("undone")))
        assert.strictEqual(yield* Effect.flip(inTransaction(undone)), "undone")
        const ids = [yield* inTransaction(publish(orgId, "b", at(1)))]
        ids.push(yield* publish(orgId, "b", at(2)), yield* inTransaction(publish(orgId, "b", at(3))))
        const events = yield* (yield* EventRepository).list(orgId, undefined, { limit: 10 })
        assert.deepStrictEqual(
          events.map(({ event_id }) => event_id),
          ids.toReversed(),
        )
      }).pipe(Effect.provide(Layer.provideMerge(repositories, database)))
    }).pipe(Effect.scoped),
  )
})
