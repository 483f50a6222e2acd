import { assert } from "@effect/vitest"
import type { DateTime } from "effect"
import { Effect } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { meet } from "../meet.ts"
import { insertOrg } from "../support.ts"
import {
  attempt,
  claim,
  deliveriesOf,
  epoch,
  insertEndpoint,
  plus,
  publish,
  record,
  release,
  retry,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

/** An org with an endpoint that sends in order, and three events for it. */
const insertThree = Effect.gen(function* () {
  const now = epoch()
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId, { ordered: true, now })
  const ids: Array<string> = []
  for (let n = 0; n < 3; n++) ids.push(yield* publish(orgId, "a.b", now))
  return { orgId, endpoint, ids, now }
})

const eventsOf = (claimed: ReadonlyArray<ClaimedDelivery>) => claimed.map(({ eventId }) => eventId)
const delivered = (claimed: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
  record(
    claimed.map((one) => attempt(one, "Delivered", now)),
    now,
  )
const deliveryOf = Effect.fnUntraced(function* (orgId: string, eventId: string) {
  return (yield* deliveriesOf(orgId, { event_id: eventId }))[0]!.delivery_id
})

/** Claims and delivers one after the other; returns the events in their order. */
const deliverAll = Effect.fnUntraced(function* (now: DateTime.Utc) {
  const order: Array<string> = []
  for (;;) {
    const claimed = yield* claim(now)
    if (claimed.length === 0) return order
    // While the lane has a claim, nobody else has a part of it.
    assert.deepStrictEqual(yield* claim(now), [])
    order.push(...eventsOf(claimed))
    yield* delivered(claimed, now)
  }
})

/** Pairs of writes of endpoints that send in order. */
export const orderedRaces = {
  "ordered: resend a delivery, publish an event": Effect.gen(function* () {
    const { ids, now, orgId } = yield* insertThree
    const claimed = yield* claim(now)
    yield* delivered(claimed.slice(0, 1), now)
    yield* release(claimed.slice(1), now)
    let later = ""
    const outcomes = yield* meet(
      retry(orgId, yield* deliveryOf(orgId, ids[0]!), now),
      Effect.map(publish(orgId, "a.b", now), (id) => void (later = id)),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    const order = yield* deliverAll(plus(now, 1))
    // Both join at the end.
    assert.deepStrictEqual(order.slice(0, 2), ids.slice(1))
    assert.sameMembers(order.slice(2), [ids[0]!, later])
    return order.at(-1) === later ? ["resent first"] : ["published first"]
  }),

  "ordered: resend the delivery that waits for its retry, claim the lane": Effect.gen(function* () {
    const { ids, now, orgId } = yield* insertThree
    const [first, ...others] = yield* claim(now)
    yield* record([attempt(first!, { retryAt: plus(now, 60) }, now)], now)
    yield* release(others, now)
    const sent: Array<string> = []
    const claimAndDeliver = Effect.gen(function* () {
      const claimed = yield* claim(plus(now, 1))
      sent.push(...eventsOf(claimed))
      yield* delivered(claimed, plus(now, 1))
    })
    const outcomes = yield* meet(retry(orgId, first!.deliveryId, now), claimAndDeliver)
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    sent.push(...(yield* deliverAll(plus(now, 2))))
    // The resent one joins at the end, and holds nothing back any more.
    assert.deepStrictEqual(sent, [ids[1], ids[2], ids[0]])
    return [...outcomes, `${sent.length} sent`]
  }),

  "ordered: record a failure, resend a delivered one": Effect.gen(function* () {
    const { ids, now, orgId } = yield* insertThree
    const claimed = yield* claim(now)
    yield* delivered(claimed.slice(0, 1), now)
    const outcomes = yield* meet(
      record([attempt(claimed[1]!, { retryAt: plus(now, 60) }, now)], now),
      retry(orgId, claimed[0]!.deliveryId, now),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    yield* release(claimed.slice(2), now)
    // The one that failed holds back the later ones, and the resent one.
    assert.deepStrictEqual(yield* claim(plus(now, 59)), [])
    assert.deepStrictEqual(yield* deliverAll(plus(now, 60)), [ids[1], ids[2], ids[0]])
    return outcomes
  }),

  "ordered: deactivate the endpoint, record a failure": Effect.gen(function* () {
    const { endpoint, ids, now, orgId } = yield* insertThree
    const [first, ...others] = yield* claim(now)
    const outcomes = yield* meet(
      updateEndpoint(orgId, endpoint, now, { active: false }),
      record([attempt(first!, { retryAt: plus(now, 60) }, now)], now),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    yield* release(others, now)
    assert.deepStrictEqual(yield* statesOf(orgId), ["canceled", "canceled", "canceled"])
    // After it is active again, only newer events are sent, in their order; the old ones hold nothing back.
    yield* updateEndpoint(orgId, endpoint, plus(now, 1), { active: true })
    const newer = [yield* publish(orgId, "a.b", plus(now, 2)), yield* publish(orgId, "a.b", plus(now, 2))]
    assert.deepStrictEqual(yield* deliverAll(plus(now, 120)), newer)
    assert.strictEqual(ids.length, 3)
    return outcomes
  }),

  "ordered: deactivate the endpoint, resend a delivery": Effect.gen(function* () {
    const { endpoint, ids, now, orgId } = yield* insertThree
    yield* delivered(yield* claim(now), now)
    const outcomes = yield* meet(
      updateEndpoint(orgId, endpoint, now, { active: false }),
      retry(orgId, yield* deliveryOf(orgId, ids[0]!), now),
    )
    assert.strictEqual(outcomes[0], "ok")
    assert.include(["ok", "Conflict"], outcomes[1])
    const resent = outcomes[1] === "ok" ? "canceled" : "delivered"
    assert.deepStrictEqual(yield* statesOf(orgId), [resent, "delivered", "delivered"])
    assert.deepStrictEqual(yield* claim(plus(now, 3_600)), [])
    return outcomes
  }),

  "ordered: switch it on, publish an event": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const endpoint = yield* insertEndpoint(orgId, { now })
    const ids = [yield* publish(orgId, "a.b", now)]
    const outcomes = yield* meet(
      updateEndpoint(orgId, endpoint, now, { ordered: true }),
      Effect.map(publish(orgId, "a.b", now), (id) => void ids.push(id)),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    ids.push(yield* publish(orgId, "a.b", plus(now, 1)))
    const sent: Array<string> = []
    // The first claim may only sort what was queued before.
    for (let n = 0; n < 3; n++) sent.push(...(yield* deliverAll(plus(now, 2))))
    assert.sameMembers(sent, ids)
    assert.strictEqual(sent.at(-1), ids[2])
    return outcomes
  }),
}
