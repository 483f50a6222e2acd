import { Context, Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { SweepRepository } from "../../domain/webhooks/Sweeps.ts"
import { measureBacklog } from "./backlogMetrics.ts"
import { guardedByToken } from "./metricsAccess.ts"

/** `GET /metrics` for Prometheus, guarded by `metricsAccess.ts`. Queries the database at most once in five seconds. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const repositories = Context.make(DeliveryQueue, yield* DeliveryQueue).pipe(
      Context.add(SweepRepository, yield* SweepRepository),
    )
    const measured = yield* Effect.cachedWithTTL(Effect.provideContext(measureBacklog, repositories), "5 seconds")
    const text = Effect.andThen(measured, PrometheusMetrics.format())
    const contentType = "text/plain; version=0.0.4; charset=utf-8"
    const answer = Effect.map(text, (body) => HttpServerResponse.text(body, { contentType }))
    yield* router.add("GET", "/metrics", yield* guardedByToken(answer))
  }),
)
