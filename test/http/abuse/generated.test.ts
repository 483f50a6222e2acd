/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- it.effect is a test, and expect takes a message */
import { expect, layer } from "@effect/vitest"
import { Arbitrary, Clock, Context, Effect, Exit, Layer, Schema } from "effect"
import type { OutgoingHttpHeaders } from "node:http"
import { gzipSync } from "node:zlib"
import { makeOidcProvider, type OidcProvider } from "../../support/oidc.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { WireAnswer } from "../../support/wire.ts"
import { type Operation, operations } from "../operations.ts"
import { webhookOperations } from "../webhookOperations.ts"
import { constant, oneOf, text, weighted } from "./arbitraries.ts"
import { bodyFor, valid } from "./bodies.ts"
import { callers, type Kind } from "./callers.ts"
import { describedBy, type Described, type Document } from "./document.ts"
import { makeWorld, type World } from "./world.ts"

class Provider extends Context.Service<Provider, OidcProvider>()("test/abuse/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

/** One segment of a path or a query: as a client would encode it, or not encoded at all. */
const encoded = (text: string) => encodeURIComponent(text.toWellFormed()).replace(/%25(00|ff|ED)/gi, "%$1")
const segment = weighted(
  [3, Arbitrary.map(text, encoded)],
  [1, oneOf("%2F", "%2e%2e", "..", ".", "%5C", "%ED%A0%80", "%ff", "%", "%zz", "%00", "a".repeat(3_000), ";a=b", "*")],
)
const asText = (value: unknown) => {
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return text.startsWith("@") ? text : encoded(text)
}
const orAnything = (value: Arbitrary.Arbitrary<unknown>) => weighted([3, Arbitrary.map(value, asText)], [1, segment])

const headers: Arbitrary.Arbitrary<OutgoingHttpHeaders> = weighted<OutgoingHttpHeaders>(
  [12, constant({})],
  [
    6,
    oneOf<OutgoingHttpHeaders>(
      { "content-type": "text/plain" },
      { "content-type": "application/json; charset=utf-16" },
      { "content-type": "application/json;charset=utf-8" },
      { "content-type": "application/x-www-form-urlencoded" },
      { "content-type": "multipart/form-data; boundary=x" },
      { "content-type": "application/json, text/html" },
      { "content-type": "" },
      { "content-encoding": "gzip" },
      { "content-encoding": "br" },
      { "transfer-encoding": "chunked" },
      { "x-http-method-override": "DELETE", "x-original-url": "/healthz", "x-rewrite-url": "/healthz" },
      { "x-forwarded-for": "127.0.0.1, ::1, x", "x-forwarded-host": "evil.example", forwarded: "for=127.0.0.1" },
      { "x-request-id": "\u00e9'\"<script>", traceparent: "00-zz", b3: "0", baggage: "a=%00" },
      { accept: "text/html;q=x", "accept-encoding": "x", "if-none-match": "*", range: "bytes=0-0", te: "trailers" },
      { origin: "https://evil.example", cookie: "a=b; __proto__=c", referer: "x" },
    ),
  ],
)

/** Whether a caller of this kind can be let in at all, as the document says. */
const mayEnter = ({ schemes, path }: Described, kind: Kind, open: boolean) => {
  if (schemes.length === 0) return true
  if (kind === "refused") return false
  // Open mode asks nothing of a key but that it is good.
  if (kind === "apiKey" && open) return schemes.includes("") || schemes.includes("apiKeyHeader")
  if (kind === "apiKey") return schemes.includes("apiKey") || schemes.includes("apiKeyHeader")
  if (kind !== "nobody") return schemes.includes(kind)
  return schemes.includes("") && (open || path.endsWith("/keys/validate"))
}

/** One request at an operation, in words that are the same in every run. */
const casesOf = (operation: Described) => {
  const welcome = Object.keys(callers).filter((name) => mayEnter(operation, callers[name]!.kind, false))
  const inPath = operation.parameters.filter((parameter) => parameter.in === "path")
  const inQuery = operation.parameters.filter((parameter) => parameter.in === "query")
  const of = ({ name, schema }: Described["parameters"][number]) => orAnything(valid(schema, operation.resolve, name))
  const query = Arbitrary.all(
    inQuery.map((parameter) =>
      weighted(
        [2, constant("")],
        [3, Arbitrary.map(of(parameter), (value) => `${parameter.name}=${value}`)],
        [1, Arbitrary.map(segment, (value) => `${parameter.name}=1&${parameter.name}=${value}`)],
      ),
    ),
  )
  return Arbitrary.all({
    operation: constant({ method: operation.method, path: operation.path }),
    path: Arbitrary.all(Object.fromEntries(inPath.map((parameter) => [parameter.name, of(parameter)]))),
    query: Arbitrary.map(Arbitrary.all([query, oneOf("", "__proto__=1", "x=%00")]), ([known, other]) =>
      [...known, other].filter((part) => part !== "").join("&"),
    ),
    body: bodyFor(operation),
    headers,
    caller: weighted([3, oneOf(...welcome)], [2, oneOf(...Object.keys(callers))]),
  })
}
type Case = ReturnType<typeof casesOf> extends Arbitrary.Arbitrary<infer A> ? A : never

/** Whom the platform interface shows everything: the administrator, and in open mode anyone whose credential is good. */
const seesAll = (path: string, kind: Kind, open: boolean) =>
  !path.startsWith("/v1/") && (kind === "adminToken" || (open && kind !== "refused"))

const perform = Effect.fnUntraced(function* (request: Case, world: World, open: boolean) {
  const { send } = yield* TestServer
  const { kind, headers } = callers[request.caller]!
  // Who may change everything is not sent to what must stay as it was.
  const all = seesAll(request.operation.path, kind, open)
  const fill = (text: string) => world.fill(all ? text.replaceAll("@theirs:", "@own:") : text, request.operation)
  const path = request.operation.path.replace(/\{(\w+)\}/g, (_, name: string) => fill(request.path[name]!))
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

const nameOf = ({ method, path }: { readonly method: string; readonly path: string }) => `${method} ${path}`
/** The operations that are written down a second time, from the contract, for a definition that is itself wrong. */
const writtenDown = new Map(
  [...Object.values<Operation>(operations), ...Object.values<Operation>(webhookOperations)].map((one) => [
    nameOf(one),
    one,
  ]),
)

/** What is wrong with an answer; undefined when nothing is. */
const faultOf = (operation: Described, { caller }: Case, answer: WireAnswer, world: World, open: boolean) => {
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

const environment = Effect.map(Provider, ({ issuer, audience }) => ({
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: audience,
  OIDC_ALLOWED_OWNERS: "own-7319-1,own-7319-2,theirs-8846-1,theirs-8846-2",
  ALLOW_PRIVATE_NETWORKS: "false",
}))

const servers = {
  "guarded mode on PostgreSQL": {
    server: TestServer.layer(Effect.flatMap(environment, (all) => onPostgres({ ...all, ...guarded }))),
    open: false,
    runs: 4_000,
  },
  "open mode on the embedded database": { server: TestServer.layer(environment), open: true, runs: 1_000 },
}

/** ABUSE_SEED replays a run, and ABUSE_RUNS makes it as long as one likes. */
const { ABUSE_SEED, ABUSE_RUNS } = process.env

for (const [name, { server, open, runs }] of Object.entries(servers)) {
  layer(Layer.provideMerge(server, Provider.layer), { excludeTestServices: true })(name, (it) => {
    it.effect("any request at any operation with any credential gets a documented answer, and nothing of others", () =>
      Effect.gen(function* () {
        const { send, logs } = yield* TestServer
        const world = yield* makeWorld(yield* Provider, open ? undefined : adminToken)
        const before = yield* world.theirs.snapshot
        const documented = describedBy((yield* send("GET", "/openapi.json")).json as Document)
        const byName = new Map(documented.map((one) => [nameOf(one), one]))
        const statuses = new Map<number, number>()
        const reached = new Set<string>()
        const seed = ABUSE_SEED ?? `${yield* Clock.currentTimeMillis}`
        const result = yield* Arbitrary.checkEffect(
          Arbitrary.flatMap(oneOf(...documented.map(casesOf)), (cases) => cases),
          Effect.fnUntraced(function* (request) {
            const answer = yield* perform(request, world, open)
            statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
            if (answer.status === 200) reached.add(nameOf(request.operation))
            const fault = faultOf(byName.get(nameOf(request.operation))!, request, answer, world, open)
            return fault === undefined || (yield* Effect.fail(fault))
          }),
          { runs: ABUSE_RUNS === undefined ? runs : Number(ABUSE_RUNS), seed, concurrency: 8 },
        )
        expect(Arbitrary.formatCheckFailure(result), `ABUSE_SEED=${seed} makes the same requests`).toBeUndefined()
        expect(yield* world.theirs.snapshot).toBe(before)
        expect((yield* send("GET", "/healthz")).status).toBe(200)
        expect(logs()).not.toMatch(/A request failed|could not be|cannot be/)
        // It went deep enough to be worth something.
        for (const status of [200, 400, 401, 404, 415]) expect(statuses.get(status), String(status)).toBeGreaterThan(20)
        expect(reached.size, [...reached].join()).toBeGreaterThan(documented.length * 0.75)
      }),
    )
  })
}
