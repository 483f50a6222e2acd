import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { Webhook } from "standardwebhooks"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { layer } from "../../support/it.ts"
import { closedPort, makeReceiver, type Received } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { keysOf } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"
import { faultOfWebhookError } from "./webhookOperations.ts"
import { hmac } from "../../support/hmac.ts"

const hour = 3_600_000
/** Two retries at once, and one that does not come during a test. */
const server = TestServer.layer(
  Effect.map(onPostgres(), (environment) => ({ ...environment, WEBHOOK_RETRY_DELAYS: "1ms,1ms,1h" })),
)

/** The milliseconds from the record of an attempt to the next one. */
const untilNext = (delivery: { readonly updated_at: string; readonly next_attempt_at: string | null }) =>
  Date.parse(String(delivery.next_attempt_at)) - Date.parse(delivery.updated_at)

const expectConflict = Effect.fnUntraced(function* (tenant: Tenant, path: string, json: object, sentence: string) {
  const answer = yield* tenant.ask(path, json)
  expect([answer.status, faultOfWebhookError(answer)], answer.text).toEqual([409, undefined])
  expect(answer.json).toMatchObject({ message: sentence })
})
const retry = (tenant: Tenant, delivery_id: string) => tenant.call("webhooks/deliveries/retry", { delivery_id })

/** The secrets that signed a delivery, by the header of Standard Webhooks. */
const signers = ({ headers, body }: Received, secrets: ReadonlyArray<string>) =>
  Effect.filter(secrets, (secret) =>
    Effect.promise(() =>
      verifyWebhook({ headers, body }, secret, { toleranceSeconds: Number.POSITIVE_INFINITY }).then(
        () => true,
        () => false,
      ),
    ),
  )

layer(server, { excludeTestServices: true })("retries of deliveries", (it) => {
  it.effect("a failure is retried with the same id and bytes, and every attempt can be read", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    const long = `${"a".repeat(4_095)}\u{1f4da}${"b".repeat(1_000)}`
    receiver.behave(() =>
      receiver.received.length === 1
        ? { status: 500, body: long }
        : receiver.received.length <= 3 // The second attempt, and its request that is sent again at once.
          ? "close"
          : { status: 201, body: "thanks\0" },
    )
    yield* tenant.endpoint(receiver.url)
    const delivery = yield* tenant.attempted(yield* tenant.finished(), 3)
    expect(String(keysOf(delivery))).toBe(
      "attempt_log,attempts,created_at,delivery_id,event,event_id,job_id,last_duration_ms,last_failure,last_status,next_attempt_at,payload,state,updated_at,webhook_endpoint_id",
    )
    expect(delivery).toMatchObject({ state: "delivered", event: "job.completed", attempts: 3, next_attempt_at: null })
    expect(String(keysOf(delivery.attempt_log[0]))).toBe("body,duration_ms,error,failure,number,started_at,status")
    const seen = { started_at: expect.stringMatching(/Z$/) as string, duration_ms: expect.any(Number) as number }
    expect(delivery.attempt_log).toEqual([
      // A character that the limit splits is left out.
      { ...seen, number: 1, status: 500, failure: null, error: null, body: "a".repeat(4_095) },
      { ...seen, number: 2, status: null, failure: "connection", error: expect.any(String) as string, body: null },
      { ...seen, number: 3, status: 201, failure: null, error: null, body: "thanks\ufffd" },
    ])
    const [first, ...others] = receiver.received
    for (const other of others) {
      expect(other.headers["webhook-id"]).toBe(delivery.delivery_id)
      expect(other.body.equals(first!.body)).toBe(true)
      expect(other.headers["x-webhook-signature"]).toBe(first!.headers["x-webhook-signature"])
    }
  })

  it.effect("a redirect or a refused connection is a failure, and the schedule continues", function* () {
    const tenant = yield* makeTenant()
    const [target, receiver] = [yield* makeReceiver(), yield* makeReceiver()]
    receiver.behave({ status: 308, headers: { location: target.url } })
    yield* tenant.endpoint(receiver.url)
    const redirected = yield* tenant.attempted(yield* tenant.finished(), 3)
    expect(redirected).toMatchObject({ state: "pending", attempts: 3 })
    expect(redirected.attempt_log).toMatchObject([{ status: 308, failure: null }, {}, {}])
    expect(target.connections().accepted).toBe(0)
    const wait = untilNext(redirected)
    expect(wait).toBeGreaterThan(0.79 * hour)
    expect(wait).toBeLessThan(1.21 * hour)

    const others = yield* makeTenant()
    yield* others.endpoint(`http://127.0.0.1:${yield* closedPort}/`)
    const refused = yield* others.attempted(yield* others.finished(), 3)
    expect(refused.attempt_log[2]).toMatchObject({ status: null, failure: "connection", body: null })
    expect(refused.attempt_log[2]!.error).toMatch(/refused/)
  })

  it.effect(
    "Retry-After lengthens a wait after 429 and 503, to 24 hours at most, and after no other status",
    function* () {
      const tenant = yield* makeTenant()
      const cases: ReadonlyArray<readonly [number, string, number]> = [
        [429, "7200", 2 * hour],
        [503, new Date(Date.now() + 3 * hour).toUTCString(), 3 * hour],
        [429, "999999999", 24 * hour],
        [503, "soon", 0],
        [429, "0", 0],
        [500, "7200", 0],
        [301, "7200", 0],
      ]
      const receiver = yield* makeReceiver()
      receiver.behave(({ path }) => {
        const [status, after] = cases[Number(path.slice(1))]!
        return { status, headers: { "retry-after": after } }
      })
      for (let n = 0; n < cases.length; n++) yield* tenant.endpoint(`${receiver.url}/${n}`)
      const deliveries = (yield* tenant.deliveries({ job_id: yield* tenant.finished() })).toReversed()
      for (const [n, [status, after, wait]] of cases.entries()) {
        const at = `${status} ${after}`
        const found = yield* tenant.until(deliveries[n]!.delivery_id, ({ attempts }) => attempts >= (wait > 0 ? 1 : 3))
        if (wait === 0) continue
        expect(found.attempts, at).toBe(1)
        // A date has whole seconds, and counts from the time at which it was written.
        expect(Math.abs(untilNext(found) - wait), at).toBeLessThan(60_000)
      }
    },
  )

  it.effect("a delivered one can be resent, but none that is in flight or whose endpoint was deleted", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    const endpoint = yield* tenant.endpoint(receiver.url)
    const { delivery_id } = yield* tenant.attempted(yield* tenant.finished())
    const again = yield* tenant.ask("webhooks/deliveries/retry", { delivery_id })
    expect([again.status, String(keysOf(again.json))]).toEqual([200, "message,success"])
    yield* receiver.arrived(2)
    expect(receiver.received[1]!.headers["webhook-id"]).toBe(delivery_id)
    yield* tenant.until(delivery_id, ({ attempts, state }) => attempts === 2 && state === "delivered")

    const path = "webhooks/deliveries/retry"
    yield* Effect.scoped(
      Effect.gen(function* () {
        const hanging = yield* makeReceiver()
        hanging.behave("hang")
        yield* tenant.call("webhooks/update", { id: endpoint, url: hanging.url })
        yield* retry(tenant, delivery_id)
        yield* hanging.arrived(1)
        yield* expectConflict(
          tenant,
          path,
          { delivery_id },
          "An attempt of this delivery is in flight; try again when it has ended.",
        )
        yield* tenant.call("webhooks/delete", { id: endpoint })
        expect(yield* tenant.delivery(delivery_id)).toMatchObject({ state: "canceled", attempts: 2 })
      }),
    )
    // An attempt in flight when its endpoint is deleted is recorded, and is not retried.
    const ended = yield* tenant.until(delivery_id, ({ attempts }) => attempts === 3)
    expect(ended).toMatchObject({ state: "canceled", next_attempt_at: null })
    expect(ended.attempt_log[2]).toMatchObject({ failure: "connection" })
    yield* expectConflict(tenant, path, { delivery_id }, "The webhook endpoint was deleted.")
  })

  it.effect(
    "a new url or secret applies from the next attempt on, and the old secret signs too for 24 hours",
    function* () {
      const { advance } = yield* TestServer
      const tenant = yield* makeTenant()
      const [before, after] = [yield* makeReceiver(), yield* makeReceiver()]
      before.behave({ status: 500 })
      const secrets = ["whsec_b2xk", "whsec_bmV3", "newest"] as const
      const [old, fresh, newest] = secrets
      const id = yield* tenant.endpoint(before.url, { signing_secret: old })
      const { delivery_id } = yield* tenant.attempted(yield* tenant.finished(), 3)
      yield* tenant.call("webhooks/update", { id, url: after.url, signing_secret: fresh })
      const next = Effect.fnUntraced(function* (n: number) {
        yield* retry(tenant, delivery_id)
        yield* after.arrived(n)
        yield* tenant.until(delivery_id, ({ attempts, state }) => attempts === n + 3 && state === "delivered")
        return after.received[n - 1]!
      })
      const first = yield* next(1)
      expect(before.received).toHaveLength(3)
      expect(yield* signers(before.received[2]!, secrets)).toEqual([old])
      expect(yield* signers(first, secrets)).toEqual([old, fresh])
      expect(first.headers["webhook-signature"]).toMatch(/^v1,\S{44} v1,\S{44}$/)
      const { "x-webhook-signature": bodyOnly } = first.headers
      for (const [secret, matches] of [
        [old, false],
        [fresh, true],
      ] as const) {
        expect(bodyOnly === hmac(secret, first.body)).toBe(matches)
        // The library accepts either secret.
        new Webhook(secret).verify(first.body, first.headers as Record<string, string>)
      }
      // At the next change, only the secret before it keeps signing.
      yield* tenant.call("webhooks/update", { id, signing_secret: newest })
      expect(yield* signers(yield* next(2), secrets)).toEqual([fresh, newest])
      yield* advance("23 hours")
      expect(yield* signers(yield* next(3), secrets)).toEqual([fresh, newest])
      yield* advance("61 minutes")
      expect(yield* signers(yield* next(4), secrets)).toEqual([newest])
    },
  )
})
