import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import { connect } from "node:net"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { Send } from "../../support/wire.ts"
import { must } from "../operations.ts"

const path = "/api/v0/keys/authorize"
const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PROPFIND"]

const makeKey = Effect.fnUntraced(function* (send: Send, settings: object = {}) {
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, as: adminToken })
  const asked = { json: { name: "customer", ...settings }, as: adminToken }
  const { id, key } = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, asked)
  return { orgId, id, key: key! }
})

/** All that the service answers to a text before it ends the connection. */
const untilClosed = (url: string, text: string) =>
  Effect.callback<string>((resume) => {
    const { hostname, port } = new URL(url)
    let got = ""
    const socket = connect(Number(port), hostname, () => socket.write(text))
    socket.on("data", (chunk) => (got += chunk.toString()))
    socket.on("close", () => resume(Effect.succeed(got)))
    return Effect.sync(() => socket.destroy())
  })

const upstream = (headers: object) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => /^(x-gatehouse-|ratelimit)/.test(name)))

/** The answers that come from memory, and those that the router gives, which a key with networks needs. */
const kinds = [
  ["from memory", {}],
  ["through the router", { allowedIps: ["127.0.0.0/8"] }],
] as const

for (const [name, environment] of [
  ["in memory", { ...embedded, ...guarded }],
  ["on PostgreSQL, nothing cached", onPostgres({ ...guarded, KEY_CACHE_SIZE: "0" })],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(`authorize, ${name}`, (it) => {
    for (const [kind, settings] of kinds) {
      it.effect(`a valid key passes with any method, and the upstream learns whose it is, ${kind}`, function* () {
        const { send } = yield* TestServer
        const { id, key, orgId } = yield* makeKey(send, {
          ...settings,
          externalId: "Käufer 50%",
          permissions: ["files.*", "models.use"],
          credits: { remaining: 1000 },
          rateLimit: { limit: 1000, window: 60 },
        })
        for (const [n, method] of methods.entries()) {
          // A proxy that forwards the body, too, is answered without reading it.
          const body = method === "GET" || method === "HEAD" ? {} : { body: "x".repeat(5_000) }
          const answer = yield* send(method, path, { as: key, ...body })
          expect([method, answer.status, answer.text]).toEqual([method, 200, ""])
          expect(answer.headers).toMatchObject({ "cache-control": "no-store", "x-request-id": expect.any(String) })
          expect(upstream(answer.headers)).toEqual({
            "x-gatehouse-org": orgId,
            "x-gatehouse-project": "",
            "x-gatehouse-key": id,
            "x-gatehouse-external-id": "K%C3%A4ufer%2050%25",
            "x-gatehouse-permissions": "files.* models.use",
            "x-gatehouse-credits": String(1000 - n - 1),
            ratelimit: expect.stringMatching(/^"key";r=9\d\d;t=1$/),
            "ratelimit-policy": '"key";q=1000;w=60',
          })
        }
      })
    }

    it.effect(
      "a header of the upstream is there when it does not apply, so that it replaces the client's",
      function* () {
        const { send } = yield* TestServer
        for (const [, settings] of kinds) {
          const { id, key, orgId } = yield* makeKey(send, settings)
          const answer = yield* send("GET", path, { headers: { "x-api-key": key, "x-gatehouse-credits": "9" } })
          expect(upstream(answer.headers)).toEqual({
            "x-gatehouse-org": orgId,
            "x-gatehouse-key": id,
            "x-gatehouse-project": "",
            "x-gatehouse-external-id": "",
            "x-gatehouse-permissions": "",
            "x-gatehouse-credits": "",
          })
        }
      },
    )

    // Seen failing: the first bytes of the next request were read as the body, and it was a 400.
    it.effect("a proxy that names the length of a body and sends none loses only its connection", function* () {
      const { send, url } = yield* TestServer
      const { key } = yield* makeKey(send)
      for (const credential of [key, "wrong"]) {
        for (const body of ["content-length: 77", "transfer-encoding: chunked"]) {
          const request = `POST ${path} HTTP/1.1\r\nhost: a\r\nx-api-key: ${credential}\r\n${body}\r\n\r\n`
          const answer = yield* untilClosed(url, request)
          expect(answer).toMatch(credential === key ? /^HTTP\/1.1 200 / : /^HTTP\/1.1 401 /)
          expect(answer.toLowerCase()).toContain("\r\nconnection: close\r\n")
        }
      }
      const kept = yield* send("POST", path, { as: key, headers: { "content-length": "0" } })
      expect([kept.status, kept.headers["connection"]]).toEqual([200, "keep-alive"])
    })

    it.effect("the policy is the query of the proxy, or the first segment after the path", function* () {
      const { send } = yield* TestServer
      const { key } = yield* makeKey(send, { permissions: ["files.read"], credits: { remaining: 10 } })
      const ask = (url: string, headers: Record<string, string> = { "x-api-key": key }) =>
        Effect.map(send("PUT", `${path}${url}`, { headers }), ({ status, json }) => [
          status,
          (json as { code?: string } | undefined)?.code,
        ])
      expect(yield* ask("?permission=files.read&cost=0")).toEqual([200, undefined])
      expect(yield* ask("?permission=files.read&permission=files.write&cost=0")).toEqual([403, "forbidden"])
      expect(yield* ask("?cost=11")).toEqual([429, "credits_exhausted"])
      expect(yield* ask("?header=x-acme-key&cost=0", { "X-Acme-Key": key })).toEqual([200, undefined])
      // As the package has it. Seen failing: with the scheme in another header, and without it in Authorization.
      for (const header of ["x-acme-key", "Proxy-Authorization", "authorization"]) {
        for (const text of [key, `Bearer ${key}`, `bearer  ${key}`])
          expect(yield* ask(`?header=${header}&cost=0`, { [header]: text })).toEqual([200, undefined])
      }
      expect(yield* ask("?header=authorization")).toEqual([401, "unauthorized"])
      expect(yield* ask("?header=x-acme-key", { authorization: `Bearer ${key}` })).toEqual([401, "unauthorized"])
      // Envoy appends the client's path and query, which decide nothing.
      expect(yield* ask("/permission=files.write/permission=files.read?permission=files.read")).toEqual([
        403,
        "forbidden",
      ])
      expect(yield* ask("/permission=files.read&cost=0/v1/x?cost=1000000")).toEqual([200, undefined])
      expect(yield* ask("/-/v1/x?permission=files.write&cost=0&x=y")).toEqual([200, undefined])
      expect(yield* ask("/v1/x?cost=0")).toEqual([404, "not_found"])
      expect(yield* ask("x?cost=0")).toEqual([404, "not_found"])
      for (const wrong of ["?cost=-1", "?cost=1&cost=2", "?permission=A", "?permissions=a", "?header=a%20b", "/a=b"]) {
        expect([wrong, ...(yield* ask(wrong))]).toEqual([wrong, 400, "invalid_request"])
      }
    })

    it.effect(
      "a key is found however often and in whatever letters it is sent, and an empty header is none",
      function* () {
        const { send } = yield* TestServer
        const { key, orgId } = yield* makeKey(send)
        const [own, other] = ["schlüssel_é_0123456789", "schlüssel_ÿ_0123456789"]
        const keys = [own, other].map((text) => ({
          ...{ algorithm: "sha256", encoding: "base64", name: "k" },
          hash: createHash("sha256").update(text).digest("base64"),
        }))
        yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys/import`, { json: { keys }, as: adminToken })
        const status = (headers: Record<string, string | Array<string>>, url = "") =>
          Effect.map(send("GET", `${path}${url}`, { headers }), (answer) => answer.status)
        const bytes = (text: string, encoding: "utf8" | "latin1") => Buffer.from(text, encoding).toString("latin1")
        expect(yield* status({ authorization: "", "x-api-key": key })).toBe(200)
        expect(yield* status({ authorization: `Bearer ${key}`, "x-api-key": "" })).toBe(200)
        expect(yield* status({ authorization: `Bearer ${key}`, "x-api-key": [key, key] })).toBe(200)
        expect(yield* status({ "x-api-key": [key, "", key] })).toBe(200)
        expect(yield* status({ "x-acme-key": [key, key] }, "?header=x-acme-key")).toBe(200)
        expect(yield* status({ "x-api-key": [key, own] })).toBe(401)
        expect(yield* status({ authorization: "" })).toBe(401)
        expect(yield* status({ authorization: `Bearer ${"x".repeat(8_000)}` })).toBe(401)
        for (const text of [own, other]) {
          expect((yield* send("POST", "/api/v0/keys/validate", { json: { key: text } })).status).toBe(200)
          for (const encoding of ["utf8", "latin1"] as const) {
            expect(yield* status({ "x-api-key": bytes(text, encoding) }), encoding).toBe(200)
            expect(yield* status({ authorization: `Bearer ${bytes(text, encoding)}` }), encoding).toBe(200)
            expect(yield* status({ "x-acme-key": bytes(text, encoding) }, "?header=x-acme-key")).toBe(200)
          }
        }
      },
    )

    // Seen failing: a 401, and a page of another origin could call nothing.
    it.effect("a browser's preflight needs no key, and only that: the header and the method OPTIONS", function* () {
      const { send } = yield* TestServer
      const { key } = yield* makeKey(send, { credits: { remaining: 2 } })
      const asks = { origin: "https://app.example.com", "access-control-request-method": "POST" }
      for (const url of [path, `${path}?permission=files.read`, `${path}/permission=files.read/v1/x?y=1`]) {
        const passed = yield* send("OPTIONS", url, { headers: asks, body: "x" })
        expect([url, passed.status, passed.text]).toEqual([url, 200, ""])
        const names = ["org", "project", "key", "external-id", "permissions", "credits"]
        expect(upstream(passed.headers)).toEqual(Object.fromEntries(names.map((one) => [`x-gatehouse-${one}`, ""])))
      }
      for (const [method, headers] of [
        ["OPTIONS", { origin: asks.origin }],
        ["OPTIONS", { ...asks, "access-control-request-method": "" }],
        ["OPTIONS", { ...asks, "x-api-key": "svc_wrong" }],
        ...methods.filter((one) => one !== "OPTIONS").map((method) => [method, asks] as const),
        ["GET", { ...asks, "x-forwarded-method": "OPTIONS", "x-original-method": "OPTIONS" }],
        ["POST", { ...asks, "x-http-method-override": "OPTIONS" }],
      ] as const) {
        const refused = yield* send(method, path, { headers })
        expect([method, headers, refused.status]).toEqual([method, headers, 401])
      }
      expect((yield* send("OPTIONS", `${path}?cost=-1`, { headers: asks })).status).toBe(400)
      const counted = yield* send("GET", path, { as: key, headers: asks })
      expect([counted.status, counted.headers["x-gatehouse-credits"]]).toEqual([200, "1"])
    })

    it.effect("a refusal is that of a validation", function* () {
      const { send } = yield* TestServer
      const { key, id, orgId } = yield* makeKey(send, { rateLimit: { limit: 1, window: 3600 } })
      const none = yield* send("GET", path)
      expect([none.status, none.headers["www-authenticate"]]).toEqual([401, "Bearer"])
      for (const headers of [
        { authorization: "Basic eA==" },
        { authorization: `Bearer ${adminToken}` },
        { "x-api-key": `${key}x` },
      ]) {
        expect((yield* send("POST", path, { headers })).status).toBe(401)
      }
      expect((yield* send("GET", path, { as: key })).headers["ratelimit"]).toBe('"key";r=0;t=3600')
      const limited = yield* send("GET", path, { as: key })
      expect([limited.status, Number(limited.headers["retry-after"]) > 3000]).toEqual([429, true])
      expect(limited.json).toMatchObject({ code: "too_many_requests" })
      const far = yield* makeKey(send, { allowedIps: ["10.0.0.0/8"] })
      expect((yield* send("GET", path, { as: far.key })).json).toMatchObject({ code: "ip_not_allowed" })
      yield* must(send, "DELETE", `/api/v0/orgs/${orgId}/keys/${id}`, { as: adminToken })
      expect((yield* send("GET", path, { as: key })).status).toBe(401)
    })
  })
}
