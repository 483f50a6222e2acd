import { HttpApi } from "effect/http-api"
import { dirname } from "node:path/posix"
import { Api } from "../api/Api.ts"
import { likelyNames, nearestName } from "./nearestName.ts"

/** A path with its parameters as OpenAPI writes them: `{projectId}` for `:projectId`. */
export const inBraces = (path: string) => path.replace(/:(\w+)/g, "{$1}")

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
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint: { method, path, payload } }) => {
    operations.push(route(method, path, method !== "GET" && payload.size > 0))
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
