import { assert } from "@effect/vitest"
import { type DateTime, Effect } from "effect"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import {
  attempt,
  claim,
  claimOne,
  deliveriesOf,
  epoch,
  insertReceiver,
  type It,
  leaseSeconds,
  plus,
  record,
  release,
} from "./webhookSupport.ts"

/**
 * Corrects times after the clock stepped back to `now`, with leases of a minute. Rows of earlier tests are corrected
 * too.
 */
const correctTimes = (now: DateTime.Utc, limit = 10_000) =>
  DeliveryQueue.use((queue) => queue.correctTimes({ now, leaseUntil: plus(now, leaseSeconds), limit }))
const dueTimes = (orgId: string) =>
  Effect.map(deliveriesOf(orgId), (all) => all.toReversed().map(({ next_attempt_at }) => next_attempt_at))

/**
 * The contract of every DeliveryQueue after the clock stepped back an hour: `then` is the time before, `now` the time
 * after.
 */
export const deliveryTimes = (it: It) => {
  it.effect("times: deliveries without an attempt are due at once, in their order", function* () {
    const now = epoch()
    const then = plus(now, 3_600)
    const { orgId } = yield* insertReceiver(then, 3)
    assert.isAtLeast(yield* correctTimes(now), 3)
    assert.deepStrictEqual(yield* dueTimes(orgId), [now, now, now])
    assert.strictEqual(yield* correctTimes(now), 0)
    const ids = (yield* deliveriesOf(orgId)).map(({ delivery_id }) => delivery_id).toReversed()
    const claimed = (yield* claim(now, { limit: 10_000 })).filter((delivery) => delivery.orgId === orgId)
    assert.deepStrictEqual(
      claimed.map(({ deliveryId }) => deliveryId),
      ids,
    )
  })

  it.effect("times: the backlog is due at once, with or without an attempt", function* () {
    const now = epoch()
    const then = plus(now, 3_600)
    yield* insertReceiver(then, 3)
    // One delivery is claimed and fails. When its retry is due, the others are backlogged, and so is the released
    // retry.
    const [first] = yield* claim(plus(then, 9), { laneCap: 1 })
    yield* record([attempt(first!, { retryAt: plus(then, 10) }, plus(then, 9))], plus(then, 9))
    const again = yield* claim(plus(then, 20), { limit: 10 })
    yield* release(again, plus(then, 20))
    const due = yield* DeliveryQueue.use((queue) => queue.countDue(now, 10))
    assert.deepStrictEqual(due, { count: 3, oldestDueAt: now })
  })

  it.effect("times: retries keep their time, and overdue deliveries stay due", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(plus(now, -100))
    const tried = yield* claimOne(now)
    const retryAt = plus(now, 3_900)
    yield* record([attempt(tried, { retryAt }, now)], now)
    const { orgId: other } = yield* insertReceiver(plus(now, -100))
    yield* correctTimes(now)
    assert.deepStrictEqual(yield* dueTimes(orgId), [retryAt])
    assert.deepStrictEqual(yield* dueTimes(other), [plus(now, -100)])
  })

  it.effect("times: a lease ends at most a lease from now, and no lease gets longer", function* () {
    const now = epoch()
    const then = plus(now, 3_600)
    const { orgId } = yield* insertReceiver(then)
    const claimed = yield* claimOne(then)
    const { orgId: other } = yield* insertReceiver(plus(now, -100))
    const held = (yield* claim(plus(now, -30), { leaseUntil: plus(now, 30) })).filter((one) => one.orgId === other)
    assert.lengthOf(held, 1)
    yield* correctTimes(now)
    assert.deepStrictEqual(yield* dueTimes(orgId), [plus(now, leaseSeconds)])
    assert.deepStrictEqual(yield* dueTimes(other), [plus(now, 30)])
    // The attempt is recorded as usual.
    yield* record([attempt(claimed, "Delivered", now)], now)
    assert.deepStrictEqual(
      (yield* deliveriesOf(orgId)).map(({ state }) => state),
      ["delivered"],
    )
  })

  it.effect("times: a batch moves at most its limit, and the next batch moves the rest", function* () {
    const now = epoch()
    yield* correctTimes(now)
    const { orgId } = yield* insertReceiver(plus(now, 3_600), 5)
    assert.deepStrictEqual(
      [yield* correctTimes(now, 2), yield* correctTimes(now, 2), yield* correctTimes(now, 2)],
      [2, 2, 1],
    )
    assert.deepStrictEqual(yield* dueTimes(orgId), [now, now, now, now, now])
  })
}
