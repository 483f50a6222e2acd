import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { throttleMargin } from "#src/domain/webhooks/Slots.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { assertOneWon, meet } from "../meet.ts"
import { insertOrg } from "../support.ts"
import {
  attempt,
  claim,
  claimOne,
  completed,
  deliveriesOf,
  endpointsOf,
  epoch,
  finish,
  insertEndpoint,
  insertJob,
  insertReceiver,
  plus,
  publish,
  record,
  recover,
  removeEndpoint,
  retry,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

type Time = ReturnType<typeof epoch>

/** An org with an endpoint and one due delivery. */
const insertDue = Effect.gen(function* () {
  const now = epoch()
  return { now, ...(yield* insertReceiver(now)) }
})

/** A worker claims what is due and records it as delivered. */
const deliver = Effect.fnUntraced(function* (now: Time, sent: Array<ClaimedDelivery> = []) {
  const claimed = yield* claim(now)
  sent.push(...claimed)
  yield* record(
    claimed.map((one) => attempt(one, "Delivered", now)),
    now,
  )
})

const ends = {
  "delete an endpoint": (orgId: string, endpoint: string, now: Time) => removeEndpoint(orgId, endpoint, now),
  "deactivate an endpoint": (orgId: string, endpoint: string, now: Time) =>
    updateEndpoint(orgId, endpoint, now, { active: false }),
}

/**
 * The end of an endpoint against every write that creates or moves its deliveries: nothing is pending afterwards. Seen
 * failing without the lock on the endpoints of an event.
 */
const endings = Object.entries(ends).flatMap(([name, end]) => {
  const against = <E extends { readonly _tag: string }, R>(
    what: string,
    other: (orgId: string, endpoint: string, now: Time) => Effect.Effect<unknown, E, R>,
    allowed: ReadonlyArray<string>,
  ) =>
    [
      `${name}, ${what}`,
      Effect.gen(function* () {
        const { orgId, endpoint, now } = yield* insertDue
        const outcomes = yield* meet(end(orgId, endpoint, now), other(orgId, endpoint, now))
        assert.strictEqual(outcomes[0], "ok")
        assert.include(allowed, outcomes[1])
        const states = yield* statesOf(orgId)
        assert.notInclude(states, "pending")
        assert.isEmpty((yield* endpointsOf(orgId)).filter(({ active }) => active))
        // No later claim returns a delivery of the endpoint.
        assert.isEmpty((yield* claim(plus(now, 3_600))).filter(({ endpointId }) => endpointId === endpoint))
        return [...outcomes, states.join(" ")]
      }),
    ] as const
  const retryOldest = Effect.fnUntraced(function* (orgId: string, _: string, now: Time) {
    const [oldest] = yield* deliveriesOf(orgId)
    yield* retry(orgId, oldest!.delivery_id, now)
  })
  return [
    against("claim its delivery", (_, __, now) => deliver(now), ["ok"]),
    against(
      "finish a job",
      (orgId, _, now) => Effect.flatMap(insertJob(orgId), (job) => finish(orgId, job, completed(), now)),
      ["ok"],
    ),
    against("publish an event", (orgId, _, now) => publish(orgId, "invoice.paid", now), ["ok"]),
    against("resend a delivery", retryOldest, ["ok", "Conflict"]),
    against("resend its deliveries", (orgId, endpoint, now) => recover(orgId, endpoint, now, now), [
      "ok",
      "Conflict",
      "NotFound",
    ]),
  ]
})

/** Pairs of concurrent writes of endpoints and deliveries. */
export const endpointRaces = {
  ...Object.fromEntries(endings),

  // The event comes before or after the change; it is never lost and never sent twice.
  "publish an event, change the patterns": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const endpoint = yield* insertEndpoint(orgId, { eventTypes: ["a.*"] })
    const other = yield* insertEndpoint(orgId, { eventTypes: ["b.*"] })
    const outcomes = yield* meet(
      publish(orgId, "a.b", now),
      Effect.andThen(
        updateEndpoint(orgId, endpoint, now, { eventTypes: ["b.*"] }),
        updateEndpoint(orgId, other, now, { eventTypes: ["*"] }),
      ),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    const to = (yield* deliveriesOf(orgId)).map((one) => (one.webhook_endpoint_id === endpoint ? "before" : "after"))
    assert.strictEqual(new Set(to).size, to.length)
    assert.isTrue((yield* statesOf(orgId)).every((state) => state === "pending"))
    return to.toSorted()
  }),

  "publish an event, publish it with the same key": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertEndpoint(orgId)
    const ids: Array<string> = []
    const once = Effect.map(publish(orgId, "a.b", now, { idempotencyKey: "k" }), (id) => void ids.push(id))
    const outcomes = yield* meet(once, once)
    assert.deepStrictEqual([ids.length, new Set(ids).size, yield* statesOf(orgId)], [2, 1, ["pending"]])
    return outcomes
  }),

  // Seen failing when the second one took the new secret for the one that it replaces.
  "replace a secret, replace it with the same one": Effect.gen(function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const endpoint = yield* insertEndpoint(orgId, { secret: "old" })
    const signing = WebhookEndpointRepository.use(({ findForSending }) => findForSending(orgId, endpoint, now))
    // As the service does: a request that repeats the current secret changes nothing.
    const replaceWith = (secret: string) =>
      Effect.flatMap(signing, ({ secrets: [replacedSecret] }) =>
        replacedSecret === "old"
          ? Effect.as(updateEndpoint(orgId, endpoint, now, { secret, replacedSecret }), "replaced")
          : Effect.succeed("repeated"),
      )
    const did: Array<string> = []
    const tellOf = (secret: string) => Effect.map(replaceWith(secret), (what) => void did.push(what))
    assert.deepStrictEqual(yield* meet(tellOf("new, encrypted"), tellOf("new, encrypted again")), ["ok", "ok"])
    const { secrets } = yield* signing
    assert.deepStrictEqual([secrets[0]!.slice(0, 3), ...secrets.slice(1)], ["new", "old"])
    return did.toSorted()
  }),

  "delete an endpoint, delete it": Effect.gen(function* () {
    const { orgId, endpoint, now } = yield* insertDue
    const outcomes = yield* meet(removeEndpoint(orgId, endpoint, now), removeEndpoint(orgId, endpoint, now))
    assertOneWon(outcomes, "NotFound")
    return outcomes
  }),

  "delete an endpoint, change it": Effect.gen(function* () {
    const { orgId, endpoint, now } = yield* insertDue
    const change = updateEndpoint(orgId, endpoint, now, { active: true, url: "https://example.com/other" })
    const outcomes = yield* meet(removeEndpoint(orgId, endpoint, now), change)
    assert.strictEqual(outcomes[0], "ok")
    assert.include(["ok", "NotFound"], outcomes[1])
    assert.deepStrictEqual([yield* endpointsOf(orgId), yield* statesOf(orgId)], [[], ["canceled"]])
    return outcomes
  }),

  "claim a delivery, claim it": Effect.gen(function* () {
    const { orgId, now } = yield* insertDue
    const sent: Array<ClaimedDelivery> = []
    const outcomes = yield* meet(deliver(now, sent), deliver(now, sent))
    assert.deepStrictEqual([sent.length, yield* statesOf(orgId)], [1, ["delivered"]])
    return outcomes
  }),

  "record an attempt, record it from a worker whose lease expired": Effect.gen(function* () {
    const { orgId, now } = yield* insertDue
    const first = yield* claimOne(now)
    const later = plus(now, 61)
    const second = yield* claimOne(later)
    const outcomes = yield* meet(
      record([attempt(second, "Delivered", later)], later),
      record([attempt(first, "Exhausted", later)], later),
    )
    assert.strictEqual(first.deliveryId, second.deliveryId)
    const { state, attempts } = (yield* deliveriesOf(orgId))[0]!
    assert.deepStrictEqual([state, attempts], ["delivered", 1])
    return outcomes
  }),

  "record an attempt, resend the delivery": Effect.gen(function* () {
    const { orgId, now } = yield* insertDue
    const claimed = yield* claimOne(now)
    const outcomes = yield* meet(
      record([attempt(claimed, "Delivered", now)], now),
      retry(orgId, claimed.deliveryId, now),
    )
    const { state, attempts } = (yield* deliveriesOf(orgId))[0]!
    assert.strictEqual(attempts, 1)
    // The resend was refused while the attempt was in flight, or came after it and made the delivery due again.
    assert.strictEqual(state, outcomes[1] === "ok" ? "pending" : "delivered")
    return outcomes
  }),

  "resend a delivery, claim it": Effect.gen(function* () {
    const { orgId, now } = yield* insertDue
    const [due] = yield* deliveriesOf(orgId)
    const sent: Array<ClaimedDelivery> = []
    const claiming = Effect.map(claim(now), (claimed) => sent.push(...claimed))
    const outcomes = yield* meet(retry(orgId, due!.delivery_id, now), claiming)
    // In either order, only one claim has the delivery.
    sent.push(...(yield* claim(now)))
    assert.strictEqual(sent.length, 1)
    return outcomes
  }),

  // Seen failing without the lock on the time of the next attempt: two claims assigned the same times.
  "with a limit per second: claim deliveries, claim others": Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const endpoint = yield* insertEndpoint(orgId, { maxPerSecond: 10, now })
    for (let n = 0; n < 20; n++) yield* publish(orgId, "a.b", now)
    // It leaves what it cannot send soon to the backlog, of which each claim takes a part.
    yield* deliver(now)
    yield* sql`UPDATE endpoint_throttles SET next_at = now() WHERE org_id = ${orgId}`
    const [start] = yield* sql<{ at: string }>`SELECT now()::text AS at`
    let taken = 0
    // A claim is one statement: in a transaction, another one may begin before it has ended.
    const isOwn = ({ endpointId }: ClaimedDelivery) => endpointId === endpoint
    const claimSome = Effect.map(claim(now), (some) => void (taken += some.filter(isOwn).length)).pipe(
      sql.withTransaction,
    )
    const outcomes = yield* meet(claimSome, claimSome)
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    const [next] = yield* sql<{ millis: number }>`
      SELECT (1000 * extract(epoch FROM next_at - ${start!.at}::timestamptz))::float8 AS millis
      FROM endpoint_throttles WHERE org_id = ${orgId}`
    // A backlog stays due, whatever the time: other races must not claim it.
    yield* removeEndpoint(orgId, endpoint, now)
    assert.isAtLeast(next!.millis + 1, (taken * 1000 * throttleMargin) / 10)
    return [...outcomes, taken > 5 ? "both" : "one of them"]
  }),
}
