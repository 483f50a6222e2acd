import { Context, Effect, Metric } from "effect"
import { HttpRouter } from "effect/http"

const boundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
const methods = new Set(["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])

/** The route of requests for which there is none. */
const unmatched = "unmatched"

const all = new Map<string, Metric.Histogram<number>>()

/**
 * The series of a method, a route and a status. A client can make up methods and paths, not series: what is no method of
 * HTTP is `other`, and what no route matches is `unmatched`.
 *
 * @param path the route's, as the router has it: `/api/v0/projects/:projectId`
 */
export const series = (sent: string, path: string, status: number): Metric.Histogram<number> => {
  const method = methods.has(sent) ? sent : "other"
  const key = `${method} ${path} ${status}`
  const known = all.get(key)
  if (known !== undefined) return known
  // With its attributes from the start: to add them costs as much at every update.
  const made = Metric.histogram("http_request_duration_seconds", {
    description: "How long requests took, in seconds, by method, route and status.",
    boundaries,
    attributes: { method, route: path.replace(/:(\w+)/g, "{$1}"), status: String(status) },
  })
  all.set(key, made)
  return made
}

/**
 * Counts an effect that answers a request, and how long it took. To be put next to the router: the route stays in the
 * fiber's context until whatever was provided around it is taken away again.
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
