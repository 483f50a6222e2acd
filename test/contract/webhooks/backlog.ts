import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import { insertOrg } from "../support.ts"
import type { ClaimOptions, It } from "./webhookSupport.ts"
import {
  assertNothingDue,
  attempt,
  claim,
  deliveriesOf,
  epoch,
  insertReceiver,
  look,
  makeEvent,
  plus,
  record,
} from "./webhookSupport.ts"

/** The number of claimed deliveries of each lane. */
const claimedOf = (now: DateTime.Utc, options?: ClaimOptions) =>
  Effect.map(claim(now, options), (claimed) => {
    const lanes = new Map<string, number>()
    for (const { lane } of claimed) lanes.set(lane, (lanes.get(lane) ?? 0) + 1)
    return Object.fromEntries(lanes)
  })

/** The contract of lanes with a backlog in every DeliveryQueue. */
export const backlog = (it: It) => {
  it.effect("lanes: a claim takes as many of each lane as it has free slots, less those in flight", function* () {
    const now = epoch()
    const [a, b, c, d] = (yield* Effect.replicateEffect(insertReceiver(now, 6), 4)).map((_) => _.endpoint)
    const inFlight = new Map([
      [b!, 1],
      [c!, 3],
      [d!, 5],
      ["another", 3],
    ])
    assert.deepStrictEqual(yield* claimedOf(plus(now, 9), { laneCap: 3, inFlight }), { [a!]: 3, [b!]: 2 })
    // A delivery without a free slot does not wake the worker.
    yield* assertNothingDue(plus(now, 9 + 60))
    assert.deepStrictEqual(yield* claimedOf(plus(now, 9), { laneCap: 4, inFlight }), {
      [a!]: 3,
      [b!]: 3,
      [c!]: 1,
    })
    assert.deepStrictEqual(yield* claimedOf(plus(now, 9), { laneCap: 10 }), { [b!]: 1, [c!]: 5, [d!]: 6 })
    assert.deepStrictEqual(yield* claimedOf(plus(now, 9), { laneCap: 10 }), {})
  })

  it.effect(
    "lanes: a lane with deliveries in flight can have its own limit, and a failing lane has a limit of one",
    function* () {
      const now = epoch()
      const [a, b, c] = (yield* Effect.replicateEffect(insertReceiver(now, 6), 3)).map((_) => _.endpoint)
      const [first] = yield* claim(now, { limit: 1, inFlight: new Map([b!, c!].map((lane) => [lane, 10])) })
      yield* record([attempt(first!, { retryAt: plus(now, 300) }, now)], now)
      const lanes = new Map([a!, b!, c!].map((lane, n) => [lane, { count: n, cap: 5, works: true }]))
      assert.deepStrictEqual(yield* claimedOf(plus(now, 9), { laneCap: 2, lanes }), { [a!]: 1, [b!]: 4, [c!]: 3 })
    },
  )

  it.effect(
    "lanes: the most overdue deliveries of a lane come first, even when newer ones are ahead of its backlog",
    function* () {
      const now = epoch()
      const { orgId } = yield* insertReceiver(now, 5)
      const take = Effect.fnUntraced(function* (at: DateTime.Utc) {
        return (yield* claim(at, { laneCap: 2 })).map(({ deliveryId }) => deliveryId).sort()
      })
      assert.strictEqual((yield* take(plus(now, 9))).length, 2)
      yield* makeEvent(orgId, plus(now, 10))
      const ids = (yield* deliveriesOf(orgId)).map(({ delivery_id }) => delivery_id).toReversed()
      assert.deepStrictEqual(yield* take(plus(now, 10)), ids.slice(2, 4))
      assert.deepStrictEqual(yield* take(plus(now, 10)), ids.slice(4))
    },
  )

  it.effect("lanes: a full lane with any backlog does not block other lanes, at any claim limit", function* () {
    for (const limit of [100, 5, 1]) {
      const now = epoch()
      const { endpoint: full } = yield* insertReceiver(now, 60)
      const { endpoint: other } = yield* insertReceiver(plus(now, 100), 1)
      const inFlight = new Map([[full, 10]])
      assert.deepStrictEqual(yield* claimedOf(plus(now, 200), { limit, inFlight }), { [other]: 1 })
      assert.deepStrictEqual(yield* claimedOf(plus(now, 200), { limit, inFlight }), {})
      // None of the full lane's deliveries is lost when slots are free again.
      let taken = 0
      for (let n = 0; n < 60; n++) {
        const claimed = (yield* claimedOf(plus(now, 200), { limit, inFlight: new Map([[full, 5]]) }))[full] ?? 0
        assert.isAtMost(claimed, Math.min(limit, 5))
        taken += claimed
      }
      assert.strictEqual(taken, 60)
    }
  })

  it.effect("lanes: a failing endpoint has one slot until it succeeds, and other endpoints keep theirs", function* () {
    const now = epoch()
    const { endpoint: dead } = yield* insertReceiver(now, 6)
    const { endpoint: other } = yield* insertReceiver(now, 3)
    const at = plus(now, 9)
    const [first] = yield* claim(now, { laneCap: 1 })
    yield* record([attempt(first!, { retryAt: plus(now, 300) }, at)], at)
    const later = plus(now, 80)
    const inFlight = new Map([[dead, 1]])
    assert.deepStrictEqual(yield* claimedOf(later, { inFlight }), { [other]: 3 })
    const one = yield* claim(later)
    assert.deepStrictEqual(
      one.map(({ lane, failingSince }) => [lane, failingSince]),
      [[dead, at]],
    )
    yield* record([attempt(one[0]!, "Delivered", later)], later)
    assert.deepStrictEqual(yield* claimedOf(later), { [dead]: 4 })
    // A look finds the ended leases.
    yield* look
    assert.deepStrictEqual(yield* claimedOf(plus(now, 300), { inFlight: new Map([[dead, 4]]) }), {
      [dead]: 5,
      [other]: 3,
    })
  })

  it.effect(
    "lanes: callbacks to one origin share a lane, which has one slot from a failure to the next success",
    function* () {
      const now = epoch()
      const { orgId } = yield* insertOrg()
      const callback = { callbackUrl: "https://a.example/x", callbackSecret: "stored secret" }
      for (let n = 0; n < 5; n++) yield* makeEvent(orgId, now, callback)
      const [first, ...others] = yield* claim(now, { laneCap: 1 })
      assert.deepStrictEqual(others, [])
      yield* record([attempt(first!, { retryAt: plus(now, 300) }, now)], now)
      const [second, ...more] = yield* claim(now, { laneCap: 3 })
      assert.deepStrictEqual([second!.lane, second!.failingSince, more], [first!.lane, null, []])
      yield* record([attempt(second!, "Delivered", now)], now)
      assert.deepStrictEqual(yield* claimedOf(now, { laneCap: 3 }), { [first!.lane]: 3 })
    },
  )
}
