import { assert } from "@effect/vitest"
import { failureOf, insertOrg } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  attempt,
  claim,
  claimOne,
  deliveriesOf,
  endpointDeleted,
  endpointInactive,
  epoch,
  findDelivery,
  inFlight,
  insertEndpoint,
  insertReceiver,
  makeEvent,
  noSuchEndpoint,
  plus,
  record,
  recover,
  removeEndpoint,
  retry,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

/** The contract of resends in every DeliveryLogRepository. */
export const retries = (it: It) => {
  it.effect(
    "retry: a delivery in any state is due now, starts its schedule again, and continues its attempt numbers",
    function* () {
      for (const decision of ["Delivered", "Exhausted", "Retry"] as const) {
        const now = epoch()
        const { orgId } = yield* insertReceiver(now)
        const claimed = yield* claimOne(now)
        yield* record([attempt(claimed, decision === "Retry" ? { retryAt: plus(now, 999) } : decision, now)], now)
        const at = plus(now, 100)
        yield* retry(orgId, claimed.deliveryId, at)
        const { state, attempts, next_attempt_at, updated_at } = yield* findDelivery(orgId, claimed.deliveryId)
        assert.deepStrictEqual([state, attempts, next_attempt_at, updated_at], ["pending", 1, at, at])
        const again = yield* claimOne(at)
        assert.deepStrictEqual(
          [again.deliveryId, again.attempts, again.attemptsSinceResend],
          [claimed.deliveryId, 1, 0],
        )
        assert.strictEqual(again.body, claimed.body)
        yield* record([attempt(again, "Delivered", at)], at)
        const { attempt_log } = yield* findDelivery(orgId, claimed.deliveryId)
        assert.deepStrictEqual(
          attempt_log.map(({ number }) => number),
          [1, 2],
        )
      }
    },
  )

  it.effect("retry: is refused while an attempt is in flight, unless its lease has expired", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now)
    const stale = yield* claimOne(now)
    assert.strictEqual(yield* failureOf(retry(orgId, stale.deliveryId, plus(now, 59.999))), inFlight)
    yield* retry(orgId, stale.deliveryId, plus(now, 60))
    yield* record([attempt(stale, "Delivered", plus(now, 61))], plus(now, 61))
    assert.deepStrictEqual(yield* statesOf(orgId), ["pending"])
    assert.strictEqual((yield* claimOne(plus(now, 60))).attempts, 0)
  })

  it.effect("retry: a backlogged delivery is not queued twice", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now, 3)
    const [first] = yield* claim(plus(now, 9), { laneCap: 1 })
    for (const { delivery_id } of yield* deliveriesOf(orgId)) {
      if (delivery_id !== first!.deliveryId) yield* retry(orgId, delivery_id, plus(now, 10))
    }
    assert.strictEqual((yield* claim(plus(now, 10))).length, 2)
    assert.deepStrictEqual(yield* claim(plus(now, 10)), [])
  })

  it.effect("retry, recover: are refused for an inactive or deleted endpoint, and change nothing", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now)
    const claimed = yield* claimOne(now)
    yield* record([attempt(claimed, "Exhausted", now)], now)
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    assert.strictEqual(yield* failureOf(retry(orgId, claimed.deliveryId, now)), endpointInactive)
    assert.strictEqual(yield* failureOf(recover(orgId, endpoint, now, now)), endpointInactive)
    yield* removeEndpoint(orgId, endpoint, now)
    assert.strictEqual(yield* failureOf(retry(orgId, claimed.deliveryId, now)), endpointDeleted)
    assert.strictEqual(yield* failureOf(recover(orgId, endpoint, now, now)), noSuchEndpoint)
    assert.deepStrictEqual(yield* statesOf(orgId), ["failed"])
  })

  it.effect("retry: a callback needs no endpoint", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    yield* makeEvent(orgId, now, { callbackUrl: "https://example.com/cb", callbackSecret: "s" })
    const claimed = yield* claimOne(now)
    yield* record([attempt(claimed, "Exhausted", now)], now)
    yield* retry(orgId, claimed.deliveryId, now)
    assert.strictEqual((yield* claimOne(now)).deliveryId, claimed.deliveryId)
  })

  it.effect(
    "retry: a delivery that was canceled in flight waits until the lease of that attempt ends, and no longer",
    function* () {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now)
      const claimed = yield* claimOne(now)
      yield* updateEndpoint(orgId, endpoint, now, { active: false })
      yield* updateEndpoint(orgId, endpoint, now, { active: true })
      assert.strictEqual(yield* failureOf(retry(orgId, claimed.deliveryId, plus(now, 59))), inFlight)
      // The worker with the claim is gone, so nothing is ever recorded.
      yield* retry(orgId, claimed.deliveryId, plus(now, 60))
      assert.strictEqual((yield* claimOne(plus(now, 60))).deliveryId, claimed.deliveryId)
    },
  )

  it.effect(
    "recover: resends all unsuccessful deliveries of the endpoint in the range of time, and nothing else",
    function* () {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 5)
      const claimed = (yield* claim(plus(now, 4))).toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
      const decisions = ["Exhausted", "Exhausted", "Delivered", { retryAt: plus(now, 99) }] as const
      yield* record(
        decisions.map((decision, n) => attempt(claimed[n]!, decision, now)),
        now,
      )
      yield* updateEndpoint(orgId, endpoint, plus(now, 5), { active: false })
      yield* makeEvent(orgId, plus(now, 6))
      yield* updateEndpoint(orgId, endpoint, plus(now, 7), { active: true })
      yield* makeEvent(orgId, plus(now, 8))
      const other = yield* insertEndpoint(orgId, { active: false })
      yield* makeEvent(orgId, plus(now, 9))
      const before = ["failed", "failed", "delivered", "canceled", "canceled", "skipped", "pending", "pending"]
      assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: endpoint }), before)
      const at = plus(now, 100)
      assert.strictEqual(yield* recover(orgId, endpoint, plus(now, 1), at), 4)
      const after = ["failed", "pending", "delivered", ...Array<string>(5).fill("pending")]
      assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: endpoint }), after)
      assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: other }), ["skipped"])
      assert.strictEqual(yield* recover(orgId, endpoint, plus(now, 1), at), 0)
      const due = yield* claim(at, { laneCap: 100 })
      assert.deepStrictEqual(
        [due.length, new Set(due.map(({ attemptsSinceResend }) => attemptsSinceResend))],
        [6, new Set([0])],
      )
    },
  )

  it.effect("recover: an attempt in flight is not repeated, and its result counts", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 2)
    const [a, b] = yield* claim(plus(now, 1))
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    assert.strictEqual(yield* recover(orgId, endpoint, now, plus(now, 2)), 2)
    assert.deepStrictEqual(yield* claim(plus(now, 2)), [])
    const at = plus(now, 3)
    yield* record([attempt(a!, "Delivered", at), attempt(b!, { retryAt: plus(now, 8) }, at)], at)
    const { state, attempts, next_attempt_at } = yield* findDelivery(orgId, b!.deliveryId)
    assert.deepStrictEqual([state, attempts, next_attempt_at], ["pending", 1, plus(now, 8)])
    assert.strictEqual((yield* findDelivery(orgId, a!.deliveryId)).state, "delivered")
  })
}
