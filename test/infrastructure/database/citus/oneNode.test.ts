import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { bucketOf } from "#src/infrastructure/database/buckets.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/ApiKeyRepository.ts"
import * as EventsSql from "#src/infrastructure/webhooks/EventRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/WebhookEndpointRepository.ts"
import { at, insertOrg, newEntry, newKey } from "../../../contract/support.ts"
import { heartbeat, insertJob } from "../../../contract/webhooks/webhookSupport.ts"
import * as crypto from "../../../fakes/crypto.ts"
import { citusUrl, closeDatabase, freshCitusNodes, nodeOfBucket } from "../../../support/citus.ts"

const repositories = Layer.mergeAll(
  ApiKeysSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer))

/** The repositories on a fresh distributed database, and the URLs of its nodes, the coordinator first. */
const start = Effect.gen(function* () {
  const nodes = yield* freshCitusNodes("three")
  const database = Database.layer({ databaseUrl: Redacted.make(nodes[0]!), dataDir: "unused" })
  const context = yield* Layer.build(Layer.provideMerge(repositories, database))
  return { nodes, context }
})

const orgIn = (bucket: number) =>
  Effect.gen(function* () {
    while (true) {
      const { orgId } = yield* insertOrg()
      if (bucketOf(orgId, 3) === bucket) return orgId
    }
  })

describe.skipIf(citusUrl === undefined)("Citus, with nodes that refuse every connection", () => {
  it.live("claims, leases, reads and lists of a tenant need the node of its bucket, and no other", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start
      yield* Effect.gen(function* () {
        const orgId = yield* orgIn(0)
        const other = yield* orgIn(1)
        const node = yield* nodeOfBucket(nodes[0]!, 0)
        assert.notStrictEqual(node, yield* nodeOfBucket(nodes[0]!, 1))
        const jobId = yield* insertJob(orgId)
        for (const url of nodes) if (url !== node) yield* closeDatabase(url)

        const jobs = yield* JobRepository
        const claim = { workflows: undefined, limit: 1, leaseUntil: at(60), now: at(0) }
        assert.strictEqual((yield* jobs.claim(orgId, claim)).length, 1)
        yield* jobs.extendLease(orgId, jobId, heartbeat(at(120), at(1)))
        assert.strictEqual((yield* jobs.find(orgId, jobId)).status, "running")
        assert.strictEqual((yield* jobs.list(orgId, {}, { limit: 10 })).items.length, 1)
        yield* (yield* WebhookEndpointRepository).list(orgId, { limit: 10 })
        const failed = yield* Effect.exit(insertJob(other))
        assert.strictEqual(failed._tag, "Failure")
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )

  it.live("a validation needs no worker", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start
      yield* Effect.gen(function* () {
        const { orgId } = yield* insertOrg()
        const keys = yield* ApiKeyRepository
        const key = yield* newKey()
        yield* keys.insertForOrg(orgId, key, newEntry())
        for (const url of nodes.slice(1)) yield* closeDatabase(url)
        assert.strictEqual((yield* keys.findByHashes([key.hash])).size, 1)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )
})
