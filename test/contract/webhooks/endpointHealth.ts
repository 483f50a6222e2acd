import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { It } from "./webhookSupport.ts"
import {
  attempt,
  claim,
  claimOne,
  day,
  deliveriesOf,
  endpointsOf,
  epoch,
  failingSince,
  findDelivery,
  insertEndpoint,
  insertReceiver,
  makeEvent,
  plus,
  record,
  removeEndpoint,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

const listed = (orgId: string, id: string) =>
  Effect.map(endpointsOf(orgId), (all) => all.find((one) => one.webhook_endpoint_id === id)!)
const isActive = (orgId: string, id: string) => Effect.map(listed(orgId, id), ({ active }) => active)
const retryAt = (now: DateTime.Utc) => ({ retryAt: plus(now, 39 * day) })

/** The contract of `record` in every DeliveryQueue, for endpoints. */
export const endpointHealth = (it: It) => {
  it.effect("health: an endpoint counts as failing from its first failure to its next success", function* () {
    for (const decision of ["Exhausted", "Retry"] as const) {
      const now = epoch()
      const { endpoint, orgId } = yield* insertReceiver(now, 3)
      const failedWith = decision === "Retry" ? retryAt(now) : decision
      const first = yield* claimOne(now)
      yield* record([attempt(first, failedWith, now)], now)
      const second = yield* claimOne(plus(now, 1))
      assert.deepStrictEqual(second.failingSince, now)
      assert.deepStrictEqual((yield* listed(orgId, endpoint)).failing_since, now)
      yield* record([attempt(second, failedWith, plus(now, 1))], plus(now, 1))
      const third = yield* claimOne(plus(now, 2))
      assert.deepStrictEqual(third.failingSince, now)
      yield* record([attempt(third, "Delivered", plus(now, 2))], plus(now, 2))
      assert.isNull((yield* listed(orgId, endpoint)).failing_since)
      yield* makeEvent(orgId, plus(now, 3))
      assert.isNull((yield* claimOne(plus(now, 3))).failingSince)
    }
  })

  it.effect("health: an attempt that could not be signed does not change the health of its endpoint", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 1)
    const made = attempt(yield* claimOne(now), "Exhausted", now)
    const failure = { kind: "secret", message: "The signing secret cannot be read." } as const
    yield* record([{ ...made, outcome: { ...made.outcome, status: null, failure } }], now)
    assert.isNull(yield* failingSince(orgId, endpoint, now))
    assert.isTrue(yield* isActive(orgId, endpoint))
  })

  it.effect("health: a success counts even when its attempt began before the failure", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 2)
    const [a, b] = yield* claim(plus(now, 1))
    yield* record([attempt(a!, "Exhausted", plus(now, 2))], plus(now, 2))
    yield* record([attempt(b!, "Delivered", plus(now, 3))], plus(now, 3))
    assert.isNull(yield* failingSince(orgId, endpoint, now))
  })

  it.effect("health: the last attempt of a batch decides, and a success in it ends earlier failures", function* () {
    const orders = [
      [["Exhausted", "Delivered"], null],
      [["Delivered", "Exhausted"], 100],
      [["Exhausted", "Exhausted"], 0],
      [["Exhausted", "Delivered", "Exhausted"], 100],
    ] as const
    for (const [decisions, expected] of orders) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 4)
      const [before, ...batch] = (yield* claim(plus(now, 9))).filter((one) => one.orgId === orgId)
      yield* record([attempt(before!, "Exhausted", now)], now)
      const later = plus(now, 100)
      yield* record(
        decisions.map((decision, n) => attempt(batch[n]!, decision, later)),
        later,
      )
      assert.strictEqual(yield* failingSince(orgId, endpoint, now), expected)
    }
  })

  it.effect("health: activating an endpoint or changing its url clears its failures", function* () {
    const changes = [
      [{ active: true }, null],
      [{ url: "https://example.org/other" }, null],
      [{ url: "https://example.com/hook" }, 0],
      [{ secret: "new", description: "new" }, 0],
    ] as const
    for (const [change, expected] of changes) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now)
      yield* record([attempt(yield* claimOne(now), "Exhausted", now)], now)
      yield* updateEndpoint(orgId, endpoint, plus(now, 1), change)
      assert.strictEqual(yield* failingSince(orgId, endpoint, now), expected)
    }
  })

  it.effect("health: a 410 deactivates the endpoint, fails its delivery and cancels the others", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 4)
    const other = yield* insertEndpoint(orgId)
    yield* makeEvent(orgId, now)
    const claimed = (yield* claim(plus(now, 9), { limit: 2 })) as [ClaimedDelivery, ClaimedDelivery]
    // One is in flight, one is retried by the same batch, and the others wait.
    yield* record([attempt(claimed[0], "Deactivate", now), attempt(claimed[1], retryAt(now), now)], plus(now, 10))
    const { active, deactivated_reason } = yield* listed(orgId, endpoint)
    assert.deepStrictEqual([active, deactivated_reason], [false, "gone"])
    const states = yield* statesOf(orgId, { webhook_endpoint_id: endpoint })
    assert.deepStrictEqual(states.toSorted(), ["canceled", "canceled", "canceled", "canceled", "failed"])
    const [failed] = yield* deliveriesOf(orgId, { state: "failed" })
    assert.strictEqual(failed!.delivery_id, claimed[0].deliveryId)
    assert.isTrue(yield* isActive(orgId, other))
    assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: other }), ["pending"])
    yield* makeEvent(orgId, plus(now, 11))
    assert.strictEqual((yield* statesOf(orgId, { webhook_endpoint_id: endpoint })).at(-1), "skipped")
  })

  it.effect("health: an answer from an old url neither deactivates the endpoint nor counts as a failure", function* () {
    for (const decision of ["Deactivate", "Exhausted"] as const) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 2)
      const [claimed] = yield* claim(plus(now, 1), { limit: 1 })
      yield* updateEndpoint(orgId, endpoint, now, { url: "https://example.org/new" })
      yield* record([attempt(claimed!, decision, now)], now)
      assert.isTrue(yield* isActive(orgId, endpoint))
      assert.deepStrictEqual((yield* statesOf(orgId)).toSorted(), ["failed", "pending"])
      assert.isNull(yield* failingSince(orgId, endpoint, now))
    }
  })

  it.effect("health: five days of failures deactivate the endpoint, unless it was updated in between", function* () {
    const meanwhile = [
      [() => Effect.void, false],
      [(orgId: string, id: string, at: DateTime.Utc) => updateEndpoint(orgId, id, at, { active: true }), true],
    ] as const
    // Seen failing: an answer 410 that did not end was a failure for the delivery and a 410 for the endpoint.
    const broken = { status: 410, failure: { kind: "timeout", message: "" } } as const
    for (const [[change, expected], outcome] of meanwhile.flatMap((one) => [
      [one, { status: 500 }] as const,
      [one, broken] as const,
    ])) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 2)
      yield* record([attempt(yield* claimOne(now), "Exhausted", now)], now)
      const later = plus(now, 5 * day)
      const claimed = yield* claimOne(later)
      yield* change(orgId, endpoint, later)
      yield* record([attempt(claimed, "Deactivate", later, outcome)], later)
      assert.strictEqual(yield* isActive(orgId, endpoint), expected)
      assert.deepStrictEqual(yield* statesOf(orgId), ["failed", "failed"])
    }
  })

  // Seen failing: the delivery had failed with attempts left, and nobody was told.
  it.effect("health: an attempt that would deactivate an endpoint which stays active is retried", function* () {
    const retried = (one: ClaimedDelivery, at: DateTime.Utc, status: number) => ({
      ...attempt(one, "Deactivate", at, { status }),
      nextAttemptAt: plus(at, 60),
    })
    const cases = [
      [410, { url: "https://example.org/new" }, "before"],
      [500, { active: true }, "before"],
      [500, undefined, "before"],
      [500, undefined, "first"],
      [500, undefined, "last"],
    ] as const
    for (const [status, change, success] of cases) {
      const now = epoch()
      const { orgId, endpoint } = yield* insertReceiver(now, 3)
      yield* record([attempt(yield* claimOne(now), "Exhausted", now)], now)
      const later = plus(now, 5 * day)
      // Two replicas each make an attempt.
      const [one, other] = [yield* claimOne(later), yield* claimOne(later)]
      const delivered = attempt(other, "Delivered", later)
      if (change !== undefined) yield* updateEndpoint(orgId, endpoint, later, change)
      else if (success === "before") yield* record([delivered], later)
      const ending = retried(one, later, status)
      if (success === "first") yield* record([delivered, ending], later)
      else yield* record(success === "last" ? [ending, delivered] : [ending], later)
      assert.isTrue(yield* isActive(orgId, endpoint))
      const { next_attempt_at, state } = yield* findDelivery(orgId, one.deliveryId)
      assert.deepStrictEqual([state, next_attempt_at], ["pending", plus(later, 60)])
    }
  })

  it.effect("health: a 410 of a callback fails its delivery and nothing else", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(plus(now, 60))
    yield* makeEvent(orgId, now, { callbackUrl: "https://example.com/hook", callbackSecret: "s" })
    const claimed = yield* claimOne(now)
    yield* record([attempt(claimed, "Deactivate", now)], now)
    assert.deepStrictEqual(yield* statesOf(orgId), ["pending", "failed"])
    assert.isTrue(yield* isActive(orgId, endpoint))
  })

  it.effect("health: attempts in flight are recorded after their endpoint was deleted", function* () {
    const now = epoch()
    const { orgId, endpoint } = yield* insertReceiver(now, 3)
    const claimed = yield* claim(plus(now, 9))
    yield* removeEndpoint(orgId, endpoint, now)
    yield* record(
      [
        attempt(claimed[0]!, "Deactivate", now),
        attempt(claimed[1]!, "Exhausted", now),
        attempt(claimed[2]!, "Delivered", now),
      ],
      now,
    )
    assert.deepStrictEqual((yield* statesOf(orgId)).toSorted(), ["canceled", "canceled", "delivered"])
  })
}
