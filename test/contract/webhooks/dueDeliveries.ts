import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { It } from "./webhookSupport.ts"
import { attempt, claim, claimOne, epoch, insertReceiver, leaseSeconds, plus, record } from "./webhookSupport.ts"

const due = (now: DateTime.Utc, limit = 100) => DeliveryQueue.use((queue) => queue.countDue(now, limit))
const nothing = { count: 0, oldestDueAt: null }

/** The contract of `countDue` in every DeliveryQueue. */
export const dueDeliveries = (it: It) => {
  it.effect("backlog: counts due deliveries up to the limit, and returns the time of the oldest", function* () {
    const now = epoch()
    assert.deepStrictEqual(yield* due(now), nothing)
    yield* insertReceiver(now, 3)
    assert.deepStrictEqual(yield* due(plus(now, -1)), nothing)
    assert.deepStrictEqual(yield* due(plus(now, 1)), { count: 2, oldestDueAt: now })
    assert.deepStrictEqual(yield* due(plus(now, 9)), { count: 3, oldestDueAt: now })
    assert.deepStrictEqual(yield* due(plus(now, 9), 2), { count: 2, oldestDueAt: now })
  })

  it.effect("backlog: a claimed delivery is due when its lease ends, and a retry at its own time", function* () {
    const now = epoch()
    yield* insertReceiver(now)
    const claimed = yield* claimOne(now)
    assert.deepStrictEqual(yield* due(plus(now, leaseSeconds - 1)), nothing)
    const leaseUntil = plus(now, leaseSeconds)
    assert.deepStrictEqual(yield* due(leaseUntil), { count: 1, oldestDueAt: leaseUntil })
    const retryAt = plus(now, 300)
    yield* record([attempt(claimed, { retryAt }, now)], now)
    assert.deepStrictEqual(yield* due(leaseUntil), nothing)
    assert.deepStrictEqual(yield* due(plus(retryAt, 1)), { count: 1, oldestDueAt: retryAt })
    yield* record([attempt(yield* claimOne(retryAt), "Delivered", retryAt)], retryAt)
    assert.deepStrictEqual(yield* due(plus(retryAt, 1)), nothing)
  })

  it.effect("backlog: backlogged deliveries of every lane count as due", function* () {
    const now = epoch()
    yield* insertReceiver(now, 3)
    yield* insertReceiver(plus(now, -5), 2)
    // Claims the first of each lane, and moves the others to the backlog.
    assert.lengthOf(yield* claim(plus(now, 9), { laneCap: 1 }), 2)
    assert.deepStrictEqual(yield* due(plus(now, 9)), { count: 3, oldestDueAt: plus(now, -4) })
    assert.deepStrictEqual(yield* due(plus(now, 9), 2), { count: 2, oldestDueAt: plus(now, -4) })
    // A clock that was set back does not matter to them.
    assert.deepStrictEqual(yield* due(plus(now, -9)), { count: 3, oldestDueAt: plus(now, -9) })
  })
}
