import { assert, describe, it } from "@effect/vitest"
import { type DateTime, Effect, Layer, Redacted } from "effect"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { Shard, shardOf } from "#src/infrastructure/database/shards.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { DueShards } from "#src/infrastructure/jobs/dueShards.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import { at, insertOrg } from "../../contract/support.ts"
import { insertJob } from "../../contract/webhooks/webhookSupport.ts"
import * as crypto from "../../fakes/crypto.ts"
import { citusUrl, freshCitus } from "../../support/citus.ts"
import { until } from "../../support/wait.ts"
import { statementsOf } from "../orgs/orgLimitsSupport.ts"

/** A replica on a distributed database with three shards. */
const replica = (url: string) =>
  Layer.mergeAll(DueShards.layer, JobsSql.layer, OrgsSql.layer).pipe(
    Layer.provide(crypto.layer),
    Layer.provideMerge(Layer.fresh(Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }))),
  )

/** The shards in which a sweep of expired leases runs. */
const swept = (time: DateTime.Utc) =>
  DueShards.use(({ run }) =>
    run(
      "leases",
      time,
      Effect.gen(function* () {
        return yield* Shard
      }),
    ),
  )

describe.skipIf(citusUrl === undefined)("shards in which something is due", () => {
  it.live("are swept when it is due, and cost nothing between two polls", () =>
    Effect.gen(function* () {
      const url = yield* freshCitus("three")
      const context = yield* Layer.build(replica(url))
      const other = yield* Layer.build(Layer.fresh(replica(url)))
      yield* Effect.gen(function* () {
        const lease = Effect.gen(function* () {
          const { orgId } = yield* insertOrg()
          yield* insertJob(orgId)
          yield* (yield* JobRepository).claim(orgId, { workflows: undefined, limit: 1, leaseUntil: at(60), now: at(0) })
          return shardOf(orgId, 3)
        })
        const counts = [yield* statementsOf(swept(at(60))), yield* statementsOf(swept(at(60)))]
        assert.deepStrictEqual(counts, [3, 0])
        const shard = yield* lease
        assert.deepStrictEqual(yield* swept(at(59)), [])
        assert.deepStrictEqual(yield* swept(at(60)), [shard])

        // What another replica leaves is found by a poll.
        let there = shard
        while (there === shard) there = yield* Effect.provide(lease, other)
        yield* until("the other replica's lease", swept(at(60)), (found) => found.includes(there))
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )
})
