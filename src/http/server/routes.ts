import { ByteSize, Context } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApi } from "effect/http-api"
import { Api } from "../api/Api.ts"

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
  name: `${method} ${path.replace(/:(\w+)/g, "{$1}")}`,
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

const defaultMaxBody = 1024 * 1024

/** The limit of request bodies at a URL, in bytes: the annotation of its endpoint, else 1 MiB. */
export const maxBodyAt = (url: string): number => ownMaxBody.get(pathOf(url)) ?? defaultMaxBody
