import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { at, insertOrg, newEntry, newId, newKey } from "../../../contract/support.ts"
import {
  attempt,
  cancelJob,
  claim,
  completed,
  deliveriesOf,
  failed,
  finish,
  heartbeat,
  insertEndpoint,
  insertJob,
  publish,
  record,
  statesOf,
} from "../../../contract/webhooks/webhookSupport.ts"
import { citusUrl, closeDatabase, nodeOfShard, refuseConnections } from "../../../support/citus.ts"
import { orgIn, start } from "./oneNodeSupport.ts"

describe.skipIf(citusUrl === undefined)("Citus, with nodes that refuse every connection", () => {
  it.live("claims, leases, reads and lists of a tenant need the node of its shard, and no other", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start("three")
      yield* Effect.gen(function* () {
        const orgId = yield* orgIn(0)
        const other = yield* orgIn(1)
        const node = yield* nodeOfShard(nodes[0]!, 0)
        assert.notStrictEqual(node, yield* nodeOfShard(nodes[0]!, 1))
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

  it.live("a tenant's jobs, events and deliveries need one connection to the node of its shard, and no other", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start("one")
      yield* Effect.gen(function* () {
        const { orgId } = yield* insertOrg()
        const node = yield* nodeOfShard(nodes[0]!, 0)
        const endpoint = yield* insertEndpoint(orgId, { eventTypes: ["*"] })
        yield* insertEndpoint(orgId, { eventTypes: ["delivery.failed"] })
        for (const url of nodes) if (url !== node) yield* closeDatabase(url)
        // Opens a connection of the service.
        yield* insertJob(orgId)
        // Citus would open another connection to this node, too.
        yield* refuseConnections(node)

        const key = { idempotencyKey: "once" }
        const jobId = yield* insertJob(orgId, key)
        assert.strictEqual(yield* insertJob(orgId, key), jobId)
        yield* finish(orgId, jobId, completed({ answer: 42 }), at(1))
        yield* finish(orgId, yield* insertJob(orgId), failed(), at(2))
        const running = yield* insertJob(orgId)
        const jobs = yield* JobRepository
        yield* jobs.claim(orgId, { workflows: undefined, limit: 10, leaseUntil: at(60), now: at(2) })
        yield* finish(orgId, running, failed(), at(2), { retry: true })
        yield* cancelJob(orgId, yield* insertJob(orgId), at(2))

        const id = yield* publish(orgId, "order.paid", at(3), key)
        assert.strictEqual(yield* publish(orgId, "order.paid", at(3), key), id)
        const event = (n: number) =>
          Effect.map(newId, (id) => {
            return {
              id,
              type: "order.sent",
              body: `{"n":${n}}`,
              idempotencyKey: n < 5 ? `n${n}` : null,
              createdAt: at(4),
            }
          })
        for (const first of [1, 4]) {
          const batch = yield* Effect.forEach(
            Array.from({ length: 10 }, (_, n) => n + first),
            event,
          )
          assert.strictEqual((yield* (yield* EventRepository).publish(orgId, batch)).ids.length, 10)
        }
        assert.strictEqual((yield* deliveriesOf(orgId)).length, 22)

        const [retried, answered] = yield* claim(at(10), { limit: 2 })
        yield* record([attempt(retried!, { retryAt: at(20) }, at(11))], at(11))
        yield* record([attempt(answered!, "Delivered", at(12))], at(12))
        const [exhausted, ...delivered] = yield* claim(at(21), { laneCap: 100 })
        assert.isTrue(delivered.some(({ attempts }) => attempts === 1))
        yield* record(
          delivered.map((one) => attempt(one, "Delivered", at(22))),
          at(22),
        )
        yield* record([attempt(exhausted!, "Exhausted", at(23))], at(23))

        const callbackUrl = "https://example.com/callback"
        yield* finish(orgId, yield* insertJob(orgId, { callbackUrl, callbackSecret: "secret" }), completed(), at(30))
        yield* publish(orgId, "order.paid", at(30))
        const ends: Array<string | null> = []
        for (const seconds of [31, 34]) {
          const last = yield* claim(at(seconds), { laneCap: 100 })
          ends.push(...last.map(({ endpointId }) => endpointId))
          const end = (id: string | null) => (id === null ? "Exhausted" : "Deactivate")
          yield* record(
            last.map((one) => attempt(one, end(one.endpointId), at(seconds + 1))),
            at(seconds + 1),
          )
        }
        assert.includeMembers(ends, [null, endpoint])
        assert.sameMembers([...new Set(yield* statesOf(orgId))], ["delivered", "failed"])
        assert.strictEqual((yield* (yield* EventRepository).list(orgId, "delivery.failed", { limit: 10 })).length, 2)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )

  it.live("a validation needs no worker", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start("three")
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
