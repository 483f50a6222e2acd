import { assert, describe, it } from "@effect/vitest"
import { Context, Duration, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { type FailureKind, WebhookSender } from "#src/domain/webhooks/WebhookSender.ts"
import { SafeHttp } from "#src/infrastructure/net/SafeHttp.ts"
import * as Sender from "#src/infrastructure/webhooks/WebhookSender.ts"
import { type Behaviour, closedPort, makeReceiver } from "../../support/receiver.ts"

/** Returns how a sender sends one request, in open mode by default. */
const sender = Effect.fnUntraced(function* (timeout: Duration.Input = "30 seconds", allowPrivateNetworks = true) {
  const http = SafeHttp.layer({ allowPrivateNetworks })
  const { send } = Context.get(yield* Layer.build(Layer.provide(Sender.layer({ timeout }), http)), WebhookSender)
  return (url: string, body = "{}") => send({ url, headers: { "content-type": "application/json" }, body })
})

describe("WebhookSender", () => {
  it.live("posts the exact bytes, and returns the answer", () =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender()
      receiver.behave({ status: 202, body: "ok" })
      const { duration, ...outcome } = yield* send(`${receiver.url}/hook`, '{"text":"ä\\u2028"}')
      assert.deepStrictEqual(outcome, { status: 202, failure: null, body: "ok", retryAfter: null })
      assert.isTrue(Duration.isGreaterThan(duration, Duration.zero))
      const [{ method, path, headers, body } = assert.fail()] = receiver.received
      assert.deepStrictEqual([method, path, headers["content-type"]], ["POST", "/hook", "application/json"])
      assert.deepStrictEqual(body, Buffer.from('{"text":"ä\\u2028"}'))
    }),
  )

  it.live.each([204, 304, 308, 400, 410, 500])("returns any status as an outcome without a failure: %i", (status) =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender()
      receiver.behave({ status, headers: { location: `${receiver.url}/elsewhere` } })
      assert.deepInclude(yield* send(receiver.url), { status, failure: null, body: "" })
      assert.strictEqual(receiver.received.length, 1)
    }),
  )

  it.live.each(["120", "0", "Fri, 20 Nov 2026 17:00:00 GMT", "Friday, 20-Nov-26 17:00:00 GMT", "soon", "-1"])(
    "returns Retry-After as it came: %s",
    (retryAfter) =>
      Effect.gen(function* () {
        const receiver = yield* makeReceiver()
        const send = yield* sender()
        for (const status of [429, 503]) {
          receiver.behave({ status, headers: { "retry-after": retryAfter } })
          assert.deepInclude(yield* send(receiver.url), { status, retryAfter })
        }
      }),
  )

  const faults: ReadonlyArray<readonly [Behaviour, FailureKind, number | null]> = [
    ["hang", "timeout", null],
    ["drip-headers", "timeout", null],
    ["drip", "timeout", 200],
    ["close", "connection", null],
    ["reset", "connection", null],
    ["reset-in-headers", "connection", null],
    ["reset-in-body", "connection", 200],
    ["garbage", "bad_response", null],
    ["endless-headers", "bad_response", null],
    ["endless-body", "bad_response", 200],
  ]
  it.live.each(faults)("never fails: %s → %s, status %s", ([behaviour, kind, status]) =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender(kind === "timeout" ? "2 seconds" : "30 seconds")
      receiver.behave(behaviour)
      const outcome = yield* send(receiver.url)
      assert.strictEqual(outcome.failure?.kind, kind)
      assert.strictEqual(outcome.status, status)
      assert.strictEqual(outcome.body === null, status === null)
    }),
  )

  it.live("never fails: unused port, unknown name, unresolvable address, invalid url", () =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const kinds = Effect.fnUntraced(function* (send: Effect.Success<ReturnType<typeof sender>>) {
        const urls = [
          `http://127.0.0.1:${yield* closedPort}`,
          receiver.url,
          "http://localhost:1",
          "http://169.254.169.254",
          "x",
        ]
        return yield* Effect.forEach(urls, (url) => Effect.map(send(url), ({ failure }) => failure?.kind ?? null))
      })
      assert.deepStrictEqual(yield* kinds(yield* sender()), [
        "connection",
        null,
        "connection",
        "refused_address",
        "refused_address",
      ])
      const guarded = yield* kinds(yield* sender("30 seconds", false))
      assert.deepStrictEqual(
        guarded,
        Array.from({ length: 5 }, () => "refused_address"),
      )
      assert.strictEqual(receiver.received.length, 1)
    }),
  )

  it.live("reads 64 KiB and keeps 4, and a longer 2xx is no success", () =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender()
      receiver.behave({ status: 200, body: "x".repeat(64 * 1024) })
      assert.deepInclude(yield* send(receiver.url), { status: 200, failure: null, body: "x".repeat(4096) })
      for (const [status, kind] of [
        [200, "bad_response"],
        [410, undefined],
        [500, undefined],
      ] as const) {
        receiver.behave({ status, body: "x".repeat(64 * 1024 + 1) })
        const outcome = yield* send(receiver.url)
        assert.deepInclude(outcome, { status, body: "x".repeat(4096) })
        assert.strictEqual(outcome.failure?.kind, kind)
      }
    }),
  )

  it.live("keeps a body as text that the database can store", () =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender()
      const bodyOf = (body: string | Uint8Array) => {
        receiver.behave({ status: 200, body })
        return Effect.map(send(receiver.url), ({ body }) => body)
      }
      assert.strictEqual(yield* bodyOf("a\0b"), "a\uFFFDb")
      assert.strictEqual(yield* bodyOf(new Uint8Array([0x61, 0xff, 0xc3])), "a\uFFFD\uFFFD")
      assert.strictEqual(yield* bodyOf("äöü 🎉"), "äöü 🎉")
      // The limit is inside a character, which is left out.
      assert.strictEqual(yield* bodyOf("x".repeat(4095) + "🎉"), "x".repeat(4095))
      receiver.behave("bomb")
      assert.notInclude((yield* send(receiver.url)).body, "\0")
    }),
  )

  it.effect("measures with Effect's clock", () =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver()
      const send = yield* sender()
      receiver.behave("hang")
      const attempt = yield* Effect.forkChild(send(receiver.url))
      yield* receiver.arrived(1)
      yield* TestClock.adjust("7 seconds")
      receiver.behave({ status: 200 })
      attempt.interruptUnsafe()
      const { duration } = yield* send(receiver.url)
      assert.deepStrictEqual(duration, Duration.nanos(0n))
    }),
  )
})
