import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { It } from "./webhookSupport.ts"
import { attempt, claim, claimOne, deliveriesOf, epoch, insertReceiver, leaseSeconds } from "./webhookSupport.ts"
import { plus, record, release } from "./webhookSupport.ts"

/** Puts right by a clock, with leases of a minute; what other tests have left is put right, too. */
const putRight = (now: DateTime.Utc, limit = 10_000) =>
  DeliveryQueue.use((queue) =>
    Effect.map(
      queue.correctTimes({ now, leaseUntil: plus(now, leaseSeconds), limit, after: null }),
      ({ moved }) => moved,
    ),
  )
const dueTimes = (orgId: string) =>
  Effect.map(deliveriesOf(orgId), (all) => all.toReversed().map(({ next_attempt_at }) => next_attempt_at))

/** What every DeliveryQueue does when the clock was set back by an hour: `then` is the time before, `now` after it. */
export const deliveryTimes = (it: It) => {
  it.effect("times: what has not been tried is due at once, in its order", () =>
    Effect.gen(function* () {
      const now = epoch()
      const then = plus(now, 3_600)
      const { orgId } = yield* insertReceiver(then, 3)
      assert.isAtLeast(yield* putRight(now), 3)
      assert.deepStrictEqual(yield* dueTimes(orgId), [now, now, now])
      assert.strictEqual(yield* putRight(now), 0)
      const ids = (yield* deliveriesOf(orgId)).map(({ delivery_id }) => delivery_id).toReversed()
      const claimed = (yield* claim(now, { limit: 10_000 })).filter((delivery) => delivery.orgId === orgId)
      assert.deepStrictEqual(
        claimed.map(({ deliveryId }) => deliveryId),
        ids,
      )
    }),
  )

  it.effect("times: what waits for room is due at once, tried or not", () =>
    Effect.gen(function* () {
      const now = epoch()
      const then = plus(now, 3_600)
      const { orgId } = yield* insertReceiver(then, 3)
      // One is claimed, and fails; by its retry the others are parked, and so is the retry when it is given back.
      const [first] = yield* claim(plus(then, 9), { laneCap: 1 })
      yield* record([attempt(first!, { retryAt: plus(then, 10) }, plus(then, 9))], plus(then, 9))
      const again = yield* claim(plus(then, 20), { limit: 10 })
      yield* release(again, plus(then, 20))
      yield* putRight(now)
      assert.deepStrictEqual(yield* dueTimes(orgId), [now, now, now])
    }),
  )

  it.effect("times: what is to be tried again waits as before; what is due or past its time stays so", () =>
    Effect.gen(function* () {
      const now = epoch()
      const { orgId } = yield* insertReceiver(plus(now, -100))
      const tried = yield* claimOne(now)
      const retryAt = plus(now, 3_900)
      yield* record([attempt(tried, { retryAt }, now)], now)
      const { orgId: other } = yield* insertReceiver(plus(now, -100))
      yield* putRight(now)
      assert.deepStrictEqual(yield* dueTimes(orgId), [retryAt])
      assert.deepStrictEqual(yield* dueTimes(other), [plus(now, -100)])
    }),
  )

  it.effect("times: a claim holds no longer than one of now, and not shorter than it did", () =>
    Effect.gen(function* () {
      const now = epoch()
      const then = plus(now, 3_600)
      const { orgId } = yield* insertReceiver(then)
      const claimed = yield* claimOne(then)
      const { orgId: other } = yield* insertReceiver(plus(now, -100))
      const held = (yield* claim(plus(now, -30), { leaseUntil: plus(now, 30) })).filter((one) => one.orgId === other)
      assert.lengthOf(held, 1)
      yield* putRight(now)
      assert.deepStrictEqual(yield* dueTimes(orgId), [plus(now, leaseSeconds)])
      assert.deepStrictEqual(yield* dueTimes(other), [plus(now, 30)])
      // It is recorded as it would have been.
      yield* record([attempt(claimed, "Delivered", now)], now)
      assert.deepStrictEqual(
        (yield* deliveriesOf(orgId)).map(({ state }) => state),
        ["delivered"],
      )
    }),
  )

  it.effect("times: no more are moved than asked for, and the rest the next time", () =>
    Effect.gen(function* () {
      const now = epoch()
      yield* putRight(now)
      const { orgId } = yield* insertReceiver(plus(now, 3_600), 5)
      assert.deepStrictEqual([yield* putRight(now, 2), yield* putRight(now, 2), yield* putRight(now, 2)], [2, 2, 1])
      assert.deepStrictEqual(yield* dueTimes(orgId), [now, now, now, now, now])
    }),
  )
}
