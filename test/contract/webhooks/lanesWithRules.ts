import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { insertOrg } from "../support.ts"
import {
  attempt,
  claim,
  claimWithMore,
  completed,
  deliveriesOf,
  epoch,
  failed,
  finish,
  insertEndpoint,
  insertJob,
  type It,
  look,
  plus,
  publish,
  record,
  recover,
  release,
  removeEndpoint,
  retry,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

/** An org with an ordered endpoint and a number of events for it; returns their ids. */
const insertOrdered = Effect.fnUntraced(function* (now: DateTime.Utc, events: number) {
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId, { ordered: true, now })
  const ids: Array<string> = []
  for (let n = 0; n < events; n++) ids.push(yield* publish(orgId, "a.b", now))
  return { orgId, endpoint, ids }
})
const eventsOf = (claimed: ReadonlyArray<ClaimedDelivery>, endpoint: string) =>
  claimed.filter(({ endpointId }) => endpointId === endpoint).map(({ eventId }) => eventId)
const deliver = (claimed: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
  record(
    claimed.map((one) => attempt(one, "Delivered", now)),
    now,
  )

/** The contract of ordered endpoints and limits per second in every DeliveryQueue. */
export const lanesWithRules = (it: It) => {
  it.effect("ordered: deliveries are claimed in the order of their events, by one claim at a time", function* () {
    const now = epoch()
    const { endpoint, ids, orgId } = yield* insertOrdered(now, 30)
    const first = yield* claim(now)
    assert.deepStrictEqual(eventsOf(first, endpoint), ids.slice(0, 20))
    assert.isTrue(first.every(({ ordered }) => ordered))
    // Neither another replica nor this one gets more while some are in flight.
    assert.deepStrictEqual(yield* claim(now), [])
    assert.deepStrictEqual(yield* claim(now, { inFlight: new Map([[endpoint, 1]]) }), [])
    // Not even when all but the last are recorded.
    yield* deliver(first.slice(0, -1), now)
    assert.deepStrictEqual(yield* claim(now), [])
    yield* deliver(first.slice(-1), now)
    assert.deepStrictEqual(eventsOf(yield* claim(now), endpoint), ids.slice(20))
    yield* removeEndpoint(orgId, endpoint, now)
  })

  it.effect("ordered: all endpoints get the event of a job with it, however many there are", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    for (let n = 0; n < 40; n++) yield* insertEndpoint(orgId, { ordered: true, now })
    const first = yield* insertJob(orgId)
    assert.isFalse((yield* finish(orgId, first, completed(), now)).hasSweep)
    const second = yield* insertJob(orgId)
    yield* finish(orgId, second, failed(), now)
    for (const job_id of [first, second]) {
      assert.lengthOf(yield* deliveriesOf(orgId, { job_id }), 40)
    }
  })

  it.effect("ordered: a retried delivery delays the later ones until it is delivered or has failed", function* () {
    const now = epoch()
    const { endpoint, ids, orgId } = yield* insertOrdered(now, 3)
    const [first, ...others] = yield* claim(now)
    yield* record([attempt(first!, { retryAt: plus(now, 60) }, now)], now)
    yield* release(others, now)
    assert.deepStrictEqual(yield* claim(plus(now, 59)), [])
    // After a failure, a claim takes one at a time.
    const again = yield* claim(plus(now, 60))
    assert.deepStrictEqual(eventsOf(again, endpoint), [ids[0]])
    yield* record([attempt(again[0]!, "Exhausted", plus(now, 60))], plus(now, 60))
    const next = yield* claim(plus(now, 61))
    assert.deepStrictEqual(eventsOf(next, endpoint), [ids[1]])
    yield* deliver(next, plus(now, 61))
    yield* deliver(yield* claim(plus(now, 62)), plus(now, 62))
    assert.deepStrictEqual(yield* statesOf(orgId), ["failed", "delivered", "delivered"])
  })

  it.effect("ordered: after a lease expires, its deliveries are claimed again from the first one", function* () {
    const now = epoch()
    const { endpoint, ids, orgId } = yield* insertOrdered(now, 4)
    const lost = yield* claim(now)
    yield* deliver(lost.slice(0, 1), now)
    assert.deepStrictEqual(yield* claim(plus(now, 59)), [])
    yield* look
    assert.deepStrictEqual(eventsOf(yield* claim(plus(now, 61)), endpoint), ids.slice(1))
    yield* removeEndpoint(orgId, endpoint, now)
  })

  it.effect("ordered: a batch keeps its order, and resent deliveries go to the end", function* () {
    const now = epoch()
    const { endpoint, ids, orgId } = yield* insertOrdered(now, 3)
    const claimed = yield* claim(now)
    yield* record([attempt(claimed[0]!, "Exhausted", now)], now)
    yield* release(claimed.slice(1), now)
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    const oldest = (yield* deliveriesOf(orgId)).find(({ event_id }) => event_id === ids[0])!
    yield* retry(orgId, oldest.delivery_id, now)
    const later = yield* publish(orgId, "a.b", now)
    const order = yield* claim(plus(now, 1))
    assert.deepStrictEqual(eventsOf(order, endpoint), [ids[1], ids[2], ids[0], later])
    yield* record(
      order.map((one) => attempt(one, "Exhausted", now)),
      plus(now, 1),
    )
    yield* updateEndpoint(orgId, endpoint, now, { active: true })
    const newest = yield* publish(orgId, "a.b", plus(now, 2))
    assert.strictEqual(yield* recover(orgId, endpoint, plus(now, -1), plus(now, 3)), 4)
    const [first, ...rest] = eventsOf(yield* claim(plus(now, 4)), endpoint)
    assert.strictEqual(first, newest)
    assert.sameMembers(rest, [...ids, later])
    yield* removeEndpoint(orgId, endpoint, now)
  })

  it.effect("ordered: can be turned on and off while deliveries are queued", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const endpoint = yield* insertEndpoint(orgId, { now })
    const ids = [yield* publish(orgId, "a.b", now), yield* publish(orgId, "a.b", plus(now, 1))]
    yield* updateEndpoint(orgId, endpoint, now, { ordered: true })
    ids.push(yield* publish(orgId, "a.b", plus(now, 2)))
    const later = plus(now, 2)
    // The first claim may only assign places to what was queued before; the newest does not overtake it.
    const first = yield* claimWithMore(later)
    assert.isTrue(first.deliveries.length > 0 || first.more)
    const all = first.deliveries.length > 0 ? first.deliveries : yield* claim(later)
    assert.deepStrictEqual(eventsOf(all, endpoint), ids)
    yield* updateEndpoint(orgId, endpoint, now, { ordered: false })
    // Not in order any more: it is not held back by those in flight.
    const next = yield* publish(orgId, "a.b", later)
    const inFlight = new Map([[endpoint, 3]])
    assert.deepStrictEqual(eventsOf(yield* claim(later, { inFlight }), endpoint), [next])
    yield* removeEndpoint(orgId, endpoint, now)
  })

  it.effect("settings: are stored, shown without header values, changed one by one, and cleared", function* () {
    const repository = yield* WebhookEndpointRepository
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const headers = { stored: "encrypted", names: ["Authorization", "x-team"] }
    const id = yield* insertEndpoint(orgId, {
      eventTypes: ["a.*"],
      headers,
      maxPerSecond: 7,
      ordered: true,
      retryDelays: [0, 60],
      signature: "ed25519",
      now,
    })
    const shown = Effect.map(
      Effect.suspend(() => repository.get(orgId, { id })),
      ({ event_types, headers, max_per_second, ordered, retry_delays, signature }) => [
        event_types,
        headers,
        max_per_second,
        ordered,
        retry_delays,
        signature,
      ],
    )
    assert.deepStrictEqual(yield* shown, [["a.*"], headers.names, 7, true, [0, 60], "ed25519"])
    yield* publish(orgId, "a.b", now)
    const [claimed] = yield* claim(now)
    assert.deepStrictEqual(
      [claimed!.headers, claimed!.retryDelays, claimed!.ordered],
      [{ stored: "encrypted", owner: id }, [0, 60], true],
    )
    assert.isAtMost(claimed!.delayMillis!, 0)
    assert.strictEqual((yield* repository.findForSending(orgId, id, now)).headers, "encrypted")
    yield* updateEndpoint(orgId, id, now, { retryDelays: [] })
    assert.deepStrictEqual(yield* shown, [["a.*"], headers.names, 7, true, [], "ed25519"])
    const none = { eventTypes: null, headers: null, maxPerSecond: null, retryDelays: null }
    yield* updateEndpoint(orgId, id, now, { ...none, ordered: false, signature: "hmac" })
    assert.deepStrictEqual(yield* shown, [null, null, null, false, null, "hmac"])
    yield* removeEndpoint(orgId, id, now)
  })
}
