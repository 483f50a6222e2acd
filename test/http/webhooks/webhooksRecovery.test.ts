import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { keysOf } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"
import { faultOfWebhookError, nobody } from "./webhookOperations.ts"

const server = TestServer.layer(
  Effect.map(onPostgres(), (environment) => ({ ...environment, WEBHOOK_RETRY_DELAYS: "1h" })),
)

const recover = Effect.fnUntraced(function* (tenant: Tenant, webhook_endpoint_id: string, since: Date | number) {
  const json = { webhook_endpoint_id, since: new Date(since).toISOString() }
  const answer = yield* tenant.ask("webhooks/deliveries/recover", json)
  if (answer.status !== 200) {
    expect(faultOfWebhookError(answer)).toBeUndefined()
    return answer.status
  }
  expect(String(keysOf(answer.json))).toBe("message,recovered,success")
  return (answer.json as { recovered: number }).recovered
})
const statesOf = (tenant: Tenant, filter: Record<string, unknown>) =>
  Effect.map(tenant.deliveries(filter), (all) => all.map(({ state }) => state))
const inactive = "The webhook endpoint is inactive; activate it first."

layer(server, { excludeTestServices: true })("unsuccessful deliveries", (it) => {
  it.effect("are skipped while the endpoint is inactive, and sent by recover", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    const webhook_endpoint_id = yield* tenant.endpoint(receiver.url, { active: false })
    const update = (active: boolean) => tenant.call("webhooks/update", { id: webhook_endpoint_id, active })
    const jobs = [yield* tenant.finished(), yield* tenant.finished()]
    const [delivery] = yield* tenant.deliveries({ webhook_endpoint_id })
    expect(yield* statesOf(tenant, { webhook_endpoint_id })).toEqual(["skipped", "skipped"])
    const retried = yield* tenant.ask("webhooks/deliveries/retry", { delivery_id: delivery!.delivery_id })
    expect([retried.status, retried.json]).toMatchObject([409, { message: inactive }])
    expect(yield* recover(tenant, webhook_endpoint_id, 0)).toBe(409)
    expect(yield* recover(tenant, nobody, 0)).toBe(404)

    yield* update(true)
    expect(yield* recover(tenant, webhook_endpoint_id, Date.now() + 60_000)).toBe(0)
    expect(receiver.received).toEqual([])
    expect(yield* recover(tenant, webhook_endpoint_id, Date.now() - 60_000)).toBe(2)
    yield* receiver.arrived(2)
    const told = receiver.received.map(({ body }) => (JSON.parse(body.toString()) as { job_id: string }).job_id)
    expect(told.toSorted()).toEqual(jobs)
    for (const job_id of jobs) expect(yield* tenant.attempted(job_id)).toMatchObject({ state: "delivered" })
    // A delivered event is not recovered again.
    expect(yield* recover(tenant, webhook_endpoint_id, 0)).toBe(0)
  })

  it.effect(
    "a 410 deactivates the endpoint: that delivery fails, pending ones are canceled, and other endpoints continue",
    function* () {
      const tenant = yield* makeTenant()
      const [receiver, other] = [yield* makeReceiver(), yield* makeReceiver()]
      const webhook_endpoint_id = yield* tenant.endpoint(receiver.url)
      const otherId = yield* tenant.endpoint(other.url)
      const of = (job_id: string) =>
        Effect.map(tenant.deliveries({ job_id, webhook_endpoint_id }), ([found]) => found!.delivery_id)
      receiver.behave({ status: 500 })
      const first = yield* of(yield* tenant.finished())
      yield* tenant.until(first, ({ attempts }) => attempts === 1)
      receiver.behave({ status: 410, body: "gone" })
      const second = yield* of(yield* tenant.finished())
      const ended = yield* tenant.until(second, ({ state }) => state === "failed")
      expect(ended).toMatchObject({
        attempts: 1,
        next_attempt_at: null,
        attempt_log: [{ status: 410, body: "gone" }],
      })
      expect(yield* tenant.delivery(first)).toMatchObject({ state: "canceled", attempts: 1, next_attempt_at: null })
      const { webhook_endpoints } = yield* tenant.call("webhooks/list")
      expect(webhook_endpoints).toMatchObject([{ active: false }, { active: true, webhook_endpoint_id: otherId }])
      const third = yield* of(yield* tenant.finished())
      expect((yield* tenant.delivery(third)).state).toBe("skipped")
      yield* other.arrived(3)
      expect(receiver.received).toHaveLength(2)

      receiver.behave({ status: 200 })
      yield* tenant.call("webhooks/update", { id: webhook_endpoint_id, active: true })
      expect(yield* recover(tenant, webhook_endpoint_id, 0)).toBe(3)
      for (const id of [first, second, third]) yield* tenant.until(id, ({ state }) => state === "delivered")
      expect(other.received).toHaveLength(3)
    },
  )

  it.effect("deactivating or deleting an endpoint cancels its pending deliveries, which stay readable", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    receiver.behave({ status: 500 })
    const webhook_endpoint_id = yield* tenant.endpoint(receiver.url)
    const { delivery_id } = yield* tenant.attempted(yield* tenant.finished())
    yield* tenant.call("webhooks/update", { id: webhook_endpoint_id, active: false })
    expect(yield* statesOf(tenant, { webhook_endpoint_id })).toEqual(["canceled"])
    yield* tenant.call("webhooks/update", { id: webhook_endpoint_id, active: true })
    receiver.behave({ status: 200 })
    yield* tenant.call("webhooks/deliveries/retry", { delivery_id })
    yield* tenant.until(delivery_id, ({ state }) => state === "delivered")

    receiver.behave({ status: 500 })
    const later = yield* tenant.attempted(yield* tenant.finished())
    yield* tenant.call("webhooks/delete", { id: webhook_endpoint_id })
    expect(yield* statesOf(tenant, { webhook_endpoint_id })).toEqual(["canceled", "delivered"])
    expect((yield* tenant.delivery(later.delivery_id)).attempt_log).toMatchObject([{ status: 500 }])
    expect(yield* recover(tenant, webhook_endpoint_id, 0)).toBe(404)
  })

  it.effect(
    "the last attempt of the schedule ends a delivery, and a callback is retried and resent like any other",
    function* () {
      const { advance } = yield* TestServer
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      receiver.behave({ status: 500 })
      const job_id = yield* tenant.finished({ callback_url: receiver.url, callback_secret: "of the job" })
      const { delivery_id } = yield* tenant.attempted(job_id)
      yield* advance("73 minutes")
      // Any notification makes the worker read the clock.
      yield* tenant.finished({ skip_callbacks: true })
      const ended = yield* tenant.until(delivery_id, ({ state }) => state === "failed")
      expect(ended).toMatchObject({ attempts: 2, webhook_endpoint_id: null, next_attempt_at: null })
      receiver.behave({ status: 200 })
      yield* tenant.call("webhooks/deliveries/retry", { delivery_id })
      yield* tenant.until(delivery_id, ({ attempts, state }) => attempts === 3 && state === "delivered")
      expect(new Set(receiver.received.map(({ headers }) => headers["webhook-id"]))).toEqual(new Set([delivery_id]))
    },
  )

  it.effect("lists of deliveries return each once, newest first, at any page size and with any filter", function* () {
    const tenant = yield* makeTenant()
    const [one, two] = [
      yield* tenant.endpoint("http://127.0.0.1:9/", { active: false }),
      yield* tenant.endpoint("http://127.0.0.1:9/", { active: false }),
    ]
    const jobs: Array<string> = []
    for (let n = 0; n < 4; n++) jobs.unshift(yield* tenant.finished())
    const all = Effect.fnUntraced(function* (filter: object, limit: number) {
      const found: Array<{ readonly delivery_id: string; readonly job_id: string }> = []
      let cursor: string | null = null
      do {
        const page: Readonly<Record<string, string>> = yield* tenant.call("webhooks/deliveries/list", {
          ...filter,
          limit,
          ...(cursor === null ? {} : { cursor }),
        })
        found.push(...(page["deliveries"] as unknown as typeof found))
        cursor = page["next_cursor"]!
      } while (cursor !== null)
      return found
    })
    const everything = (yield* all({}, 100)).map(({ delivery_id }) => delivery_id)
    expect(everything).toEqual(everything.toSorted().toReversed())
    expect(everything).toHaveLength(8)
    for (const limit of [1, 3, 8]) {
      expect((yield* all({}, limit)).map(({ delivery_id }) => delivery_id)).toEqual(everything)
      const ofOne = yield* all({ webhook_endpoint_id: one, state: "skipped" }, limit)
      expect(ofOne.map(({ job_id }) => job_id)).toEqual(jobs)
      expect(yield* all({ webhook_endpoint_id: two, job_id: jobs[1] }, limit)).toHaveLength(1)
      expect(yield* all({ state: "pending" }, limit)).toEqual([])
    }
  })
})
