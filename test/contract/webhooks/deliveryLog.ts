import { assert } from "@effect/vitest"
import { Effect, Struct } from "effect"
import {
  type Delivery,
  DeliveryDetail,
  DeliveryLogRepository,
  Delivery as DeliverySchema,
} from "#src/domain/webhooks/DeliveryLog.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { cutRows } from "#src/domain/Page.ts"
import { assertPages, failureOf, insertOrg, newEntry, newId } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  attempt,
  claim,
  endpointsOf,
  epoch,
  findDelivery,
  insertEndpoint,
  insertReceiver,
  makeEvent,
  noSuchDelivery,
  noSuchEndpoint,
  plus,
  record,
  recover,
  retry,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

const idOf = ({ delivery_id }: Delivery) => delivery_id

/** The contract of reads in every DeliveryLogRepository. */
export const deliveryLog = (it: It) => {
  it.effect("log: lists the deliveries of one org, newest first, in pages, by endpoint, job and state", function* () {
    const log = yield* DeliveryLogRepository
    const list = (...args: Parameters<typeof log.list>) => Effect.map(log.list(...args), ({ deliveries }) => deliveries)
    const pageOf = (...[id, filter, page]: Parameters<typeof log.list>) =>
      Effect.map(list(id, filter, page), (rows) => cutRows(rows, page.limit))
    const now = epoch()
    const { orgId, endpoint: a } = yield* insertReceiver(now, 0)
    yield* insertReceiver(plus(now, 100), 3)
    const b = yield* insertEndpoint(orgId)
    const jobs = [yield* makeEvent(orgId, now), yield* makeEvent(orgId, now), yield* makeEvent(orgId, now)]
    const claimed = yield* claim(now)
    yield* record(
      claimed.map((one, n) => attempt(one, n % 2 === 0 ? "Delivered" : "Exhausted", now)),
      now,
    )
    const all = yield* list(orgId, {}, { limit: 100 })
    assert.strictEqual(all.length, 6)
    assert.deepStrictEqual(all.map(idOf), all.map(idOf).toSorted().toReversed())
    assert.deepStrictEqual(Object.keys(all[0]!).sort(), Object.keys(DeliverySchema.fields).sort())
    yield* assertPages((page) => pageOf(orgId, {}, page), idOf, all.map(idOf))
    const filters = [
      { webhook_endpoint_id: a },
      { webhook_endpoint_id: b },
      { job_id: jobs[1]! },
      { state: "failed" },
      { webhook_endpoint_id: a, state: "delivered" },
      { webhook_endpoint_id: b, job_id: jobs[2]!, state: "failed" },
      { state: "skipped" },
      { state: "pending" },
      { webhook_endpoint_id: a, state: "pending" },
      { state: "canceled" },
      { webhook_endpoint_id: a, state: "canceled" },
    ] as const
    for (const filter of filters) {
      const fits = (row: Delivery) => Object.entries(filter).every(([key, value]) => row[key as "job_id"] === value)
      yield* assertPages((page) => pageOf(orgId, filter, page), idOf, all.filter(fits).map(idOf))
    }
  })

  it.effect("log: a cause names the five endpoints with most of its failures", function* () {
    const { causes } = yield* DeliveryLogRepository
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const others = yield* Effect.replicateEffect(insertEndpoint(orgId), 6)
    yield* makeEvent(orgId, now)
    const last = yield* insertEndpoint(orgId, { description: "Billing", url: "https://billing.example.com/in" })
    yield* Effect.replicateEffect(makeEvent(orgId, now), 2)
    const failed = { status: 503, body: null, failure: null }
    const fail = Effect.gen(function* () {
      const claimed = yield* claim(now)
      const ends = claimed.map((one) => attempt(one, "Exhausted", now, failed))
      yield* record(ends, now)
      return claimed.length
    })
    while ((yield* fail) > 0);
    const [cause, ...rest] = yield* causes(orgId, {})
    assert.deepStrictEqual(rest, [])
    assert.deepInclude(cause, { deliveries: 20, endpoints: 7 })
    const most = others.toSorted().slice(0, 5)
    assert.deepStrictEqual(
      cause!.top_endpoints,
      most.map((id) => ({ webhook_endpoint_id: id, name: "example.com/hook", deliveries: 3 })),
    )
    const { remove } = yield* WebhookEndpointRepository
    yield* remove(orgId, most[0]!, now, newEntry())
    const [left] = yield* causes(orgId, {})
    assert.deepStrictEqual(left!.top_endpoints[0], { webhook_endpoint_id: most[0]!, name: null, deliveries: 3 })
    const [own] = yield* causes(orgId, { webhook_endpoint_id: last })
    assert.deepStrictEqual(own!.top_endpoints, [{ webhook_endpoint_id: last, name: "Billing", deliveries: 2 }])
  })

  it.effect("log: counts what a resend sends, by its filter, and groups failures by their cause", function* () {
    const { causes, countResend, list } = yield* DeliveryLogRepository
    const now = epoch()
    const { orgId, endpoint: a } = yield* insertReceiver(now, 0)
    const b = yield* insertEndpoint(orgId)
    for (let n = 0; n < 3; n++) yield* makeEvent(orgId, now)
    const claimed = yield* claim(now)
    const failed = { status: 503, body: "maintenance", failure: null }
    const timeout = { status: null, body: null, failure: { kind: "timeout", message: "No response." } } as const
    yield* record(
      claimed.map((one) => attempt(one, "Exhausted", now, one.endpointId === a ? failed : timeout)),
      now,
    )
    const found = Effect.map(causes(orgId, {}), (groups) => groups.map((group) => Struct.omit(group, ["latest"])))
    const one = { failure: null, deliveries: 3, endpoints: 1 }
    const top = (id: string) => [{ webhook_endpoint_id: id, name: "example.com/hook", deliveries: 3 }]
    const both = [
      { ...one, status: null, failure: "timeout", top_endpoints: top(b) },
      { ...one, status: 503, top_endpoints: top(a) },
    ]
    assert.sameDeepMembers([...(yield* found)], both)
    const [cause] = yield* causes(orgId, { webhook_endpoint_id: a })
    assert.deepInclude(cause, { status: 503, deliveries: 3 })
    assert.strictEqual(cause!.latest.text, "maintenance")
    assert.deepStrictEqual(yield* causes(orgId, { since: plus(now, 9) }), [])
    const rows = yield* list(orgId, { failure: "timeout" }, { limit: 9 })
    assert.deepStrictEqual(
      rows.deliveries.map((row) => [row.webhook_endpoint_id, row.last_status, row.last_failure]),
      Array.from({ length: 3 }, () => [b, null, "timeout"]),
    )
    assert.strictEqual((yield* list(orgId, { status: 503 }, { limit: 9 })).deliveries.length, 3)
    const counts = [
      [{}, 6],
      [{ webhook_endpoint_id: a }, 3],
      [{ status: 503 }, 3],
      [{ failure: "timeout" }, 3],
      [{ status: 500 }, 0],
      [{ state: "failed" }, 6],
      [{ state: "skipped" }, 0],
      [{ event_type: "job.completed" }, 6],
      [{ event_type: "other" }, 0],
      [{ since: plus(now, 9) }, 0],
      [{ until: now }, 0],
    ] as const
    for (const [filter, count] of counts) {
      assert.deepStrictEqual(yield* countResend(orgId, filter), { count, isAll: true }, JSON.stringify(filter))
    }
    assert.deepStrictEqual(yield* countResend((yield* insertOrg()).orgId, {}), { count: 0, isAll: true })
    yield* updateEndpoint(orgId, b, now, { active: false })
    assert.deepStrictEqual(yield* countResend(orgId, {}), { count: 3, isAll: true })
  })

  it.effect("log: a delivery has its payload and its last 100 attempts, in order", function* () {
    const now = epoch()
    const { orgId } = yield* insertReceiver(now)
    let id = ""
    for (let n = 0; n < 102; n++) {
      const [claimed] = yield* claim(plus(now, n))
      id = claimed!.deliveryId
      yield* record([attempt(claimed!, { retryAt: plus(now, n + 1) }, plus(now, n))], plus(now, n))
    }
    const detail = yield* findDelivery(orgId, id)
    assert.deepStrictEqual(Object.keys(detail).sort(), Object.keys(DeliveryDetail.fields).sort())
    assert.deepStrictEqual(
      detail.attempt_log.map(({ number }) => number),
      Array.from({ length: 100 }, (_, n) => n + 3),
    )
  })

  it.effect("log: every operation answers for another org's delivery as for one that does not exist", function* () {
    const log = yield* DeliveryLogRepository
    const list = (...args: Parameters<typeof log.list>) => Effect.map(log.list(...args), ({ deliveries }) => deliveries)
    const now = epoch()
    const { orgId: own } = yield* insertOrg()
    const { orgId: foreign, endpoint } = yield* insertReceiver(now)
    const [claimed] = yield* claim(now)
    yield* record([attempt(claimed!, "Exhausted", now)], now)
    for (const id of [claimed!.deliveryId, yield* newId]) {
      assert.strictEqual(yield* failureOf(findDelivery(own, id)), noSuchDelivery)
      assert.strictEqual(yield* failureOf(retry(own, id, now)), noSuchDelivery)
    }
    for (const id of [endpoint, yield* newId]) {
      assert.strictEqual(yield* failureOf(recover(own, id, now, now)), noSuchEndpoint)
      assert.deepStrictEqual(yield* list(own, { webhook_endpoint_id: id }, { limit: 10 }), [])
    }
    assert.deepStrictEqual(yield* list(own, { job_id: claimed!.deliveryId }, { limit: 10 }), [])
    assert.deepStrictEqual(yield* statesOf(foreign), ["failed"])
    assert.strictEqual((yield* endpointsOf(foreign)).length, 1)
  })
}
