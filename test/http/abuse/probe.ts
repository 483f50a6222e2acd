import { Context, Effect, Exit, Layer, Schema } from "effect"
import type { OutgoingHttpHeaders } from "node:http"
import { gzipSync } from "node:zlib"
import { makeOidcProvider, type OidcProvider } from "../../support/oidc.ts"
import { TestServer } from "../../support/server.ts"
import type { WireAnswer } from "../../support/wire.ts"
import { type Operation, operations } from "../operations.ts"
import { webhookOperations } from "../webhooks/webhookOperations.ts"
import { callers, type Kind } from "./callers.ts"
import { type Described, describedBy, type Document } from "./document.ts"
import type { World } from "./world.ts"

/** The issuer of the CI's tokens. */
export class Provider extends Context.Service<Provider, OidcProvider>()("test/abuse/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

/** The configuration of the servers of these tests, without their mode and database. */
export const environment = Effect.map(Provider, ({ issuer, audience }) => ({
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: audience,
  OIDC_ALLOWED_OWNERS: "own-7319-1,own-7319-2,theirs-8846-1,theirs-8846-2",
  ALLOW_PRIVATE_NETWORKS: "false",
}))

/** The answer of this operation has no end. */
const endless = "GET /api/v0/live"

/** Every operation that the server has, by its name, except the one without an end. */
export const served = Effect.map(
  Effect.flatMap(TestServer, ({ send }) => send("GET", "/openapi.json")),
  ({ json }) =>
    new Map(
      describedBy(json as Document)
        .map((one) => [nameOf(one), one] as const)
        .filter(([name]) => name !== endless),
    ),
)

/** A request to an operation, described in the same words in every run: ids are named by their owner. */
export interface Case {
  readonly operation: { readonly method: string; readonly path: string }
  readonly path: Readonly<Record<string, string>>
  readonly query: string
  readonly body: string | undefined
  readonly headers: OutgoingHttpHeaders
  readonly caller: string
}

/** Whether this kind of credential can have access at all, according to the document. */
export const mayEnter = ({ schemes, path }: Described, kind: Kind, open: boolean) => {
  if (schemes.length === 0) return true
  if (kind === "refused") return false
  // Their credential is in the body.
  if (/\/(keys\/token|sessions\/portal)$/.test(path)) return true
  // In open mode any valid key is accepted.
  if (kind === "apiKey" && open) return schemes.includes("") || schemes.includes("apiKeyHeader")
  if (kind === "apiKey") return schemes.includes("apiKey") || schemes.includes("apiKeyHeader")
  if (kind !== "nobody") return schemes.includes(kind)
  return schemes.includes("") && (open || path.endsWith("/keys/validate"))
}

/**
 * Whether the platform interface shows everything: to the administrator, and in open mode to everyone without an
 * invalid credential.
 */
const seesAll = (path: string, kind: Kind, open: boolean) =>
  !path.startsWith("/v1/") && (kind === "adminToken" || (open && kind !== "refused"))

export const perform = Effect.fnUntraced(function* (request: Case, world: World, open: boolean) {
  const { send } = yield* TestServer
  const { kind, headers } = callers[request.caller]!
  // A principal that may change everything gets no ids of resources that must not change.
  const all = seesAll(request.operation.path, kind, open)
  const fill = (text: string) => world.fill(all ? text.replaceAll("@theirs:", "@own:") : text, request.operation)
  // The deletion of a tenant would remove what the other requests need.
  const isEnd = request.operation.method === "DELETE" && /\/(orgs|projects)\/\{\w+\}$/.test(request.operation.path)
  const inPath = (text: string) => fill(isEnd ? text.replace(/^@.*/, "01ARZ3NDEKTSV4RRFFQ69G5FAV") : text)
  const path = request.operation.path.replace(/\{(\w+)\}/g, (_, name: string) => inPath(request.path[name]!))
  const body = request.body === undefined ? undefined : fill(request.body)
  const zipped = request.headers["content-encoding"] === "gzip" && body !== undefined && body.length % 2 === 0
  // A large body that is not read ends the connection, and only a declared length is answered in time.
  const { "transfer-encoding": chunked, ...others } = request.headers
  const sent = chunked === undefined || (body?.length ?? 0) > 200_000 ? others : request.headers
  return yield* send(request.operation.method, request.query === "" ? path : `${path}?${fill(request.query)}`, {
    body: zipped ? gzipSync(body) : body,
    headers: { "content-type": "application/json", ...sent, ...headers(world) },
  })
})

export const nameOf = ({ method, path }: { readonly method: string; readonly path: string }) => `${method} ${path}`
/** The operations that are also listed by hand from the contract, in case the definition is wrong. */
const writtenDown = new Map(
  [...Object.values<Operation>(operations), ...Object.values<Operation>(webhookOperations)].map((one) => [
    nameOf(one),
    one,
  ]),
)

/** The fault of an answer; undefined when there is none. */
export const faultOf = (operation: Described, { caller }: Case, answer: WireAnswer, world: World, open: boolean) => {
  const { kind } = callers[caller]!
  if (answer.status < 300 && !mayEnter(operation, kind, open)) return `${caller} is let in: ${answer.text}`
  if (kind === "refused" && [403, 409, 422].includes(answer.status)) return `${caller} is told ${answer.text}`
  const heads = JSON.stringify(answer.headers)
  const all = seesAll(operation.path, kind, open)
  const mayKnow = all || kind === "apiKey" || kind === "ciToken" || operation.path.endsWith("/keys/validate")
  const forbidden = [...(all ? [] : world.theirs.marks), ...(mayKnow ? [] : world.own.marks)]
  const seen = forbidden.find((mark) => answer.text.includes(mark) || heads.includes(mark))
  if (seen !== undefined) return `${seen} is another tenant's: ${answer.text}`
  const written = answer.status === 200 ? writtenDown.get(nameOf(operation)) : undefined
  if (written === undefined) return operation.faultOf(answer)
  const exit = Schema.decodeUnknownExit(written.response, { onExcessProperty: "error" })(answer.json)
  return Exit.isSuccess(exit) ? operation.faultOf(answer) : `${answer.text} is not as written down: ${exit.cause}`
}
