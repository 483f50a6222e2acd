import { assert, describe, it } from "@effect/vitest"
import { type DateTime, Effect, Layer, Redacted } from "effect"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { Bucket, bucketOf } from "#src/infrastructure/database/buckets.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { DueBuckets } from "#src/infrastructure/jobs/dueBuckets.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import { at, insertOrg } from "../../contract/support.ts"
import { insertJob } from "../../contract/webhooks/webhookSupport.ts"
import * as crypto from "../../fakes/crypto.ts"
import { citusUrl, freshCitus } from "../../support/citus.ts"
import { until } from "../../support/wait.ts"
import { statementsOf } from "../orgs/orgLimitsSupport.ts"

/** A replica on a distributed database with three buckets. */
const replica = (url: string) =>
  Layer.mergeAll(DueBuckets.layer, JobsSql.layer, OrgsSql.layer).pipe(
    Layer.provide(crypto.layer),
    Layer.provideMerge(Layer.fresh(Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }))),
  )

/** The buckets in which a sweep of expired leases runs. */
const swept = (time: DateTime.Utc) =>
  DueBuckets.use(({ run }) =>
    run(
      "leases",
      time,
      Effect.gen(function* () {
        return yield* Bucket
      }),
    ),
  )

describe.skipIf(citusUrl === undefined)("buckets in which something is due", () => {
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
          return bucketOf(orgId, 3)
        })
        const counts = [yield* statementsOf(swept(at(60))), yield* statementsOf(swept(at(60)))]
        assert.deepStrictEqual(counts, [3, 0])
        const bucket = yield* lease
        assert.deepStrictEqual(yield* swept(at(59)), [])
        assert.deepStrictEqual(yield* swept(at(60)), [bucket])

        // What another replica leaves is found by a poll.
        let there = bucket
        while (there === bucket) there = yield* Effect.provide(lease, other)
        yield* until("the other replica's lease", swept(at(60)), (found) => found.includes(there))
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )
})
