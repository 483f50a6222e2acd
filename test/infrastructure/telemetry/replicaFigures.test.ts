import { assert } from "@effect/vitest"
import { Effect, Metric } from "effect"
import { TestClock } from "effect/testing"
import * as ReplicaFigures from "#src/infrastructure/activity/ActivityWorker.ts"
import { it } from "../../support/it.ts"

const boundaries = [0.001, 0.01, 0.1, 1]
const request = (route: string, status = "200") =>
  Metric.histogram("http_request_duration_seconds", { boundaries, attributes: { method: "POST", route, status } })
const database = Metric.histogram("gatehouse_database_operation_duration_seconds", {
  boundaries,
  attributes: { outcome: "ok" },
})

/** Runs with a registry of its own, because other tests measure, too. */
const alone = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.provideService(effect, Metric.MetricRegistry, new Map())

const times = (count: number, metric: Metric.Histogram<number>, seconds: number) =>
  Effect.replicateEffect(Metric.update(metric, seconds), count, { discard: true })

it.effect("says how often operations ran in a minute and how long they took, over all their routes", () =>
  alone(
    Effect.gen(function* () {
      yield* times(1_000, request("/v1/jobs/create"), 0.5)
      const measure = yield* ReplicaFigures.make
      yield* times(99, request("/v1/jobs/create"), 0.005)
      yield* times(100, request("/api/v0/orgs", "400"), 0.005)
      yield* times(1, request("/api/v0/orgs"), 0.05)
      yield* times(4, request("/api/v0/keys/validate"), 0.0005)
      yield* times(4, request("/healthz"), 5)
      yield* times(4, request("/v1/jobs/claim"), 20)
      yield* times(2, database, 7)
      yield* Metric.update(Metric.gauge("gatehouse_database_connections_max"), 10)
      yield* Metric.update(Metric.gauge("gatehouse_database_operations_in_flight"), 3)
      yield* TestClock.adjust("2 minutes")
      const { attempts, database: operations, requests, validations, ...gauges } = yield* measure
      // 199 of 200 lie between 1 and 10 ms, as if spread evenly.
      assert.deepStrictEqual(requests, { perMinute: 100, p50Millis: 5.52, p99Millis: 9.95 })
      assert.deepStrictEqual(validations, { perMinute: 2, p50Millis: 0.5, p99Millis: 0.99 })
      assert.deepStrictEqual(attempts, { perMinute: 0, p50Millis: null, p99Millis: null })
      // Longer than the last boundary.
      assert.deepStrictEqual(operations, { perMinute: 1, p50Millis: 1000, p99Millis: 1000 })
      assert.deepStrictEqual(gauges, { databaseInFlight: 3, databaseConnections: 10 })
    }),
  ),
)

it.effect("forgets what was more than five minutes ago", () =>
  alone(
    Effect.gen(function* () {
      const measure = yield* ReplicaFigures.make
      yield* times(10, request("/v1/jobs/create"), 0.5)
      const perMinute = Effect.map(
        Effect.andThen(TestClock.adjust("20 seconds"), measure),
        (it) => it.requests.perMinute,
      )
      assert.strictEqual(yield* perMinute, 30)
      for (let n = 0; n < 13; n++) yield* perMinute
      assert.strictEqual(yield* perMinute, 2)
      // The oldest state in the range is now from after the requests.
      assert.strictEqual(yield* perMinute, 0)
    }),
  ),
)
