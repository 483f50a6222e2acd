import { ByteSize, Context, Effect, Layer, Metric, References, Tracer } from "effect"
import { HttpIncomingMessage, HttpMiddleware, HttpRouter } from "effect/http"
import { HttpApi } from "effect/http-api"
import { randomUUID } from "node:crypto"
import { dirname } from "node:path/posix"
import { Api } from "../api/Api.ts"
import { likelyNames, nearestName } from "./nearestName.ts"

const boundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
const methods = new Set(["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])

/** A method as a label: clients may send any word. */
const methodOf = (sent: string) => (methods.has(sent) ? sent : "other")

/** A path with its parameters as OpenAPI writes them: `{projectId}` for `:projectId`. */
const inBraces = (path: string) => path.replace(/:(\w+)/g, "{$1}")

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

/** An operation of the definition, or a page. */
interface Route {
  readonly method: string
  /** As the definition has it: `/api/v0/projects/:projectId`. */
  readonly template: string
  readonly path: RegExp
  /** `GET /api/v0/projects/{projectId}` */
  readonly name: string
  readonly readsBody: boolean
}

const route = (method: string, path: string, readsBody: boolean): Route => ({
  method,
  template: path,
  path: new RegExp(`^${path.replaceAll(".", "\\.").replace(/:\w+/g, "[^/]+")}$`),
  name: `${method} ${inBraces(path)}`,
  readsBody,
})

const pages = [
  ...["/openapi.json", "/docs", "/metrics", "/console"].map((path) => route("GET", path, false)),
  { ...route("GET", "/console/*", false), path: /^\/console\// },
]
const operations: Array<Route> = []
const ownMaxBody = new Map<string, number>()
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint: { method, path, annotations, payload } }) => {
    operations.push(route(method, path, method !== "GET" && payload.size > 0))
    const maxBodyBytes = Context.getOrUndefined(annotations, HttpIncomingMessage.MaxBodySize)
    if (maxBodyBytes !== undefined) ownMaxBody.set(path, ByteSize.toNumberUnsafe(maxBodyBytes))
  },
})

const pathOf = (url: string) => url.split("?", 1)[0]!

/** The operation of a method and a URL. */
export const operationAt = (method: string, url: string): Route | undefined => {
  const path = pathOf(url)
  return operations.find((one) => one.method === method && one.path.test(path))
}

/** The routes of a path: those without a parameter come before all others, as OpenAPI says. */
const routesAt = (path: string) => {
  const found = [...operations, ...pages].filter((one) => one.path.test(path))
  const concrete = found.filter(({ template }) => template === path)
  return concrete.length > 0 ? concrete : found
}

/**
 * Methods that a path without a parameter has only by another path that matches it: `DELETE /api/v0/orgs/active`, by
 * `/api/v0/orgs/:orgId`. The router would take `active` for the id.
 */
export const shadowed = operations.flatMap(({ template }) =>
  operations.flatMap(({ method, path }) =>
    !template.includes(":") && path.test(template) && routesAt(template).every((one) => one.method !== method)
      ? [{ method, path: template }]
      : [],
  ),
)

/** The methods of the path of a URL; empty for an unknown path. */
export const methodsAt = (url: string): ReadonlyArray<string> => {
  const found = routesAt(pathOf(url)).map(({ method }) => method)
  return [...new Set(found.flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method])))]
}

/** The operations of a path's group: those of `/v1/jobs` for `/v1/jobs` and `/v1/jobs/all`. */
const operationsBelow = (path: string) => {
  const group = /^\/v1\/[^/]+/.exec(path)?.[0]
  return group === undefined ? [] : operations.filter(({ template }) => dirname(template) === group)
}

/** What is meant by an unknown path: the operation of nearly this path, or those of its group. */
export const hintAt = (method: string, url: string): string | undefined => {
  const path = pathOf(url)
  const templates = operations.map(({ template }) => template)
  const nearest = nearestName(path, likelyNames(path, templates))
  if (nearest?.isMeant === true) {
    const there = operations.filter(({ template }) => template === nearest.name)
    return `Did you mean ${(there.find((one) => one.method === method) ?? there[0]!).name}?`
  }
  const below = operationsBelow(path)
  return below.length === 0 ? undefined : `There are ${below.map(({ template }) => template).join(", ")}.`
}

const defaultMaxBody = 1024 * 1024

/** The limit of request bodies at a URL, in bytes: the annotation of its endpoint, else 1 MiB. */
export const maxBodyAt = (url: string): number => ownMaxBody.get(pathOf(url)) ?? defaultMaxBody
