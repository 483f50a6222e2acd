import { OpenApi } from "effect/http-api"
import { Api } from "#src/http/api/Api.ts"
import { describedBy, type Described, type Document } from "../http/abuse/document.ts"

const operations = describedBy(OpenApi.fromApi(Api) as unknown as Document)

/** The operation of the definition that a request would reach. */
export const operationOf = (method: string, path: string): Described | undefined =>
  // A path without parameters first, as the router does.
  operations.find((operation) => operation.method === method && operation.path === path) ??
  operations.find(
    (operation) =>
      operation.method === method && new RegExp(`^${operation.path.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(path),
  )

/** A request, from the arguments of curl. */
export interface CurlRequest {
  readonly method: string
  readonly url: URL
  readonly headers: ReadonlyMap<string, string>
  readonly body: string | undefined
}

/** Reads the arguments of curl; throws for an option that the pages do not use. */
export const curlRequest = (args: ReadonlyArray<string>): CurlRequest => {
  const headers = new Map<string, string>()
  let method: string | undefined
  let url: string | undefined
  let body: string | undefined
  for (let rest = [...args]; rest.length > 0;) {
    const word = rest.shift()!
    if (word === "-X") method = rest.shift()
    else if (word === "-d") body = rest.shift()
    else if (word === "--data-urlencode" || word === "-sw") rest.shift()
    else if (word === "-H") {
      const [, name, value] = /^([\w-]+): (.*)$/.exec(rest.shift() ?? "")!
      headers.set(name!.toLowerCase(), value!)
    } else if (["-s", "-sS", "-N", "-G", "--fail", "--fail-with-body"].includes(word)) continue
    else if (url === undefined && !word.startsWith("-")) url = word
    else throw new Error(`curl ${word} is not understood`)
  }
  return { method: method ?? (body === undefined ? "GET" : "POST"), url: new URL(url!), headers, body }
}

const ours = ["http://127.0.0.1:3000", "https://gatehouse.example.com"]
/** The gateway that the README starts. */
const gateway = "http://127.0.0.1:8080"
/** The token of a CI run comes from the runner, which has this address. */
const runners = "https://runner.example"

/** The fault of a request in the documentation. */
export const faultOfRequest = ({ body, headers, method, url }: CurlRequest): string | undefined => {
  if (url.origin === runners || url.origin === gateway) return undefined
  if (!ours.includes(url.origin)) return `nothing here is at ${url.origin}`
  const operation = operationOf(method, url.pathname)
  if (operation === undefined) return `there is no ${method} ${url.pathname}`
  const named = (place: string) => operation.parameters.filter((one) => one.in === place).map(({ name }) => name)
  const query = [...url.searchParams.keys()].find((name) => !named("query").includes(name))
  if (query !== undefined) return `${url.pathname} has no parameter ${query}`
  const known = [
    "authorization",
    "x-api-key",
    "x-org-id",
    "content-type",
    ...named("header").map((name) => name.toLowerCase()),
  ]
  const header = [...headers.keys()].find((name) => !known.includes(name))
  if (header !== undefined) return `${url.pathname} takes no header ${header}`
  if (body === undefined) return operation.needsBody ? `${url.pathname} wants a body` : undefined
  if (headers.get("content-type") !== "application/json") return `${url.pathname} wants a content-type`
  return operation.faultOfBody(JSON.parse(body))
}
