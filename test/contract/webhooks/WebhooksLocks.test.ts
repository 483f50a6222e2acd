import { assert } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { makeServiceEvent } from "#src/domain/ServiceEvent.ts"
import { deactivated } from "#src/domain/webhooks/Event.ts"
import type { DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import type { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { insertMany } from "./deliveriesAtScale.ts"
import { outcomeOf } from "../../domain/support.ts"
import { meanwhile, untilWaiting } from "../meet.ts"
import { insertOrg, newEntry } from "../support.ts"
import {
  attempt,
  claim,
  completed,
  deliveriesOf,
  epoch,
  finish,
  insertEndpoint,
  insertJob,
  insertReceiver,
  look,
  plus,
  publish,
  record,
  recover,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

const sql = Layer.mergeAll(
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  JobsSql.layer,
  EventsSql.layer,
  OrgsSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
).pipe(Layer.provideMerge(crypto.layer))

/** Holds a delivery's row until all statements wait for a lock, so that they run at the same time. */
const whileHeld = Effect.fnUntraced(function* <R>(
  deliveryId: string,
  effects: ReadonlyArray<Effect.Effect<unknown, unknown, R>>,
) {
  const sql = yield* SqlClient.SqlClient
  const held = yield* Deferred.make<void>()
  const holder = yield* Effect.gen(function* () {
    yield* sql`SELECT id FROM deliveries WHERE id = ${deliveryId} FOR UPDATE`
    yield* sql`SELECT delivery_id FROM pending_deliveries WHERE delivery_id = ${deliveryId} FOR UPDATE`
    yield* Deferred.succeed(held, undefined)
    yield* untilWaiting(effects.length)
  }).pipe(sql.withTransaction, Effect.forkChild)
  yield* Deferred.await(held)
  const results = yield* Effect.all(effects, { concurrency: "unbounded" })
  yield* Fiber.join(holder)
  return results
})

/** Adds so many other rows that PostgreSQL finds rows by their keys, in the order of the batch. */
const insertCrowd = Effect.gen(function* () {
  const { orgId, endpoint } = yield* insertReceiver(epoch(), 0)
  yield* insertMany({ orgId, endpoint, state: "delivered", count: 5_000, now: new Date(0) })
  yield* (yield* SqlClient.SqlClient)`ANALYZE`
})

/** Moves the newest row to the front, where a scan begins. */
const moveNewestFirst = Effect.fnUntraced(function* (orgId: string) {
  const sql = yield* SqlClient.SqlClient
  const ids = yield* sql<{ id: string }>`
    SELECT delivery_id AS id FROM pending_deliveries WHERE org_id = ${orgId} ORDER BY id DESC`
  for (const { id } of ids) {
    yield* sql`UPDATE pending_deliveries SET due_at = due_at + interval '1 second' WHERE delivery_id = ${id}`
  }
})

/** Runs the effect a second time while the transaction of the first is still open, then commits the first. */
const within = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
  const sql = yield* SqlClient.SqlClient
  const ready = yield* Deferred.make<void>()
  const second = yield* Effect.forkChild(Effect.andThen(Deferred.await(ready), effect))
  const first = yield* Effect.gen(function* () {
    const result = yield* effect
    yield* Deferred.succeed(ready, undefined)
    yield* Fiber.join(second)
    return result
  }).pipe(sql.withTransaction)
  return [first, yield* Fiber.join(second)] as const
})

// Runs on PostgreSQL only: the embedded database has one session, so sessions never meet there.
layer(Layer.provideMerge(sql, databases.postgres), { excludeTestServices: true })("locks", (it) => {
  it.effect("a 410 to a request from before an activation does not deactivate the endpoint again", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 2)
    const early = yield* claim(plus(now, 9))
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    const isActive = Effect.map(
      WebhookEndpointRepository.use((endpoints) => endpoints.get(orgId, { id: endpoint })),
      (found) => found.active,
    )
    yield* record([attempt(early[0]!, "Deactivate", now)], now)
    assert.isTrue(yield* isActive)
    // One from after it does, also beside one from before it.
    yield* recover(orgId, endpoint, plus(now, -60), now)
    const [late] = yield* claim(plus(now, 60))
    yield* record([attempt(late!, "Deactivate", now), attempt(early[1]!, "Deactivate", now)], plus(now, 60))
    assert.isFalse(yield* isActive)
  })

  // Seen failing without a lock: the change took the headers of the other one to its own host.
  it.effect("a change of a url that waits for another change sends its headers to no other host", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 0)
    const headers = (token: string) => ({ headers: { stored: token, names: ["authorization"] } })
    yield* updateEndpoint(orgId, endpoint, now, { url: "https://one.example/", ...headers("one") })
    const [, outcome] = yield* meanwhile(
      updateEndpoint(orgId, endpoint, now, { url: "https://two.example/", ...headers("two") }),
      outcomeOf(updateEndpoint(orgId, endpoint, now, { url: "https://one.example/new" })),
    )
    assert.notStrictEqual(outcome, "ok")
  })

  // Seen failing without the shared lock of the endpoints: a delivery was made that nobody sends or ends.
  it.effect("a sweep that makes a delivery waits for the end of its endpoint, and makes none", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = epoch()
    // One more than a publication inserts itself.
    const endpoints = yield* Effect.forEach(Array.from({ length: 33 }), () => insertEndpoint(orgId))
    const last = endpoints.toSorted().at(-1)!
    yield* publish(orgId, "invoice.paid", now)
    const [sweep] = yield* sql<{ id: string }>`SELECT id FROM sweeps WHERE org_id = ${orgId} AND kind = 'deliver'`
    yield* meanwhile(
      updateEndpoint(orgId, last, now, { active: false }),
      SweepRepository.use(({ advance }) => advance(sweep!.id, now, 100)),
    )
    assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: last }), ["skipped"])
  })

  // Seen failing without the shared lock of the endpoints: a delivery was made that nobody sends or ends.
  it.effect("an event that is published waits for the end of its endpoint, and is skipped", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 0)
    yield* meanwhile(
      updateEndpoint(orgId, endpoint, now, { active: false }),
      publish(orgId, "invoice.paid", plus(now, 1)),
    )
    assert.deepStrictEqual(yield* statesOf(orgId), ["skipped"])
  })

  // Seen failing without the shared lock of the endpoints: a delivery was queued that nobody sends or ends.
  it.effect("a resend waits for the end of its endpoint, and sends nothing", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now)
    const claimed = (yield* claim(plus(now, 9))).filter((one) => one.orgId === orgId)
    yield* record(
      claimed.map((one) => attempt(one, "Exhausted", now)),
      now,
    )
    yield* meanwhile(
      updateEndpoint(orgId, endpoint, now, { active: false }),
      recover(orgId, endpoint, plus(now, -60), plus(now, 10)),
    )
    assert.deepStrictEqual(yield* statesOf(orgId), ["failed"])
  })

  // Seen failing without the lock of the sweeps that are joined: a violation of a unique key.
  it.effect("a sweep of events that joins another one, which runs just now, makes its deliveries once", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const subject = yield* insertEndpoint(orgId, { eventTypes: ["endpoint.*"] })
    const watcher = yield* insertEndpoint(orgId, { eventTypes: ["endpoint.deactivated"] })
    const random = yield* SecureRandom.SecureRandom
    const repository = yield* WebhookEndpointRepository
    const change = { url: undefined, secret: undefined, previousSecretUntil: now, description: undefined, now }
    for (let times = 0; times < 2; times++) {
      const event = yield* makeServiceEvent(random, deactivated(subject, "by_request"), now)
      yield* repository.update(orgId, subject, { ...change, active: false }, newEntry({ event }))
      yield* updateEndpoint(orgId, subject, now, { active: true })
    }
    const sweeps = yield* sql<{ id: string }>`
      SELECT id FROM sweeps WHERE org_id = ${orgId} AND kind = 'emit' ORDER BY turn`
    assert.lengthOf(sweeps, 2)
    const advance = ({ id }: { readonly id: string }) => SweepRepository.use((all) => all.advance(id, now, 2_000))
    yield* meanwhile(advance(sweeps[1]!), advance(sweeps[0]!))
    assert.lengthOf(yield* deliveriesOf(orgId, { webhook_endpoint_id: watcher }), 2)
  })

  it.effect("a record of a batch in any order and the end of its endpoint do not deadlock", function* () {
    yield* insertCrowd
    for (const isReversed of [true, false]) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 9)
      const claimed = yield* claim(plus(now, 9))
      yield* moveNewestFirst(orgId)
      const made = claimed.map((one) => attempt(one, "Delivered", now))
      yield* whileHeld<DeliveryQueue | WebhookEndpointRepository>(claimed[4]!.deliveryId, [
        record(isReversed ? made.toReversed() : made, now),
        updateEndpoint(orgId, endpoint, now, { active: false }),
      ])
      assert.deepStrictEqual(yield* statesOf(orgId), Array(9).fill("delivered"))
    }
  })

  it.effect("batches of two workers do not deadlock, nor do a batch and a resend", function* () {
    yield* insertCrowd
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 9)
    const claimed = yield* claim(plus(now, 9))
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    yield* moveNewestFirst(orgId)
    const made = claimed.map((one) => attempt(one, "Exhausted", now))
    const sql = yield* SqlClient.SqlClient
    yield* whileHeld<DeliveryLogRepository | DeliveryQueue>(claimed[4]!.deliveryId, [
      record(made.toReversed(), now),
      record(made, now),
      recover(orgId, endpoint, now, plus(now, 10)),
    ])
    const log = sql<{ count: number }>`
        SELECT ((SELECT count(*) FROM delivery_attempts WHERE org_id = ${orgId}) + count(attempt_started_at))::int AS count
        FROM deliveries WHERE org_id = ${orgId}`
    assert.strictEqual((yield* log)[0]!.count, 9)
  })

  // With one statement that locks, and looks for the attempts, PostgreSQL 18 crashes now and then (ADR 55).
  it.effect("a cancellation that waits for a claim keeps the attempts of what it cancels", function* () {
    const sql = yield* SqlClient.SqlClient
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 9)
    // What other tests have left may be due, too.
    const claimed = (yield* claim(plus(now, 9))).filter((one) => one.orgId === orgId)
    yield* record(
      claimed.map((one) => attempt(one, { retryAt: plus(now, 60) }, now)),
      now,
    )
    const locked = yield* Deferred.make<void>()
    const holder = yield* Effect.gen(function* () {
      yield* sql`
          UPDATE pending_deliveries SET claim_id = 'another', lease_until = now() + interval '1 hour'
          WHERE org_id = ${orgId} AND delivery_id = ${claimed[0]!.deliveryId}`
      yield* Deferred.succeed(locked, undefined)
      yield* untilWaiting(1)
    }).pipe(sql.withTransaction, Effect.forkChild)
    yield* Deferred.await(locked)
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* Fiber.join(holder)
    const ended = yield* sql<{ attempts: number; made: boolean }>`
        SELECT attempts, attempt_started_at IS NOT NULL AS made FROM deliveries WHERE org_id = ${orgId}`
    assert.deepStrictEqual(
      ended,
      Array.from({ length: 8 }, () => ({ attempts: 1, made: true })),
    )
    assert.deepStrictEqual(yield* sql`SELECT delivery_id AS id FROM delivery_attempts WHERE org_id = ${orgId}`, [
      { id: claimed[0]!.deliveryId },
    ])
    assert.deepStrictEqual(new Set(yield* statesOf(orgId)), new Set(["canceled"]))
  })

  it.effect("an endpoint that is deactivated after an event was routed to it gets a skipped delivery", function* () {
    const sql = yield* SqlClient.SqlClient
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 0)
    const jobId = yield* insertJob(orgId)
    const changed = yield* Deferred.make<void>()
    const deactivation = yield* Effect.gen(function* () {
      yield* updateEndpoint(orgId, endpoint, now, { active: false })
      yield* Deferred.succeed(changed, undefined)
      yield* untilWaiting(1)
    }).pipe(sql.withTransaction, Effect.forkChild)
    yield* Deferred.await(changed)
    yield* finish(orgId, jobId, completed(), now)
    yield* Fiber.join(deactivation)
    assert.deepStrictEqual(yield* statesOf(orgId), ["skipped"])
  })

  it.effect("a claim of deliveries waits for no lock, and takes those that are not locked", function* () {
    const now = epoch()
    // The backlog that earlier tests left is due at any time.
    const sql = yield* SqlClient.SqlClient
    yield* sql`UPDATE pending_deliveries SET backlogged = false WHERE backlogged`
    const { orgId, endpoint } = yield* insertReceiver(now, 0)
    yield* insertMany({ orgId, endpoint, state: "pending", count: 600, now: DateTime.toDateUtc(now) })
    const [first, second] = yield* within(claim(now, { limit: 512, laneCap: 1000 }))
    assert.deepStrictEqual([first.length, second.length], [512, 88])
    assert.strictEqual(new Set([...first, ...second].map(({ deliveryId }) => deliveryId)).size, 600)

    // The same for a backlogged delivery. A look finds the ended leases.
    yield* look
    const due = yield* claim(plus(now, 60), { limit: 512, laneCap: 0 })
    assert.deepStrictEqual([due, yield* claim(plus(now, 60), { laneCap: 0 })], [[], []])
    yield* look
    const [third, fourth] = yield* within(claim(plus(now, 60), { limit: 512, laneCap: 150 }))
    assert.deepStrictEqual([third.length, fourth.length], [150, 150])
    assert.strictEqual(new Set([...third, ...fourth].map(({ deliveryId }) => deliveryId)).size, 300)
  })

  it.effect("a claim of jobs waits for no lock, and takes those that are not locked", function* () {
    const jobs = yield* JobRepository
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const ids = yield* Effect.replicateEffect(insertJob(orgId), 6)
    const [first, second] = yield* within(
      jobs.claim(orgId, { workflows: undefined, limit: 3, now, leaseUntil: plus(now, 60) }),
    )
    assert.deepStrictEqual(
      [...first, ...second].map((job) => job.job_id),
      ids,
    )
  })

  it.effect("a claim of jobs takes no more than its limit, with every query plan", function* () {
    const sql = yield* SqlClient.SqlClient
    const jobs = yield* JobRepository
    const now = epoch()
    // Tries every subset of the plan nodes that keep PostgreSQL from running the selection again for every row.
    const methods = ["nestloop", "hashjoin", "mergejoin", "hashagg", "sort", "material"]
    for (let n = 0; n <= methods.length; n++) {
      const off = methods.slice(n)
      const { orgId } = yield* insertOrg()
      yield* Effect.replicateEffect(insertJob(orgId), 6)
      const claimed = yield* Effect.gen(function* () {
        for (const method of off) yield* sql.unsafe(`SET LOCAL enable_${method} = off`)
        return yield* jobs.claim(orgId, { workflows: undefined, limit: 2, now, leaseUntil: plus(now, 60) })
      }).pipe(sql.withTransaction)
      assert.strictEqual(claimed.length, 2, off.join())
    }
  })
})
