import { assert, describe, it } from "@effect/vitest"
import { type DateTime, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { deactivated, type NewServiceEvent, type ServiceEvent } from "#src/domain/webhooks/Event.ts"
import { SigningKeyRepository } from "#src/domain/webhooks/Signatures.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { inOrg } from "#src/infrastructure/database/shards.ts"
import * as Usage from "#src/infrastructure/orgs/OrgUsageWorker.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { insertSchedule } from "../../../contract/jobs/schedules.ts"
import { at, insertOrg, newEntry, newId, newKey } from "../../../contract/support.ts"
import {
  attempt,
  claim,
  deliveriesOf,
  insertEndpoint,
  insertJob,
  jobsOf,
  publish,
  record,
  recover,
  removeEndpoint,
  retry,
  statesOf,
  updateEndpoint,
} from "../../../contract/webhooks/webhookSupport.ts"
import { citusUrl, closeDatabase, nodeOfShard, refuseConnections } from "../../../support/citus.ts"
import { orgIn, start } from "./oneNodeSupport.ts"

const eventOf = (
  { data, except = null, type }: NewServiceEvent,
  createdAt: DateTime.Utc,
): Effect.Effect<ServiceEvent> =>
  Effect.map(newId, (id) => ({ id, type, body: JSON.stringify(data), idempotencyKey: null, except, createdAt }))

/** Runs the open sweeps; returns their kinds. Those of the platform are on the coordinator, which must answer. */
const sweepAll = Effect.gen(function* () {
  const { advance, next } = yield* SweepRepository
  const kinds: Array<string> = []
  while (true) {
    const sweep = yield* next("", [])
    if (sweep === null) return kinds
    kinds.push(sweep.kind)
    assert.isNotNull(yield* advance(sweep.sweepId, at(50), 1_000))
  }
})

/**
 * A database with one shard, an org, and one connection of the service: to the node of the shard, and to no other; or
 * also to the coordinator.
 */
const startOnOneNode = Effect.fnUntraced(function* (others: "none" | "coordinator" = "none") {
  const { context, nodes } = yield* start("one")
  const { orgId } = yield* Effect.provide(insertOrg(), context)
  const node = yield* nodeOfShard(nodes[0]!, 0)
  for (const url of others === "none" ? nodes : nodes.slice(1)) if (url !== node) yield* closeDatabase(url)
  yield* Effect.provide(insertJob(orgId), context)
  // Citus would open another connection to this node, too.
  yield* refuseConnections(node)
  return { context, orgId }
})

describe.skipIf(citusUrl === undefined)("Citus, with one connection to one node", () => {
  it.live("endpoints and signing keys are created, changed, deactivated and deleted, and that is announced", () =>
    Effect.gen(function* () {
      const { context, orgId } = yield* startOnOneNode("coordinator")
      yield* Effect.gen(function* () {
        const endpoints = yield* WebhookEndpointRepository
        const settings = { headers: { stored: "h", names: ["a"] }, retryDelays: [1], signature: "ed25519" as const }
        const id = yield* insertEndpoint(orgId, { eventTypes: ["*"], maxPerSecond: 5, ...settings })
        const other = yield* insertEndpoint(orgId, { eventTypes: ["endpoint.deactivated"] })
        yield* updateEndpoint(orgId, id, at(1), { url: "https://example.com/new", secret: "new", maxPerSecond: 7 })
        yield* publish(orgId, "order.paid", at(2))
        const event = yield* eventOf(deactivated(id, "failing"), at(3))
        assert.isTrue(yield* endpoints.deactivate(orgId, id, at(3), newEntry({ event })))
        assert.deepStrictEqual(yield* statesOf(orgId), ["canceled"])
        yield* updateEndpoint(orgId, id, at(4), { active: true })
        yield* updateEndpoint(orgId, id, at(4), { active: false })
        yield* removeEndpoint(orgId, id, at(5))
        assert.strictEqual((yield* endpoints.list(orgId, { limit: 10 })).items.length, 1)

        const keys = yield* SigningKeyRepository
        const key = (n: string) => ({ publicKey: n, privateKey: n })
        yield* keys.insert(orgId, key("a"), at(6))
        yield* keys.rotate(orgId, key("b"), at(60), at(7), newEntry())
        assert.deepStrictEqual(yield* keys.find(orgId, at(8)), ["b", "a"])

        assert.deepStrictEqual(yield* sweepAll, ["announce"])
        const told = yield* deliveriesOf(orgId, { webhook_endpoint_id: other })
        assert.deepStrictEqual(
          told.map(({ state }) => state),
          ["pending"],
        )
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )

  it.live("schedules are created, changed, run, fired and deleted", () =>
    Effect.gen(function* () {
      const { context, orgId } = yield* startOnOneNode()
      yield* Effect.gen(function* () {
        const schedules = yield* JobScheduleRepository
        const input = { n: 1 }
        const ids = yield* Effect.forEach([0, 1, 2, 3, 4, 5], () => insertSchedule(orgId, at(10), { input }))
        const [id] = ids
        yield* schedules.update(orgId, id!, { workflow: "other", input: [1, 2] }, at(5), newEntry())
        yield* schedules.run(orgId, id!, yield* newId, at(6))
        assert.strictEqual((yield* schedules.fireDue({ now: at(10), limit: 100, after: null })).moved, 6)
        for (const one of ids) assert.isNotNull((yield* schedules.find(orgId, one)).lastJob)
        yield* schedules.remove(orgId, id!, newEntry())
        assert.strictEqual((yield* jobsOf(orgId)).length, 8)
        assert.strictEqual((yield* schedules.list(orgId, { limit: 10 })).items.length, 5)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )

  it.live("deliveries are resent and recovered, and sweeps insert those of many receivers", () =>
    Effect.gen(function* () {
      const { context, orgId } = yield* startOnOneNode("coordinator")
      yield* Effect.gen(function* () {
        const endpoint = yield* insertEndpoint(orgId, { eventTypes: ["order.paid"] })
        for (let n = 0; n < 6; n++) yield* publish(orgId, "order.paid", at(1))
        const failed = yield* claim(at(2))
        yield* record(
          failed.map((one) => attempt(one, "Exhausted", at(3))),
          at(3),
        )
        yield* retry(orgId, failed[0]!.deliveryId, at(4))
        assert.strictEqual(yield* recover(orgId, endpoint, at(0), at(5)), 5)
        yield* retry(orgId, failed[0]!.deliveryId, at(6))
        assert.deepStrictEqual(new Set(yield* statesOf(orgId)), new Set(["pending"]))
        assert.strictEqual((yield* claim(at(7))).length, 1)

        yield* Effect.forEach(Array.from({ length: 36 }), () => insertEndpoint(orgId, { eventTypes: ["order.sent"] }))
        yield* publish(orgId, "order.sent", at(8))
        assert.deepStrictEqual(yield* sweepAll, ["deliver"])
        assert.strictEqual((yield* deliveriesOf(orgId, { event_type: "order.sent" })).length, 36)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )

  it.live("changes of the platform need the coordinator and the node of the shard; stored bytes are written once", () =>
    Effect.gen(function* () {
      const { context, nodes } = yield* start("three")
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const usage = yield* OrgUsage
        const node = yield* nodeOfShard(nodes[0]!, 0)
        const others = nodes.slice(1).filter((url) => url !== node)
        const [here, there] = [yield* orgIn(0), yield* orgIn(1)]
        assert.include(others, yield* nodeOfShard(nodes[0]!, 1))
        yield* insertEndpoint(here, { eventTypes: ["key.created"] })
        for (const url of others) yield* closeDatabase(url)

        const keyed = { caller: "caller", operation: "create", key: "k" }
        const create = Effect.map(insertJob(here), (id) => ({ response: id, record: id }))
        const once = IdempotencyRepository.use((keys) => keys.once(keyed, { now: at(0), expiresAt: at(60) }, create))
        assert.deepStrictEqual([(yield* once)._tag, (yield* once)._tag], ["Ran", "Found"])
        assert.strictEqual((yield* jobsOf(here)).length, 1)
        const event = yield* eventOf({ type: "key.created", data: {} }, at(1))
        yield* ApiKeyRepository.use((keys) =>
          Effect.flatMap(newKey(), (key) => keys.insertForOrg(here, key, newEntry({ event }))),
        )
        const events = EventRepository.use((events) => events.list(here, "key.created", { limit: 10 }))
        assert.strictEqual((yield* events).length, 1)

        usage.addBytes(there, 5)
        usage.addBytes(here, 7)
        const refresh = yield* Usage.refreshUsage
        for (let n = 0; n < 2; n++) assert.strictEqual((yield* Effect.exit(refresh))._tag, "Failure")
        const stored = sql<{ n: number }>`SELECT stored_bytes::int AS n FROM org_usage WHERE org_id = ${here}`
        assert.deepStrictEqual(yield* inOrg(sql, here)(stored), [{ n: 7 }])
        assert.strictEqual(usage.unwrittenBytes(there), 5)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped),
  )
})
