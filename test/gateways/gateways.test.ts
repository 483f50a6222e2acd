import { expect } from "@effect/vitest"
import { Effect } from "effect"
import * as Yaml from "effect/encoding/Yaml"
import { readdirSync, readFileSync } from "node:fs"
import { createServer, type IncomingHttpHeaders } from "node:http"
import { must } from "../http/operations.ts"
import { it, layer } from "../support/it.ts"
import { embedded, adminToken, guarded, TestServer } from "../support/server.ts"
import {
  caddy,
  freePort,
  isInstalled,
  listening,
  nginx,
  running,
  traefik,
  type WebProxy,
} from "../support/webProxies.ts"
import { type Send } from "../support/wire.ts"

/**
 * Promise (Clients in other languages): Behind nginx, Caddy and Traefik, a client gets what the service decides, and
 * headers that it forges never reach the application. A browser's preflight reaches it without a key, and nothing else
 * does. The examples for Envoy, APISIX and Kong are held to the same requests by their documentation: they do not run,
 * nor does Traefik where it is not installed.
 */

const example = (name: string) => readFileSync(new URL(`../../deploy/gateways/${name}`, import.meta.url), "utf8")

/** What arrived at the application behind the proxy. */
interface Arrived {
  readonly method: string
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** An application that answers 200, and remembers what arrived. */
const makeApplication = Effect.acquireRelease(
  Effect.promise(async () => {
    const arrived: Array<Arrived> = []
    const server = createServer({ maxHeaderSize: 64 * 1024 }, (request, response) => {
      let body = ""
      request.on("data", (piece) => (body += String(piece)))
      request.on("end", () => {
        arrived.push({ method: request.method!, url: request.url!, headers: request.headers, body })
        response.end("passed")
      })
    })
    return { server, arrived, port: await listening(server) }
  }),
  ({ server }) =>
    Effect.sync(() => {
      server.closeAllConnections()
      server.close()
    }),
)

/** A proxy with its example. */
interface Proxy {
  readonly proxy: WebProxy
  readonly example: string
  /** What a client gets for a credential with which a request has more headers than Gatehouse reads. */
  readonly tooLong: number
}

const withPorts = (text: string, own: number, gatehouse: number, application: number) =>
  text
    .replaceAll("127.0.0.1:8000", `127.0.0.1:${own}`)
    .replaceAll("127.0.0.1:3000", `127.0.0.1:${gatehouse}`)
    .replaceAll("127.0.0.1:8080", `127.0.0.1:${application}`)

const proxies: ReadonlyArray<Proxy> = [
  { proxy: nginx, example: "nginx.conf", tooLong: 401 },
  { proxy: caddy, example: "Caddyfile", tooLong: 431 },
  { proxy: traefik, example: "traefik.yaml", tooLong: 431 },
]

/** Keys of an org: one that may do what the example asks for, and others. */
const makeKeys = Effect.fnUntraced(function* (send: Send) {
  const as = adminToken
  const { orgId, projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs" }, as })
  const create = (settings: object) =>
    must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId, permissions: ["files.*"], ...settings }, as })
  const good = yield* create({ externalId: "customer é", credits: { remaining: 1_000_000 } })
  const plain = yield* create({})
  const deleted = yield* create({})
  yield* must(send, "DELETE", `/api/v0/orgs/${orgId}/keys/${deleted["id"]}`, { as })
  return {
    orgId: orgId!,
    projectId: projectId!,
    good,
    plain,
    deleted: deleted["key"]!,
    powerless: (yield* create({ permissions: ["other"] }))["key"]!,
    disabled: (yield* create({ enabled: false }))["key"]!,
    limited: (yield* create({ rateLimit: { limit: 1, window: 3600 } }))["key"]!,
    poor: (yield* create({ credits: { remaining: 0 } }))["key"]!,
    here: (yield* create({ allowedIps: ["127.0.0.1"] }))["key"]!,
    elsewhere: (yield* create({ allowedIps: ["203.0.113.0/24"] }))["key"]!,
  }
})
type Keys = Effect.Success<ReturnType<typeof makeKeys>>

type Case = readonly [
  name: string,
  status: number,
  method: string,
  path: string,
  headers: Record<string, string | ReadonlyArray<string>>,
  body?: string | undefined,
]

const upstreamNames = ["org", "project", "key", "external-id", "permissions", "credits"].map((n) => `x-gatehouse-${n}`)

/** The requests of a client to a proxy, and the status that it gets. */
const casesFor = ({ good, plain, ...keys }: Keys): ReadonlyArray<Case> => {
  const bearer = (key: string) => ({ authorization: `Bearer ${key}` })
  const [own, other] = [bearer(good["key"]!), bearer(plain["key"]!)]
  const preflight = { origin: "https://app.example.com", "access-control-request-method": "PUT" }
  const forged = (value: string) => Object.fromEntries(upstreamNames.map((name) => [name, value]))
  return [
    ...["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].map((method): Case => [
      `${method} with a key`,
      200,
      method,
      "/v1/things?page=2",
      own,
      method === "GET" ? undefined : "x",
    ]),
    ["HEAD with a key", 200, "HEAD", "/v1/things", own],
    ["a key in x-api-key", 200, "GET", "/", { "x-api-key": good["key"]! }],
    ["the scheme in lower case", 200, "GET", "/", { authorization: `bearer ${good["key"]}` }],
    ["a large body", 200, "POST", "/upload", own, "x".repeat(200_000)],
    ["an encoded path", 200, "GET", "/a%2Fb/%C3%A4?q=%26", own],
    ["a path with dots", 200, "GET", "/a/../b", own],
    ["a query that looks like a policy", 200, "GET", "/?permission=none&cost=0&header=x", own],
    ["a path that looks like a policy", 200, "GET", "/permission=none/x", own],
    ["a path of Gatehouse", 200, "GET", "/api/v0/keys/authorize?permission=none", own],
    ["a cookie", 200, "GET", "/", { ...own, cookie: "session=1" }],
    ["cookies of 21 KB", 200, "GET", "/", { ...own, cookie: `session=${"1".repeat(21_000)}` }],
    ["an empty authorization beside a key", 200, "GET", "/", { authorization: "", "x-api-key": good["key"]! }],
    ["one key twice", 200, "GET", "/", { ...own, "x-api-key": good["key"]! }],
    ["one key in a header twice", 200, "GET", "/", { "x-api-key": [good["key"]!, good["key"]!] }],
    ["a preflight", 200, "OPTIONS", "/v1/things", preflight],
    ["a preflight with forged headers", 200, "OPTIONS", "/", { ...preflight, ...forged("forged") }],
    [
      "a preflight with forged headers in capitals, with underscores, and twice",
      200,
      "OPTIONS",
      "/",
      { ...preflight, "X-GATEHOUSE-ORG": ["forged", "forged"], x_gatehouse_key: "forged", "x-gatehouse_org": "forged" },
    ],
    ["OPTIONS without what a preflight asks for", 401, "OPTIONS", "/", { origin: preflight.origin }],
    ["OPTIONS that asks for nothing", 401, "OPTIONS", "/", { ...preflight, "access-control-request-method": "" }],
    ["another method with the headers of a preflight", 401, "POST", "/", preflight],
    [
      "a forged method of a preflight",
      401,
      "GET",
      "/",
      { ...preflight, "x-forwarded-method": "OPTIONS", "x-original-method": "OPTIONS" },
    ],
    ["the other key", 200, "GET", "/", other],
    ["a key of this address", 200, "GET", "/", bearer(keys.here)],
    ["forged headers", 200, "GET", "/", { ...own, ...forged("forged") }],
    ["forged headers beside a key without a value for them", 200, "GET", "/", { ...other, ...forged("forged") }],
    [
      "forged headers in capitals",
      200,
      "GET",
      "/",
      { ...other, "X-GATEHOUSE-ORG": "forged", "X-Gatehouse-Credits": "9" },
    ],
    ["forged headers, twice", 200, "GET", "/", { ...other, "x-gatehouse-external-id": ["forged", "forged"] }],
    [
      "forged headers with underscores",
      200,
      "GET",
      "/",
      { ...other, x_gatehouse_org: "forged", "x-gatehouse_credits": "forged" },
    ],
    [
      "a forged original method",
      200,
      "GET",
      "/",
      { ...own, "x-original-method": "TRACE", "x-forwarded-method": "TRACE" },
    ],
    [
      "a connection that ends with the headers of the key",
      200,
      "GET",
      "/",
      { ...own, connection: `keep-alive, ${upstreamNames.join(", ")}, X-Gatehouse-Org` },
    ],
    ["an upgrade", 200, "GET", "/", { ...own, connection: "Upgrade", upgrade: "websocket" }],
    ["no key", 401, "GET", "/", {}],
    ["no key, with a body", 401, "POST", "/", {}, "x"],
    ["an unknown key", 401, "GET", "/", bearer(`svc_${"a".repeat(42)}`)],
    ["a mistyped key", 401, "GET", "/", bearer(`${good["key"]!.slice(0, -1)}-`)],
    ["a deleted key", 401, "GET", "/", bearer(keys.deleted)],
    ["a disabled key", 401, "GET", "/", bearer(keys.disabled)],
    ["another scheme", 401, "GET", "/", { authorization: `Basic ${good["key"]}` }],
    ["two different keys", 401, "GET", "/", { ...own, "x-api-key": plain["key"]! }],
    ["a credential that is too long", 401, "GET", "/", bearer("x".repeat(7_000))],
    ["letters beyond ASCII", 401, "GET", "/", { "x-api-key": Buffer.from("schlüssel_é").toString("latin1") }],
    ["an empty key", 401, "GET", "/", { "x-api-key": "" }],
    ["the administrator's token", 401, "GET", "/", bearer(adminToken)],
    ["the key in the query alone", 401, "GET", `/?key=${good["key"]}`, {}],
    ["a key without the permission", 403, "GET", "/", bearer(keys.powerless)],
    ["a key of other addresses", 403, "GET", "/", bearer(keys.elsewhere)],
    ["a forged address", 403, "GET", "/", { ...bearer(keys.elsewhere), "x-forwarded-for": "203.0.113.9" }],
    ["a key within its limit", 200, "GET", "/", bearer(keys.limited)],
    ["a key above its limit", 429, "GET", "/", bearer(keys.limited)],
    ["a key without credits", 429, "GET", "/", bearer(keys.poor)],
  ]
}

/** A proxy that is rarely installed, with the values of its example, as its documentation says it works. */
interface Described {
  /** Its request to Gatehouse about a request of a client. */
  readonly asks: (
    method: string,
    path: string,
  ) => Pick<Arrived, "method"> & {
    readonly path: string
    readonly headers?: Readonly<Record<string, string>>
  }
  /** The headers of the client that it sends to Gatehouse. */
  readonly sends: ReadonlyArray<string>
  /** The requests that it passes on without asking. */
  readonly passes?: (method: string, headers: Readonly<Record<string, unknown>>) => boolean
  /** The headers for which it refuses a request by itself. */
  readonly refuses?: (header: string) => boolean
  /** The headers of the client that it removes before it asks. */
  readonly removes: RegExp
  /** The headers of the answer that it sends to the application, in place of the client's. */
  readonly copies: (header: string) => boolean
  /** The headers that it removes after it has asked. */
  readonly hides: ReadonlyArray<string>
}

const lower = (names: unknown) => (names as ReadonlyArray<string>).map((name) => name.toLowerCase())
const at = (value: unknown, ...path: ReadonlyArray<string | number>): unknown =>
  path.reduce((inner, key) => (inner as Readonly<Record<string | number, unknown>>)[key], value)
const matches = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, found]) => found!)
const none = /^$/
const target = (url: string) => new URL(url).pathname + new URL(url).search

const envoy = (): Described => {
  const http = at(
    Yaml.parse(example("envoy.yaml")),
    ...["static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"],
  )
  const filter = at(http, "http_filters", 0, "typed_config")
  const prefix = at(filter, "http_service", "path_prefix") as string
  const rejects = at(http, "common_http_protocol_options", "headers_with_underscores_action") === "REJECT_REQUEST"
  const copied = at(
    filter,
    "http_service",
    "authorization_response",
    "allowed_upstream_headers",
    "patterns",
    0,
    "prefix",
  )
  return {
    asks: (method, path) => ({ method, path: prefix + path, headers: { "content-length": "0" } }),
    sends: (at(filter, "allowed_headers", "patterns") as ReadonlyArray<{ readonly exact: string }>).map(
      ({ exact }) => exact,
    ),
    refuses: (header) => rejects && header.includes("_"),
    removes: none,
    copies: (header) => header.startsWith(copied as string),
    hides: lower(at(http, "route_config", "virtual_hosts", 0, "request_headers_to_remove")),
  }
}

const describedTraefik = (): Described => {
  const middlewares = at(Yaml.parse(example("traefik.yaml")), "http", "middlewares")
  const auth = at(middlewares, "gatehouse", "forwardAuth")
  const names = new RegExp((at(auth, "authResponseHeadersRegex") as string).replace("(?i)", ""), "i")
  return {
    asks: (method, path) => ({
      method: at(auth, "preserveRequestMethod") === true ? method : "GET",
      path: target(at(auth, "address") as string),
      headers: { "x-forwarded-method": method, "x-forwarded-uri": path },
    }),
    sends: lower(at(auth, "authRequestHeaders")),
    removes: names,
    copies: (header) => names.test(header),
    hides: lower(Object.keys(at(middlewares, "without-key", "headers", "customRequestHeaders") as object)),
  }
}

/** The pattern of Lua by which a script removes headers: these characters mean the same in JavaScript. */
const removed = (script: string) => new RegExp(matches(script, /name:lower\(\):find\("([\^x[\]a-z_-]+)"\)/g)[0]!)

const apisix = (): Described => {
  const plugins = at(Yaml.parse(example("apisix.yaml")), "routes", 0, "plugins")
  const auth = at(plugins, "forward-auth")
  const copied = lower(at(auth, "upstream_headers"))
  const [either, ...rules] = at(auth, "_meta", "filter") as readonly [string, ...ReadonlyArray<ReadonlyArray<string>>]
  expect(either).toBe("OR")
  return {
    asks: (method, path) => ({
      method: "GET",
      path: target(at(auth, "uri") as string),
      headers: { "x-forwarded-method": method, "x-forwarded-uri": path },
    }),
    passes: (method, headers) =>
      !rules.some(([name, ...rule]) => {
        const value = name === "request_method" ? method : headers[name!.replace(/^http_/, "").replaceAll("_", "-")]
        if (rule.length === 2) return rule[0] === "~=" && value !== rule[1]
        expect(rule.slice(0, 2)).toEqual(["!", "~~"])
        return typeof value !== "string" || !new RegExp(rule[2]!).test(value)
      }),
    sends: lower(at(auth, "request_headers")),
    removes: removed(at(plugins, "serverless-pre-function", "functions", 0) as string),
    copies: (header) => copied.includes(header),
    hides: lower(matches(at(plugins, "serverless-post-function", "functions", 0) as string, /"([A-Z][\w-]+)"/g)),
  }
}

const kong = (): Described => {
  const script = at(Yaml.parse(example("kong.yaml")), "services", 0, "plugins", 0, "config", "access", 0) as string
  const copied = matches(/ipairs\(\{(.*)\}\)/.exec(script)![1]!, /"([\w-]+)"/g).map(
    (name) => `x-gatehouse-${name.toLowerCase()}`,
  )
  const { groups: preflight } =
    /asks_for = kong.request.get_header\("(?<header>[\w-]+)"\) or ""\s+if kong.request.get_method\(\) == "(?<method>\w+)" and asks_for ~= "" then return end/.exec(
      script,
    )!
  return {
    asks: () => ({ method: "GET", path: target(matches(script, /request_uri\("([^"]+)"/g)[0]!) }),
    passes: (method, headers) => method === preflight!.method && Boolean(headers[preflight!.header!.toLowerCase()]),
    sends: lower(matches(script, /kong\.request\.get_header\("([\w-]+)"\)/g)),
    removes: removed(script),
    copies: (header) => copied.includes(header),
    hides: lower(matches(script, /clear_header\("([\w-]+)"\)/g)),
  }
}

const described = { Envoy: envoy(), Traefik: describedTraefik(), APISIX: apisix(), Kong: kong() }

it("every example has its test", () => {
  const tested = new Set(
    [...proxies.map(({ proxy }) => proxy.name), ...Object.keys(described)].map((name) => name.toLowerCase()),
  )
  const examples = readdirSync(new URL("../../deploy/gateways", import.meta.url))
  expect(examples.map((name) => name.toLowerCase().replace(/file$|\.\w+$/, "")).toSorted()).toEqual(
    [...tested].toSorted(),
  )
})

layer(TestServer.layer({ ...guarded, ...embedded, TRUST_PROXY: "1" }), { excludeTestServices: true })(
  "behind",
  (it) => {
    for (const { example: file, proxy, tooLong: expected } of proxies) {
      const test = isInstalled(proxy) ? it.effect : it.effect.skip
      test(`${proxy.name}: clients get what the service decides, and forged headers never arrive`, () =>
        Effect.gen(function* () {
          const { send, url } = yield* TestServer
          const keys = yield* makeKeys(send)
          const application = yield* makeApplication
          const own = yield* Effect.promise(freePort)
          const ask = yield* running(
            proxy,
            own,
            withPorts(example(file), own, Number(new URL(url).port), application.port),
          )
          const cases = casesFor(keys)
          const tooLong = yield* ask("GET", "/", { as: "x".repeat(20_000) })
          expect([tooLong.status, application.arrived]).toEqual([expected, []])
          expect(cases.length).toBeGreaterThanOrEqual(40)
          for (const [name, status, method, path, headers, body] of cases) {
            application.arrived.length = 0
            const answer = yield* ask(method, path, { headers: headers as Record<string, string>, body })
            expect([name, answer.status]).toEqual([name, status])
            expect([name, application.arrived.length]).toEqual([name, status === 200 ? 1 : 0])
            if (status === 429 && name.includes("limit"))
              expect(Number(answer.headers["retry-after"]), name).toBeGreaterThan(0)
            if (status !== 200) continue
            const [arrived] = application.arrived
            expect([arrived!.method, arrived!.body.length], name).toEqual([method, body?.length ?? 0])
            expect(JSON.stringify(arrived!.headers), name).not.toMatch(/forged|svc_/)
            if (name.startsWith("a preflight")) {
              for (const header of upstreamNames) expect([name, arrived!.headers[header] ?? ""]).toEqual([name, ""])
              continue
            }
            expect(arrived!.headers["x-gatehouse-org"], name).toBe(keys.orgId)
            expect(arrived!.headers["x-gatehouse-project"], name).toBe(keys.projectId)
            expect(arrived!.headers["x-gatehouse-permissions"], name).toBe("files.*")
            const isGood = arrived!.headers["x-gatehouse-key"] === keys.good["id"]
            expect(arrived!.headers["x-gatehouse-external-id"] ?? "", name).toBe(isGood ? "customer%20%C3%A9" : "")
            expect(/^\d*$/.test(String(arrived!.headers["x-gatehouse-credits"] ?? "")), name).toBe(true)
          }
        }))
    }

    for (const [name, proxy] of Object.entries(described)) {
      it.effect(`${name}: its requests are understood, and forged headers never arrive`, function* () {
        const { send } = yield* TestServer
        const keys = yield* makeKeys(send)
        let refused = 0
        for (const [name, status, method, path, given] of casesFor(keys)) {
          const client = Object.entries(given).map(([header, value]) => [header.toLowerCase(), value] as const)
          if (client.some(([header]) => proxy.refuses?.(header))) {
            refused++
            continue
          }
          const { headers, method: asks, path: asked } = proxy.asks(method, path)
          const sent = client.filter(([header]) => proxy.sends.includes(header))
          const passes = proxy.passes?.(method, Object.fromEntries(client)) === true
          const answer = passes
            ? { status: 200, headers: {} }
            : yield* send(asks, asked, {
                headers: { ...Object.fromEntries(sent), ...headers, "x-forwarded-for": "127.0.0.1" } as Record<
                  string,
                  string
                >,
              })
          expect([name, answer.status]).toEqual([name, status])
          if (status !== 200) continue
          const upstream = new Map<string, unknown>(client.filter(([header]) => !proxy.removes.test(header)))
          for (const [header, value] of Object.entries(answer.headers))
            if (proxy.copies(header)) upstream.set(header, value)
          for (const header of proxy.hides) upstream.delete(header)
          expect(JSON.stringify([...upstream]), name).not.toMatch(/forged|svc_/)
          if (name.startsWith("a preflight")) {
            for (const header of upstreamNames) expect([name, upstream.get(header) ?? ""]).toEqual([name, ""])
            continue
          }
          for (const header of upstreamNames) expect([...upstream.keys()], name).toContain(header)
          expect(upstream.get("x-gatehouse-org"), name).toBe(keys.orgId)
        }
        expect(refused).toBe(proxy.refuses === undefined ? 0 : 2)
      })
    }
  },
)
