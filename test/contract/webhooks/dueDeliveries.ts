import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { It } from "./webhookSupport.ts"
import { attempt, claim, claimOne, epoch, insertReceiver, leaseSeconds, plus, record } from "./webhookSupport.ts"

const due = (now: DateTime.Utc, limit = 100) => DeliveryQueue.use((queue) => queue.countDue(now, limit))
const nothing = { count: 0, oldestDueAt: null }

/** What every DeliveryQueue tells of the deliveries that are due. */
export const dueDeliveries = (it: It) => {
  it.effect("backlog: what is due, counted up to the limit, and since when the oldest is", () =>
    Effect.gen(function* () {
      const now = epoch()
      assert.deepStrictEqual(yield* due(now), nothing)
      yield* insertReceiver(now, 3)
      assert.deepStrictEqual(yield* due(plus(now, -1)), nothing)
      assert.deepStrictEqual(yield* due(plus(now, 1)), { count: 2, oldestDueAt: now })
      assert.deepStrictEqual(yield* due(plus(now, 9)), { count: 3, oldestDueAt: now })
      assert.deepStrictEqual(yield* due(plus(now, 9), 2), { count: 2, oldestDueAt: now })
    }),
  )

  it.effect("backlog: what is taken up is not due until its lease ends, what is to be tried again when it is", () =>
    Effect.gen(function* () {
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
    }),
  )

  it.effect("backlog: what waits for room in its lane is due like any other, of every lane", () =>
    Effect.gen(function* () {
      const now = epoch()
      yield* insertReceiver(now, 3)
      yield* insertReceiver(plus(now, -5), 2)
      // Takes up the first of each lane; the others are passed over.
      assert.lengthOf(yield* claim(plus(now, 9), { laneCap: 1 }), 2)
      assert.deepStrictEqual(yield* due(plus(now, 9)), { count: 3, oldestDueAt: plus(now, -4) })
      assert.deepStrictEqual(yield* due(plus(now, 9), 2), { count: 2, oldestDueAt: plus(now, -4) })
      assert.deepStrictEqual(yield* due(plus(now, 0)), { count: 1, oldestDueAt: plus(now, -4) })
    }),
  )
}
