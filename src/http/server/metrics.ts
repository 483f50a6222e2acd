import { Context, Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { DatabaseSize } from "../../domain/DatabaseSize.ts"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { SweepRepository } from "../../domain/sweeps/Sweeps.ts"
import { measureBacklog } from "./backlogMetrics.ts"
import { measureDatabaseSize } from "./databaseSizeMetric.ts"
import { guardedByToken } from "./metricsAccess.ts"

/** `GET /metrics` for Prometheus, guarded by `metricsAccess.ts`. Queries the backlog at most once in five seconds, the size once in a minute. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const repositories = Context.make(DeliveryQueue, yield* DeliveryQueue).pipe(
      Context.add(SweepRepository, yield* SweepRepository),
    )
    const backlog = yield* Effect.cachedWithTTL(Effect.provideContext(measureBacklog, repositories), "5 seconds")
    const size = Effect.provideService(measureDatabaseSize, DatabaseSize, yield* DatabaseSize)
    const measured = Effect.all([backlog, yield* Effect.cachedWithTTL(size, "1 minute")], { concurrency: 2 })
    const text = Effect.andThen(measured, PrometheusMetrics.format())
    const contentType = "text/plain; version=0.0.4; charset=utf-8"
    const answer = Effect.map(text, (body) => HttpServerResponse.text(body, { contentType }))
    yield* router.add("GET", "/metrics", yield* guardedByToken(answer))
  }),
)
