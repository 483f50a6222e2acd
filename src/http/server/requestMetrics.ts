import { Context, Effect, Metric } from "effect"
import { HttpRouter } from "effect/http"

const boundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
const methods = new Set(["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])

/** The label `route` of requests that match no route. */
const unmatched = "unmatched"

const all = new Map<string, Metric.Histogram<number>>()

/**
 * The histogram of a method, a route and a status. A client cannot create series: an unknown method is `other`, and an
 * unknown path is `unmatched`.
 *
 * @param path of the route, as the router has it: `/api/v0/projects/:projectId`
 */
export const series = (sent: string, path: string, status: number): Metric.Histogram<number> => {
  const method = methods.has(sent) ? sent : "other"
  const key = `${method} ${path} ${status}`
  const known = all.get(key)
  if (known !== undefined) return known
  // With its attributes from the start: adding them later costs time at every update.
  const made = Metric.histogram("http_request_duration_seconds", {
    description: "How long requests took, in seconds, by method, route and status.",
    boundaries,
    attributes: { method, route: path.replace(/:(\w+)/g, "{$1}"), status: String(status) },
  })
  all.set(key, made)
  return made
}

/**
 * Measures the duration of a request. Must wrap the router directly: it reads the route from the fiber's context, which a
 * `provide` around the router would restore.
 */
export const measured = <A extends { readonly status: number }, E, R>(method: string, answer: Effect.Effect<A, E, R>) =>
  Effect.withFiber<A, E, R>((fiber) => {
    const startedAt = performance.now()
    return Effect.map(answer, (answered) => {
      const { context } = fiber
      const route = Context.getOrUndefined(context as Context.Context<unknown>, HttpRouter.RouteContext)?.route
      const seconds = (performance.now() - startedAt) / 1000
      series(method, route?.path ?? unmatched, answered.status).updateUnsafe(seconds, context)
      return answered
    })
  })
