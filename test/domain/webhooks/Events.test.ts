import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Stream } from "effect"
import { TestClock } from "effect/testing"
import { Events } from "#src/domain/webhooks/Events.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { WebhookEndpoints } from "#src/domain/webhooks/WebhookEndpoints.ts"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"
import { it } from "../../support/it.ts"
import { failureOf, outcomeOf } from "../support.ts"
import { as, makeOrg, services, settle } from "./webhookSupport.ts"

const publish = (type: string, data: unknown, idempotency_key?: string) =>
  Events.use(({ publish }) => {
    const event = { type, data, ...(idempotency_key === undefined ? {} : { idempotency_key }) }
    return Effect.map(
      publish([event], () => "data"),
      ({ ids }) => ids,
    )
  })

describe("Events", () => {
  it.effect("the body has the five fields in order, with the data as it was sent", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      yield* TestClock.setTime(Date.UTC(2026, 10, 20, 17, 0, 0, 123))
      const data = { text: '✓ \u{1f4da} \u2028 "\\ \0', "": [], n: 1e21, null: null }
      const [id] = yield* publish("invoice.paid", data)
      const { body, createdAt } = (yield* WebhookWorld).events.get(id!)!
      const parsed = JSON.parse(body)
      assert.deepStrictEqual(Object.keys(parsed), ["event", "event_id", "nonce", "created_at", "data"])
      assert.deepStrictEqual(parsed, {
        event: "invoice.paid",
        event_id: id,
        nonce: parsed.nonce,
        created_at: "2026-11-20T17:00:00.123Z",
        data,
      })
      assert.match(parsed.nonce, /^[0-9a-f]{32}$/)
      assert.strictEqual(DateTime.formatIso(createdAt), "2026-11-20T17:00:00.123Z")
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("data is any JSON of at most 256 KiB", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      for (const data of [null, 0, "", [], {}, false]) assert.strictEqual(yield* outcomeOf(publish("a.b", data)), "ok")
      const max = 256 * 1024 - 2
      assert.strictEqual(yield* outcomeOf(publish("a.b", "x".repeat(max))), "ok")
      assert.include(yield* failureOf(publish("a.b", "x".repeat(max + 1))), "data must have at most 256 KiB")
      // The limit counts bytes, not characters.
      assert.include(yield* failureOf(publish("a.b", "é".repeat(max / 2 + 1))), "data must have at most 256 KiB")
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("a batch is published as a whole, or not at all", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const { events } = yield* WebhookWorld
      const batch = (last: unknown) =>
        Events.use((own) =>
          own.publish(
            [
              { type: "a.b", data: 1 },
              { type: "a.c", data: last },
            ],
            (n) => `events.${n}.data`,
          ),
        )
      assert.include(yield* failureOf(batch("x".repeat(300_000))), "events.1.data must have at most 256 KiB")
      assert.strictEqual(events.size, 0)
      const { ids, repeated } = yield* batch(2)
      assert.strictEqual(repeated, 0)
      assert.deepStrictEqual(
        ids.map((id) => events.get(id)!.type),
        ["a.b", "a.c"],
      )
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("a publish wakes the delivery worker", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      yield* WebhookEndpoints.use((endpoints) =>
        endpoints.create({ url: "https://example.com/hook", signing_secret: "s", event_types: ["a.*"] }),
      )
      const wakeups = yield* Wakeups
      let woken = 0
      yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => Effect.sync(() => void woken++)))
      yield* settle
      yield* publish("a.b", null)
      yield* settle
      assert.strictEqual(woken, 1)
      assert.strictEqual((yield* WebhookWorld).deliveries.size, 1)
    }).pipe(as("o"), Effect.scoped, Effect.provide(services())),
  )
})
