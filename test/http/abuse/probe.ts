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

/** Who signs the CI's tokens. */
export class Provider extends Context.Service<Provider, OidcProvider>()("test/abuse/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

/** What the servers under these tests are told, beside what makes their mode and their database. */
export const environment = Effect.map(Provider, ({ issuer, audience }) => ({
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: audience,
  OIDC_ALLOWED_OWNERS: "own-7319-1,own-7319-2,theirs-8846-1,theirs-8846-2",
  ALLOW_PRIVATE_NETWORKS: "false",
}))

/** Its answer has no end. */
const endless = "GET /api/v0/live"

/** Every operation of the definition that the server gives, by its name, but the one without an end. */
export const served = Effect.map(
  Effect.flatMap(TestServer, ({ send }) => send("GET", "/openapi.json")),
  ({ json }) =>
    new Map(
      describedBy(json as Document)
        .map((one) => [nameOf(one), one] as const)
        .filter(([name]) => name !== endless),
    ),
)

/** One request at an operation, in words that are the same in every run: ids are named by whose they are. */
export interface Case {
  readonly operation: { readonly method: string; readonly path: string }
  readonly path: Readonly<Record<string, string>>
  readonly query: string
  readonly body: string | undefined
  readonly headers: OutgoingHttpHeaders
  readonly caller: string
}

/** Whether a caller of this kind can be let in at all, as the document says. */
export const mayEnter = ({ schemes, path }: Described, kind: Kind, open: boolean) => {
  if (schemes.length === 0) return true
  if (kind === "refused") return false
  // Open mode asks nothing of a key but that it is good.
  if (kind === "apiKey" && open) return schemes.includes("") || schemes.includes("apiKeyHeader")
  if (kind === "apiKey") return schemes.includes("apiKey") || schemes.includes("apiKeyHeader")
  if (kind !== "nobody") return schemes.includes(kind)
  return schemes.includes("") && (open || /\/(keys\/validate|sessions\/portal)$/.test(path))
}

/** Whom the platform interface shows everything: the administrator, and in open mode anyone whose credential is good. */
const seesAll = (path: string, kind: Kind, open: boolean) =>
  !path.startsWith("/v1/") && (kind === "adminToken" || (open && kind !== "refused"))

export const perform = Effect.fnUntraced(function* (request: Case, world: World, open: boolean) {
  const { send } = yield* TestServer
  const { kind, headers } = callers[request.caller]!
  // Who may change everything is not sent to what must stay as it was.
  const all = seesAll(request.operation.path, kind, open)
  const fill = (text: string) => world.fill(all ? text.replaceAll("@theirs:", "@own:") : text, request.operation)
  // A deletion of the whole tenant would end what the other requests are about.
  const isEnd = request.operation.method === "DELETE" && /\/(orgs|projects)\/\{\w+\}$/.test(request.operation.path)
  const inPath = (text: string) => fill(isEnd ? text.replace(/^@.*/, "01ARZ3NDEKTSV4RRFFQ69G5FAV") : text)
  const path = request.operation.path.replace(/\{(\w+)\}/g, (_, name: string) => inPath(request.path[name]!))
  const body = request.body === undefined ? undefined : fill(request.body)
  const zipped = request.headers["content-encoding"] === "gzip" && body !== undefined && body.length % 2 === 0
  // A large body that is not read ends the connection, and only one with a length is told so in time.
  const { "transfer-encoding": chunked, ...others } = request.headers
  const sent = chunked === undefined || (body?.length ?? 0) > 200_000 ? others : request.headers
  return yield* send(request.operation.method, request.query === "" ? path : `${path}?${fill(request.query)}`, {
    body: zipped ? gzipSync(body) : body,
    headers: { "content-type": "application/json", ...sent, ...headers(world) },
  })
})

export const nameOf = ({ method, path }: { readonly method: string; readonly path: string }) => `${method} ${path}`
/** The operations that are written down a second time, from the contract, for a definition that is itself wrong. */
const writtenDown = new Map(
  [...Object.values<Operation>(operations), ...Object.values<Operation>(webhookOperations)].map((one) => [
    nameOf(one),
    one,
  ]),
)

/** What is wrong with an answer; undefined when nothing is. */
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
