import { assert } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { answer, failure } from "../../fakes/WebhookSender.ts"
import { awkwardTexts } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  attempt,
  claim,
  claimOne,
  deliveriesOf,
  endpointsOf,
  epoch,
  findDelivery,
  insertReceiver,
  plus,
  record,
  removeEndpoint,
  updateEndpoint,
} from "./webhookSupport.ts"

/** The contract of `record` in every DeliveryQueue, for deliveries. */
export const records = (it: It) => {
  it.effect("record: each decision sets its state, and the attempt is stored", function* () {
    const now = epoch()
    const cases = [
      ["Delivered", "delivered", null],
      [{ retryAt: plus(now, 300) }, "pending", plus(now, 300)],
      ["Exhausted", "failed", null],
      ["Deactivate", "failed", null],
    ] as const
    for (const [decision, expected, nextAt] of cases) {
      const { orgId } = yield* insertReceiver(now)
      const claimed = yield* claimOne(now)
      yield* record([attempt(claimed, decision, plus(now, 2), { duration: Duration.micros(1_400_600n) })], plus(now, 3))
      const { state, attempts, next_attempt_at, updated_at, attempt_log } = yield* findDelivery(
        orgId,
        claimed.deliveryId,
      )
      assert.deepStrictEqual([state, attempts, next_attempt_at, updated_at], [expected, 1, nextAt, plus(now, 3)])
      const status = { Delivered: 204, Exhausted: 500, Deactivate: 410, Retry: 500 }
      assert.deepStrictEqual(attempt_log, [
        {
          number: 1,
          started_at: plus(now, 1),
          duration_ms: 1401,
          status: status[typeof decision === "string" ? decision : "Retry"],
          failure: null,
          error: null,
          body: "",
        },
      ])
    }
  })

  it.effect("record: attempts are numbered consecutively, and any answer is stored as it is", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now)
    const outcomes = [
      ...awkwardTexts.map((body) => answer(500, { body })),
      ...awkwardTexts.map((text) => ({ ...failure("tls", text as "tls"), status: 200, body: "part" })),
      failure("timeout"),
    ]
    let at = now
    for (const [n, outcome] of outcomes.entries()) {
      const claimed = yield* claimOne(at)
      assert.deepStrictEqual([claimed.attempts, claimed.attemptsSinceResend], [n, n])
      yield* record([attempt(claimed, { retryAt: plus(at, 10) }, at, outcome)], at)
      at = plus(at, 10)
    }
    const { delivery_id } = (yield* deliveriesOf(orgId))[0]!
    const { attempts, attempt_log } = yield* findDelivery(orgId, delivery_id)
    assert.strictEqual(attempts, outcomes.length)
    assert.deepStrictEqual(
      attempt_log.map(({ number, status, failure, error, body }) => ({ number, status, failure, error, body })),
      outcomes.map(({ status, failure, body }, n) => ({
        number: n + 1,
        status,
        failure: failure?.kind ?? null,
        error: failure?.message ?? null,
        body,
      })),
    )
  })

  it.effect("record: each delivery of a batch follows its own record, even when a whole column is null", function* () {
    const now = epoch()
    yield* record([], now)
    const { orgId } = yield* insertReceiver(now, 6)
    const claimed = yield* claim(plus(now, 9))
    // No attempt has an answer, so five columns of the batch are all null.
    const nothing = claimed
      .slice(0, 3)
      .map((one) => attempt(one, "Exhausted", now, { ...failure("dns"), failure: null }))
    yield* record(nothing, now)
    yield* record(
      [
        attempt(claimed[3]!, "Delivered", now, { status: 299 }),
        attempt(claimed[4]!, { retryAt: plus(now, 99) }, now, failure("connection", "reset")),
        attempt(claimed[5]!, "Exhausted", now, { status: 404, body: "gone" }),
      ],
      now,
    )
    const seen = yield* Effect.forEach(claimed, ({ deliveryId }) =>
      Effect.map(findDelivery(orgId, deliveryId), ({ state, attempt_log: [made, ...others] }) => {
        assert.deepStrictEqual(others, [])
        return [state, made?.status, made?.failure, made?.error, made?.body]
      }),
    )
    const none = ["failed", null, null, null, null]
    assert.deepStrictEqual(seen, [
      none,
      none,
      none,
      ["delivered", 299, null, null, ""],
      ["pending", null, "connection", "reset", null],
      ["failed", 404, null, null, "gone"],
    ])
  })

  it.effect("record: no text that a receiver sends can prevent the record of a batch", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now, 2)
    const [a, b] = yield* claim(plus(now, 1))
    const poison = { body: "a\0b", failure: { kind: "tls", message: "\0" } } as const
    yield* record([attempt(a!, "Exhausted", now, poison), attempt(b!, "Delivered", now)], now)
    const [made] = (yield* findDelivery(orgId, a!.deliveryId)).attempt_log
    assert.deepStrictEqual([made?.body, made?.error], ["a\uFFFDb", "\uFFFD"])
    assert.strictEqual((yield* findDelivery(orgId, b!.deliveryId)).state, "delivered")
  })

  it.effect("record: a worker whose lease expired cannot overwrite the record of the next claim", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 2)
    const [stale, other] = yield* claim(plus(now, 1))
    const claimed = yield* claim(plus(now, 61))
    const fresh = claimed.find(({ deliveryId }) => deliveryId === stale!.deliveryId)
    const last = claimed.find(({ deliveryId }) => deliveryId === other!.deliveryId)
    const before = yield* findDelivery(orgId, stale!.deliveryId)
    for (const decision of ["Delivered", "Exhausted", { retryAt: now }, "Deactivate"] as const) {
      yield* record([attempt(stale!, decision, now)], now)
      assert.deepStrictEqual(yield* findDelivery(orgId, stale!.deliveryId), before)
    }
    // The late record does not change the health of the endpoint either.
    assert.isTrue((yield* endpointsOf(orgId)).every(({ active }) => active))
    assert.isNull((yield* findDelivery(orgId, other!.deliveryId)).attempt_log[0] ?? null)
    const retried = attempt(fresh!, { retryAt: plus(now, 70) }, plus(now, 62))
    yield* record([retried, attempt(last!, "Exhausted", plus(now, 62))], plus(now, 62))
    const again = yield* claim(plus(now, 200), { laneCap: 1000 })
    assert.deepInclude(again[0], { attempts: 1, endpointId: endpoint, failingSince: plus(now, 62) })
    // The same record again changes nothing.
    yield* record([attempt(fresh!, "Delivered", now)], now)
    const { state, attempts } = yield* findDelivery(orgId, fresh!.deliveryId)
    assert.deepStrictEqual([state, attempts], ["pending", 1])
  })

  it.effect(
    "record: an attempt canceled in flight is stored, and the delivery stays canceled unless it was delivered",
    function* () {
      const now = epoch()
      for (const end of [
        (orgId: string, endpoint: string) => removeEndpoint(orgId, endpoint, now),
        (orgId: string, endpoint: string) => updateEndpoint(orgId, endpoint, now, { active: false }),
      ]) {
        const { orgId, endpoint } = yield* insertReceiver(now, 4)
        const claimed = yield* claim(plus(now, 9))
        yield* end(orgId, endpoint)
        for (const { deliveryId } of claimed) {
          const { state, next_attempt_at } = yield* findDelivery(orgId, deliveryId)
          assert.deepStrictEqual([state, next_attempt_at], ["canceled", null])
        }
        const decisions = ["Delivered", { retryAt: plus(now, 10) }, "Exhausted", "Deactivate"] as const
        yield* record(
          claimed.map((one, n) => attempt(one, decisions[n]!, now)),
          now,
        )
        for (const [n, { deliveryId }] of claimed.entries()) {
          const { state, attempts, next_attempt_at } = yield* findDelivery(orgId, deliveryId)
          assert.deepStrictEqual([state, attempts, next_attempt_at], [n === 0 ? "delivered" : "canceled", 1, null])
        }
        assert.deepStrictEqual(yield* claim(plus(now, 1000)), [])
      }
    },
  )
}
