import { Context, Effect, Layer, Metric, References, Tracer } from "effect"
import { HttpMiddleware, HttpRouter } from "effect/http"
import { randomUUID } from "node:crypto"
import { inBraces, operationAt } from "./knownRoutes.ts"

const boundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
const methods = new Set(["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])

/** A method as a label: clients may send any word. */
const methodOf = (sent: string) => (methods.has(sent) ? sent : "other")

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
  const key = `${methodOf(sent)} ${path} ${status}`
  const known = all.get(key)
  if (known !== undefined) return known
  // With its attributes from the start: adding them later costs time at every update.
  const made = Metric.histogram("http_request_duration_seconds", {
    description: "How long requests took, in seconds, by method, route and status.",
    boundaries,
    attributes: { method: methodOf(sent), route: inBraces(path), status: String(status) },
  })
  all.set(key, made)
  return made
}

/**
 * The buckets of `http_request_duration_seconds`, by their labels on the page of metrics, with a traced request of
 * each.
 */
export const exemplars = new Map<string, { readonly traceId: string; readonly seconds: number; readonly at: number }>()

/** Remembers a traced request as the example of its bucket. Bounded: each series has 14 buckets. */
const keepExemplar = (sent: string, path: string, status: number, seconds: number, traceId: string) => {
  const le = boundaries.find((boundary) => seconds <= boundary) ?? "+Inf"
  const labels = `method="${methodOf(sent)}",route="${inBraces(path)}",status="${status}",le="${le}"`
  exemplars.set(labels, { traceId, seconds, at: Date.now() / 1000 })
}

/**
 * Measures the duration of a request. Must wrap the router directly: it reads the route from the fiber's context, which
 * a `provide` around the router would restore.
 */
export const measured = <A extends { readonly status: number }, E, R>(method: string, answer: Effect.Effect<A, E, R>) =>
  Effect.withFiber<A, E, R>((fiber) => {
    const startedAt = performance.now()
    return Effect.map(answer, (answered) => {
      const { context } = fiber
      const route = Context.getOrUndefined(context as Context.Context<unknown>, HttpRouter.RouteContext)?.route
      const seconds = (performance.now() - startedAt) / 1000
      const path = route?.path ?? unmatched
      series(method, path, answered.status).updateUnsafe(seconds, context)
      const span = Context.getOrUndefined(context as Context.Context<unknown>, Tracer.ParentSpan)
      if (span?.sampled === true) keepExemplar(method, path, answered.status, seconds, span.traceId)
      return answered
    })
  })

/** The annotations of the log lines of a request: one mutable object, so that later findings are on later lines. */
const LogFields = Context.Reference<Record<string, string> | undefined>("gatehouse/http/requestLog/LogFields", {
  defaultValue: () => undefined,
})

/** Adds the fields to the log lines of a request, with the fields that are added to the object later. */
export const logged =
  (fields: Record<string, string>) =>
  <R>(context: Context.Context<R>): Context.Context<R> =>
    context.pipe(Context.add(LogFields, fields), Context.add(References.CurrentLogAnnotations, fields))

/** Adds the org to the log lines of the request from now on, and to its span. */
export const annotateOrg = (orgId: string): Effect.Effect<void> =>
  Effect.flatMap(LogFields, (fields) => {
    if (fields !== undefined) fields["orgId"] = orgId
    return Effect.annotateCurrentSpan("gatehouse.org.id", orgId)
  })

const safe = /^[A-Za-z0-9._:/+=-]{1,128}$/

/** The id of a request: its `x-request-id` if that has 1 to 128 safe characters, else a new id. */
export const requestIdOf = (sent: string | ReadonlyArray<string> | undefined): string =>
  typeof sent === "string" && safe.test(sent) ? sent : randomUUID()

/** Names the span of a request after its operation (`GET /api/v0/projects/{projectId}`), or after its method. */
export const spanNames = Layer.succeed(
  HttpMiddleware.SpanNameGenerator,
  ({ method, url }) => operationAt(method, url)?.name ?? method,
)

/** Spans without queries, which may have names and filters of tenants: `url.path` says what was asked for. */
export const spansWithoutQuery = Layer.effect(
  Tracer.Tracer,
  Effect.map(Effect.tracer, (tracer) =>
    Tracer.make({
      ...tracer,
      span: (options) => {
        const span = tracer.span(options)
        const set = span.attribute.bind(span)
        span.attribute = (name, value) => {
          if (name !== "url.query") set(name, name === "url.full" ? String(value).split("?", 1)[0] : value)
        }
        return span
      },
    }),
  ),
)
