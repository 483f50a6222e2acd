import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { insertOrg } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
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

/** What is said of nothing. This needs a database without a delivery, so it comes before every other test. */
export const emptyQueue = (it: It) => {
  it.effect("claim: of an empty queue there is nothing to take up, to wait for or to record", () =>
    Effect.gen(function* () {
      const now = epoch()
      assert.deepStrictEqual([yield* nextDueAt, yield* claim(now)], [null, []])
      const { orgId } = yield* insertReceiver(now)
      yield* record([attempt(yield* claimOne(now), "Delivered", now)], now)
      assert.deepStrictEqual([yield* nextDueAt, yield* claim(plus(now, day))], [null, []])
      yield* makeEvent(orgId, now, { skipCallbacks: true })
      assert.isNull(yield* nextDueAt)
    }),
  )
}

/** What every DeliveryQueue does in `claim`, but for lanes. */
export const claims = (it: It) => {
  it.effect("claim: gives all that an attempt needs", () =>
    Effect.gen(function* () {
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
        secrets: [{ stored: "stored secret", owner: endpoint }],
        signingKeys: [],
        headers: null,
        retryDelays: null,
        ordered: false,
        delayMillis: null,
        eventId: event_id,
        event: "job.completed",
        body: (yield* findDelivery(orgId, delivery_id)).payload,
        attempts: 0,
        attemptsSinceResend: 0,
        failingSince: null,
        failures: 0,
      })
      const { state, attempts, next_attempt_at } = yield* findDelivery(orgId, delivery_id)
      assert.deepStrictEqual([state, attempts, next_attempt_at], ["pending", 0, plus(now, leaseSeconds)])
    }),
  )

  it.effect("claim: of a callback, the job's own url and secret; a lane for each org and origin", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("claim: only what is due, the longest due first", () =>
    Effect.gen(function* () {
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
      assert.deepStrictEqual(yield* nextDueAt, plus(now, 2 + leaseSeconds))
    }),
  )

  it.effect("claim: not again while its lease runs, and again when that is over", () =>
    Effect.gen(function* () {
      const now = epoch()
      yield* insertReceiver(now)
      const first = yield* claimOne(now)
      assert.deepStrictEqual(yield* claim(plus(now, leaseSeconds - 0.001)), [])
      const again = yield* claimOne(plus(now, leaseSeconds))
      assert.deepStrictEqual({ ...again, claimId: first.claimId }, first)
      assert.notStrictEqual(again.claimId, first.claimId)
    }),
  )

  it.effect("claim: nothing of what is delivered, failed, canceled or skipped", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("claim: workers that come at once share nothing, and between them get all", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("claim: a url and a secret that were changed count from here on", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("release: what is given back waits behind its lane, as it was", () =>
    Effect.gen(function* () {
      const now = epoch()
      const { orgId } = yield* insertReceiver(now, 3)
      const [first, ...others] = yield* claim(plus(now, 9))
      yield* release([], now)
      yield* release([first!], plus(now, 10))
      assert.strictEqual((yield* findDelivery(orgId, first!.deliveryId)).state, "pending")
      // It is parked: nothing to wake up for, and there for whoever has room.
      assert.deepStrictEqual(yield* nextDueAt, plus(now, 9 + leaseSeconds))
      const again = yield* claimOne(plus(now, 10))
      assert.deepStrictEqual({ ...again, claimId: first!.claimId }, first)
      // Neither another's nor twice.
      yield* release([first!, { ...others[0]!, claimId: "another" }], plus(now, 11))
      assert.deepStrictEqual(yield* claim(plus(now, 11)), [])
    }),
  )

  it.effect("release: of what was canceled meanwhile the claim ends, and it may be tried again at once", () =>
    Effect.gen(function* () {
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
    }),
  )
}
