import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { insertOrg } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  assertNothingDue,
  attempt,
  claim,
  claimOne,
  day,
  deliveriesOf,
  endpointsOf,
  epoch,
  findDelivery,
  insertEndpoint,
  insertReceiver,
  leaseSeconds,
  makeEvent,
  plus,
  record,
  release,
  removeEndpoint,
  retry,
  updateEndpoint,
} from "./webhookSupport.ts"

const idsOf = (claimed: ReadonlyArray<ClaimedDelivery>) => claimed.map(({ deliveryId }) => deliveryId).sort()
const nextDueAt = DeliveryQueue.use((queue) => queue.nextDueAt)

/** The contract of an empty queue. Needs a database without a delivery, so it runs before every other test. */
export const emptyQueue = (it: It) => {
  it.effect("claim: an empty queue has nothing to claim, to wait for or to record", function* () {
    const now = epoch()
    assert.deepStrictEqual([yield* nextDueAt, yield* claim(now)], [null, []])
    const { orgId } = yield* insertReceiver(now)
    yield* record([attempt(yield* claimOne(now), "Delivered", now)], now)
    assert.deepStrictEqual([yield* nextDueAt, yield* claim(plus(now, day))], [null, []])
    yield* makeEvent(orgId, now, { skipCallbacks: true })
    assert.isNull(yield* nextDueAt)
  })
}

/** The contract of `claim` in every DeliveryQueue, without lanes. */
export const claims = (it: It) => {
  it.effect("claim: returns everything that an attempt needs", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now)
    const { delivery_id, event_id } = (yield* deliveriesOf(orgId))[0]!
    const [claimed, ...others] = yield* claim(now, { claimId: "claim" })
    assert.deepStrictEqual(others, [])
    assert.deepStrictEqual(claimed, {
      deliveryId: delivery_id,
      claimId: "claim",
      orgId,
      endpointId: endpoint,
      lane: endpoint,
      url: "https://example.com/hook",
      headerNames: "webhook",
      batchMax: null,
      secrets: [{ stored: "stored secret", owner: endpoint }],
      signingKeys: [],
      headers: null,
      auth: null,
      retryDelays: null,
      ordered: false,
      delayMillis: null,
      eventId: event_id,
      event: "job.completed",
      body: (yield* findDelivery(orgId, delivery_id)).payload,
      bytes: Buffer.byteLength((yield* findDelivery(orgId, delivery_id)).payload),
      attempts: 0,
      attemptsSinceResend: 0,
      failingSince: null,
      failures: 0,
    })
    const { state, attempts, next_attempt_at } = yield* findDelivery(orgId, delivery_id)
    assert.deepStrictEqual([state, attempts, next_attempt_at], ["pending", 0, plus(now, leaseSeconds)])
  })

  it.effect("claim: a callback has the url and secret of its job, and a lane for each org and origin", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const { orgId: other } = yield* insertOrg()
    const urls = ["https://a.example/1?x=1", "https://a.example:443/2", "https://b.example/1", "http://a.example/1"]
    const jobs: Array<string> = []
    for (const [org, callbackUrl] of [...urls.map((url) => [orgId, url] as const), [other, urls[0]!] as const]) {
      jobs.push(yield* makeEvent(org, now, { callbackUrl, callbackSecret: `secret ${jobs.length}` }))
    }
    const claimed = (yield* claim(now)).toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
    assert.deepStrictEqual(
      claimed.map(({ url, secrets, endpointId, failingSince }) => ({ url, secrets, endpointId, failingSince })),
      jobs.map((owner, n) => ({
        url: urls[n] ?? urls[0]!,
        secrets: [{ stored: `secret ${n}`, owner }],
        endpointId: null,
        failingSince: null,
      })),
    )
    const lanes = claimed.map(({ lane }) => lane)
    assert.deepStrictEqual([new Set(lanes).size, lanes[0] === lanes[1]], [4, true])
  })

  it.effect("claim: takes only due deliveries, the most overdue first", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(plus(now, 1), 3)
    const { orgId: earlier } = yield* insertReceiver(now, 1)
    assert.deepStrictEqual(yield* nextDueAt, now)
    assert.deepStrictEqual(yield* claim(plus(now, -0.001)), [])
    const [first] = (yield* deliveriesOf(earlier)).map((_) => _.delivery_id)
    const [third, second, ...last] = (yield* deliveriesOf(orgId)).map((_) => _.delivery_id).toReversed()
    assert.deepStrictEqual(idsOf(yield* claim(plus(now, 9), { limit: 2 })), [first!, third!].sort())
    assert.deepStrictEqual(yield* nextDueAt, plus(now, 2))
    assert.deepStrictEqual(idsOf(yield* claim(plus(now, 2))), [second!])
    assert.deepStrictEqual(idsOf(yield* claim(plus(now, 9))), last)
    yield* assertNothingDue(plus(now, 9 + leaseSeconds))
  })

  it.effect("claim: takes a delivery again when its lease ends, and not before", function* () {
    const now = epoch()
    yield* insertReceiver(now)
    const first = yield* claimOne(now)
    assert.deepStrictEqual(yield* claim(plus(now, leaseSeconds - 0.001)), [])
    const again = yield* claimOne(plus(now, leaseSeconds))
    assert.deepStrictEqual({ ...again, claimId: first.claimId }, first)
    assert.notStrictEqual(again.claimId, first.claimId)
  })

  it.effect("claim: takes no delivered, failed, canceled or skipped delivery", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 0)
    const removed = yield* insertEndpoint(orgId)
    yield* insertEndpoint(orgId, { active: false })
    yield* makeEvent(orgId, now)
    yield* removeEndpoint(orgId, removed, now)
    yield* makeEvent(orgId, now)
    const claimed = yield* claim(now)
    assert.deepStrictEqual(
      claimed.map(({ endpointId }) => endpointId),
      [endpoint, endpoint],
    )
    yield* record([attempt(claimed[0]!, "Delivered", now), attempt(claimed[1]!, "Exhausted", now)], now)
    assert.deepStrictEqual(yield* claim(plus(now, 20 * day)), [])
  })

  it.effect("claim: concurrent workers never share a delivery, and together get all of them", function* () {
    const now = epoch()
    const orgs = yield* Effect.replicateEffect(insertReceiver(now, 4), 6)
    const got = yield* Effect.replicateEffect(claim(plus(now, 9), { limit: 7 }), 6, { concurrency: "unbounded" })
    assert.isTrue(got.every((some) => some.length <= 7))
    const rest = yield* claim(plus(now, 9))
    const all = yield* Effect.forEach(orgs, ({ orgId }) => deliveriesOf(orgId))
    assert.deepStrictEqual(
      idsOf([...got.flat(), ...rest]),
      all
        .flat()
        .map((_) => _.delivery_id)
        .sort(),
    )
  })

  it.effect("claim: a changed url and secret apply from the next claim on", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now)
    const claimed = yield* claimOne(now)
    yield* updateEndpoint(orgId, endpoint, now, { url: "https://example.org/new", secret: "new secret" })
    const secretsAt = Effect.fnUntraced(function* (at: DateTime.Utc) {
      const { url, secrets } = yield* claimOne(at)
      assert.strictEqual(url, "https://example.org/new")
      assert.isTrue(secrets.every(({ owner }) => owner === endpoint))
      return secrets.map(({ stored }) => stored)
    })
    yield* record([attempt(claimed, { retryAt: plus(now, 5) }, now)], now)
    assert.deepStrictEqual(yield* secretsAt(plus(now, 5)), ["new secret", "stored secret"])
    assert.deepStrictEqual(yield* secretsAt(plus(now, day - 0.001)), ["new secret", "stored secret"])
    assert.deepStrictEqual(yield* secretsAt(plus(now, 2 * day)), ["new secret"])
    assert.strictEqual((yield* endpointsOf(orgId)).length, 1)
  })

  it.effect("release: a released delivery waits in the backlog of its lane, unchanged", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now, 3)
    const [first, ...others] = yield* claim(plus(now, 9))
    yield* release([], now)
    yield* release([first!], plus(now, 10))
    assert.strictEqual((yield* findDelivery(orgId, first!.deliveryId)).state, "pending")
    // The delivery is backlogged: it does not wake the worker, and can be claimed when a slot is free.
    yield* assertNothingDue(plus(now, 9 + leaseSeconds))
    const again = yield* claimOne(plus(now, 10))
    assert.deepStrictEqual({ ...again, claimId: first!.claimId }, first)
    // A release of another claim, or a second release, changes nothing.
    yield* release([first!, { ...others[0]!, claimId: "another" }], plus(now, 11))
    assert.deepStrictEqual(yield* claim(plus(now, 11)), [])
  })

  it.effect("release: ends the claim of a canceled delivery, which can be resent at once", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now)
    const claimed = yield* claimOne(now)
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* release([claimed], now)
    const { state, next_attempt_at } = yield* findDelivery(orgId, claimed.deliveryId)
    assert.deepStrictEqual([state, next_attempt_at, yield* claim(plus(now, 100))], ["canceled", null, []])
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    yield* retry(orgId, claimed.deliveryId, plus(now, 1))
    assert.strictEqual((yield* claimOne(plus(now, 1))).deliveryId, claimed.deliveryId)
  })
}
