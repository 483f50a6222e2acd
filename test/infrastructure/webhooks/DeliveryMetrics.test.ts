import { assert, describe } from "@effect/vitest"
import { Context, DateTime, Duration, Effect, Layer, Metric } from "effect"
import type { RetryDecision } from "#src/domain/webhooks/RetryDecision.ts"
import { type AttemptRecord, type ClaimedDelivery, DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import type { AttemptOutcome } from "#src/domain/webhooks/WebhookSender.ts"
import * as DeliveryMetrics from "#src/infrastructure/webhooks/DeliveryTelemetry.ts"
import { it } from "../../support/it.ts"

const now = DateTime.makeUnsafe(0)
const made = (outcome: Partial<AttemptOutcome>, _tag: Exclude<RetryDecision["_tag"], "Retry">): AttemptRecord => ({
  delivery: { orgId: "o", deliveryId: "d", endpointId: null } as ClaimedDelivery,
  startedAt: now,
  outcome: { status: null, failure: null, body: null, retryAfter: null, duration: Duration.seconds(2), ...outcome },
  decision: _tag === "Deactivate" ? { _tag, reason: "failing" } : { _tag },
  nextAttemptAt: null,
})

/** An outbox with metrics over one that fails while it is told to. */
const world = Effect.gen(function* () {
  const database = { away: false }
  const queue = Layer.mock(DeliveryQueue, {
    record: () => Effect.suspend(() => (database.away ? Effect.fail(new Unavailable({ error: "away" })) : Effect.void)),
  })
  const counted = yield* Layer.build(Layer.provide(DeliveryMetrics.layer, queue))
  const states = Effect.map(Metric.snapshot, (all) =>
    Object.fromEntries(
      all.flatMap(({ attributes, state }) =>
        "count" in state && state.count > 0 ? [[Object.values(attributes!)[0], state]] : [],
      ),
    ),
  )
  return { database, record: Context.get(counted, DeliveryQueue).record, states }
})

/** Runs with metrics of its own. */
const alone = <A, E, R>(test: Effect.Effect<A, E, R>) => Effect.provideService(test, Metric.MetricRegistry, new Map())

describe("DeliveryMetrics", () => {
  it.effect("counts attempts once they are recorded", () =>
    Effect.gen(function* () {
      const { database, record, states } = yield* world
      const records = [made({ status: 204 }, "Delivered"), made({ status: 302 }, "Exhausted")]
      database.away = true
      yield* Effect.flip(record(records, now))
      assert.deepStrictEqual(yield* states, {})
      database.away = false
      yield* record(records, now)
      assert.sameMembers(Object.keys(yield* states), ["2xx", "3xx", "delivered", "failed"])
      assert.deepInclude((yield* states)["2xx"], { count: 1, sum: 2 })
    }).pipe(alone),
  )

  it.effect("measures no duration for an attempt that was never sent", () =>
    Effect.gen(function* () {
      const { record, states } = yield* world
      yield* record([made({ failure: { kind: "secret", message: "" } }, "Exhausted")], now)
      yield* record([made({ failure: { kind: "timeout", message: "" } }, "Deactivate")], now)
      yield* record([made({ status: 700 }, "Exhausted")], now)
      assert.sameMembers(Object.keys(yield* states), ["timeout", "other", "failed", "deactivated"])
    }).pipe(alone),
  )
})
