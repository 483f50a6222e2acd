/* oxlint-disable no-console -- a program for the terminal */
import { NodeRuntime } from "@effect/platform-node"
import { Context, DateTime, Duration, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { type AttemptRecord, type ClaimedDelivery, DeliveryQueue } from "../src/domain/webhooks/DeliveryQueue.ts"
import { ValidationCounter } from "../src/domain/keys/KeyChecks.ts"
import * as ValidationMetrics from "../src/infrastructure/keys/KeyCache.ts"
import { logged, measured as measuredRequest, series } from "../src/http/server/requestTelemetry.ts"
import { orUnavailable } from "../src/infrastructure/database/orUnavailable.ts"
import * as DeliveryMetrics from "../src/infrastructure/webhooks/DeliveryTelemetry.ts"

/**
 * The number of repetitions. `node bench/observability.ts` measures the processor time of metrics and of log
 * annotations.
 */
const times = 200_000
const rounds = 9

const cpu = () => {
  const { user, system } = process.cpuUsage()
  return user + system
}

/** The median processor time of one repetition, in nanoseconds. */
const nanos = Effect.fnUntraced(function* (one: Effect.Effect<unknown>) {
  const all: Array<number> = []
  const many = Effect.replicateEffect(one, times, { discard: true })
  for (let round = 0; round < rounds; round++) {
    const before = cpu()
    yield* many
    all.push(((cpu() - before) * 1000) / times)
  }
  return all.toSorted((a, b) => a - b)[rounds >> 1]!
})

const compare = Effect.fnUntraced(function* (
  what: string,
  without: Effect.Effect<unknown>,
  withIt: Effect.Effect<unknown>,
) {
  const [before, after] = [yield* nanos(without), yield* nanos(withIt)]
  console.log(`${what.padEnd(40)} ${String(Math.round(after - before)).padStart(6)} ns`)
})

const route = { path: "/api/v0/projects/:projectId" } as unknown as HttpRouter.Route<never, never>
const response = { status: 200 }
const record: AttemptRecord = {
  delivery: { orgId: "o", deliveryId: "d", endpointId: "w" } as ClaimedDelivery,
  startedAt: DateTime.makeUnsafe(0),
  outcome: { status: 204, failure: null, body: null, retryAfter: null, duration: Duration.millis(3) },
  decision: { _tag: "Delivered" },
  nextAttemptAt: null,
}
const batch = Array.from({ length: 100 }, () => record)

const program = Effect.gen(function* () {
  const context = yield* Effect.context<never>()
  const count = yield* Effect.provide(ValidationCounter, ValidationMetrics.validationMetrics)
  const duration = series("POST", "/api/v0/keys/validate", 200)
  const hot = Effect.sync(() => {
    const startedAt = performance.now()
    count("valid", "memory")
    duration.updateUnsafe((performance.now() - startedAt) / 1000, context)
  })
  yield* compare("a validation by the hot path", Effect.void, hot)

  const request = Effect.succeed(response)
  const about = () => ({ requestId: "r", method: "GET", path: "/" })
  yield* compare(
    "a request by the router",
    request,
    Effect.suspend(() => Effect.updateContext(measuredRequest("GET", request), logged(about()))),
  ).pipe(Effect.provideService(HttpRouter.RouteContext, { route, params: {} }))

  yield* compare("an operation on the database, limited", request, Effect.orDie(orUnavailable(request)))

  const plain = DeliveryQueue.of({
    claim: () => Effect.succeed({ deliveries: [], more: false, short: false, throttledUntil: null }),
    record: () => Effect.void,
    release: () => Effect.void,
    look: Effect.succeed({ found: false, waitMillis: 1_000 }),
    nextDueAt: Effect.succeed(null),
    countDue: () => Effect.succeed({ count: 0, oldestDueAt: null }),
    correctTimes: () => Effect.succeed(0),
  })
  const counted = yield* Layer.build(Layer.provide(DeliveryMetrics.layer, Layer.succeed(DeliveryQueue, plain)))
  const now = DateTime.makeUnsafe(0)
  const recordWith = (queue: DeliveryQueue["Service"]) => Effect.orDie(queue.record(batch, now))
  yield* compare("100 attempts, recorded together", recordWith(plain), recordWith(Context.get(counted, DeliveryQueue)))
})

NodeRuntime.runMain(Effect.scoped(program))
