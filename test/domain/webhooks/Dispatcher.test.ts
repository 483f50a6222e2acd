import { assert, describe } from "@effect/vitest"
import { DateTime, Duration, Effect, Fiber, Layer, Random } from "effect"
import { TestClock } from "effect/testing"
import { Webhook } from "standardwebhooks"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "#src/domain/webhooks/Dispatcher.ts"
import { RetryDelays } from "#src/domain/webhooks/RetryDecision.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { answer, failure, Receiver } from "../../fakes/WebhookSender.ts"
import { it } from "../../support/it.ts"
import { as, services } from "./webhookSupport.ts"
import { hmac } from "../../support/hmac.ts"

/** Promise (What an endpoint asks for) */

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const old = "plain old secret"
const kept = (secret: string, owner = "endpoint") => ({ stored: JSON.stringify([owner, secret]), owner })

const delivery: ClaimedDelivery = {
  headerNames: "webhook",
  batchMax: null,
  bytes: 0,
  deliveryId: "01KAHBMKZ3D2X7S5QN8W4V6R9T",
  claimId: "claim",
  orgId: "o",
  endpointId: "endpoint",
  lane: "endpoint",
  url: "https://example.com/hook",
  secrets: [kept(secret)],
  signingKeys: [],
  headers: null,
  auth: null,
  retryDelays: null,
  ordered: false,
  delayMillis: null,
  eventId: "event",
  event: "job.failed",
  body: '{"event":"job.failed","result":"é 😀 \\u0000"}',
  attempts: 0,
  attemptsSinceResend: 0,
  failingSince: null,
  failures: 0,
}
const attempt = (changes: Partial<ClaimedDelivery> = {}) =>
  Dispatcher.use((dispatcher) => dispatcher.attempt({ ...delivery, ...changes }))
/** Makes the waits exact, without jitter. */
const exact = Effect.provideService(Random.Random, { nextIntUnsafe: () => 0, nextDoubleUnsafe: () => 0.5 })
const answers = (...outcomes: ReadonlyArray<ReturnType<typeof answer>>) =>
  Receiver.use((receiver) =>
    Effect.sync(() => {
      receiver.answers = outcomes.map((outcome) => Effect.succeed(outcome))
    }),
  )
/** The seconds until the next attempt. */
const nextIn = Effect.fnUntraced(function* (changes?: Partial<ClaimedDelivery>) {
  const { nextAttemptAt, decision } = yield* exact(attempt(changes))
  const now = yield* DateTime.now
  return nextAttemptAt === null || decision._tag !== "Retry"
    ? decision._tag
    : Duration.toSeconds(DateTime.distance(now, nextAttemptAt))
})
const run = <A, E>(effect: Effect.Effect<A, E, Dispatcher | Receiver>) =>
  effect.pipe(as("o"), Effect.provide(services()))

describe("attempts together", () => {
  it.effect("are one signed request with an array of the bodies, and each delivery gets its outcome", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.now())
      const deliveries = ["a", "b", "c"].map((n) => ({ ...delivery, deliveryId: n, body: `{"n":"${n}"}`, batchMax: 3 }))
      const together = (id: string) => Dispatcher.use((dispatcher) => dispatcher.attemptTogether(id, deliveries))
      const records = yield* together("first")
      assert.deepStrictEqual(
        records.map((record) => [record.delivery.deliveryId, record.decision._tag]),
        [
          ["a", "Delivered"],
          ["b", "Delivered"],
          ["c", "Delivered"],
        ],
      )
      yield* answers(answer(500))
      const failedToo = yield* together("second")
      assert.deepStrictEqual(new Set(failedToo.map(({ decision }) => decision._tag)), new Set(["Retry"]))
      const { requests } = yield* Receiver
      assert.strictEqual(requests.length, 2)
      assert.deepStrictEqual(
        requests.map(({ headers }) => headers["webhook-id"]),
        ["first", "second"],
      )
      for (const { body, headers } of requests) {
        assert.strictEqual(body, '[{"n":"a"},{"n":"b"},{"n":"c"}]')
        assert.strictEqual(headers["x-event-type"], "batch")
        assert.isArray(new Webhook(secret).verify(body, { ...headers }))
      }
    }).pipe(run),
  )
})

describe("an attempt", () => {
  it.effect("is signed for every kind of receiver: ours, Standard Webhooks, and those that check only the body", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.now())
      const { decision, nextAttemptAt, startedAt, outcome } = yield* attempt()
      assert.deepStrictEqual([decision, nextAttemptAt, outcome.status], [{ _tag: "Delivered" }, null, 200])
      assert.deepStrictEqual(startedAt, yield* DateTime.now)
      const { url, headers, body } = (yield* Receiver).requests[0]!
      assert.deepStrictEqual([url, body], [delivery.url, delivery.body])
      assert.deepStrictEqual(Object.keys(headers).sort(), [
        "content-type",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "x-event-type",
        "x-webhook-signature",
      ])
      assert.deepInclude(headers, { "x-event-type": "job.failed", "webhook-id": delivery.deliveryId })
      const { deliveryId } = yield* Effect.promise(() =>
        verifyWebhook({ headers, body }, secret, { toleranceSeconds: 5 }),
      )
      assert.strictEqual(deliveryId, delivery.deliveryId)
      new Webhook(secret).verify(body, headers)
      assert.strictEqual(headers["x-webhook-signature"], hmac(secret, body))
    }).pipe(run),
  )

  it.effect("is signed with both secrets during a change of the secret, each decrypted with the id of its owner", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.now())
      yield* attempt({ secrets: [kept(secret), kept(old)] })
      const { headers, body } = (yield* Receiver).requests[0]!
      for (const either of [secret, old]) yield* Effect.promise(() => verifyWebhook({ headers, body }, either))
      assert.strictEqual(headers["x-webhook-signature"], hmac(secret, body))
      // The owner of a callback's secret is its job or its schedule.
      yield* attempt({ endpointId: null, secrets: [kept(old, "schedule")] })
      // A secret that cannot be decrypted fails the attempt, which is retried. Nothing is sent, and the log shows why.
      const sent = (yield* Receiver).requests.length
      const { outcome, decision } = yield* attempt({ secrets: [{ ...kept(old, "another"), owner: "endpoint" }] })
      assert.deepStrictEqual([outcome.failure?.kind, decision._tag], ["secret", "Retry"])
      assert.strictEqual((yield* Receiver).requests.length, sent)
    }).pipe(run),
  )

  it.effect("has the id and body of the first attempt, with its own time and signature", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(1_800_000_000_999)
      yield* attempt()
      yield* TestClock.adjust("5 minutes")
      yield* attempt({ attempts: 1, attemptsSinceResend: 1 })
      const [first, second] = (yield* Receiver).requests
      assert.strictEqual(first!.body, second!.body)
      for (const same of ["webhook-id", "x-webhook-signature", "x-event-type"]) {
        assert.strictEqual(first!.headers[same], second!.headers[same])
      }
      assert.deepStrictEqual(
        [first!, second!].map(({ headers }) => headers["webhook-timestamp"]),
        ["1800000000", "1800000300"],
      )
      assert.notStrictEqual(first!.headers["webhook-signature"], second!.headers["webhook-signature"])
    }).pipe(run),
  )

  it.effect("is retried after the wait of the schedule, counted from its end, ten times in all", () =>
    Effect.gen(function* () {
      const receiver = yield* Receiver
      receiver.answers = [Effect.delay(Effect.succeed(failure("timeout")), "15 seconds")]
      const waits: Array<number | string> = []
      for (let made = 0; made < 10; made++) {
        const trying = yield* Effect.forkChild(nextIn({ attemptsSinceResend: made, attempts: made + 5 }))
        yield* TestClock.adjust("15 seconds")
        waits.push(yield* Fiber.join(trying))
      }
      assert.deepStrictEqual(waits, [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400, "Exhausted"])
    }).pipe(run),
  )

  it.effect("follows the retry delays of its endpoint", () =>
    Effect.gen(function* () {
      yield* answers(answer(500))
      assert.deepStrictEqual([yield* nextIn(), yield* nextIn({ attemptsSinceResend: 1 })], [2, "Exhausted"])
    }).pipe(Effect.provide(Layer.provide(services(), Layer.succeed(RetryDelays, [Duration.seconds(2)])))),
  )

  it.effect("waits longer when Retry-After says so, counted from the answer", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.parse("2026-11-20T17:00:00Z"))
      for (const [status, retryAfter, expected] of [
        [429, "120", 120],
        [503, "120", 120],
        [503, "Fri, 20 Nov 2026 18:00:00 GMT", 3600],
        [429, "1", 5],
        [429, "999999", 86_400],
        [429, "soon", 5],
        [429, null, 5],
        [500, "120", 5],
        [302, "120", 5],
      ] as const) {
        yield* answers(answer(status, { retryAfter }))
        assert.strictEqual(yield* nextIn(), expected)
      }
      yield* answers(answer(429, { retryAfter: "120" }))
      assert.strictEqual(yield* nextIn({ attemptsSinceResend: 9 }), "Exhausted")
    }).pipe(run),
  )

  it.effect("deactivates the endpoint after a 410, or after five days of failures; a callback has none", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(1_800_000_000_000)
      const now = yield* DateTime.now
      const since = (milliseconds: number) => ({
        failingSince: DateTime.subtract(now, { milliseconds }),
        failures: 4,
      })
      const fiveDays = 5 * 86_400_000
      yield* answers(answer(410))
      assert.deepStrictEqual([yield* nextIn(), yield* nextIn({ endpointId: null })], ["Deactivate", "Exhausted"])
      yield* answers(answer(500))
      assert.strictEqual(yield* nextIn(since(fiveDays)), "Deactivate")
      // The endpoint may stay active: then the delivery has its next attempt.
      const { nextAttemptAt } = yield* exact(attempt(since(fiveDays)))
      assert.deepStrictEqual(nextAttemptAt, DateTime.add(now, { seconds: 5 }))
      assert.strictEqual(yield* nextIn(since(fiveDays - 1)), 5)
      assert.strictEqual(yield* nextIn({ ...since(fiveDays - 1), attemptsSinceResend: 9 }), "Exhausted")
      yield* answers(answer(200))
      assert.strictEqual(yield* nextIn(since(fiveDays)), "Delivered")
    }).pipe(run),
  )
})
