import { expect } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import { connect } from "node:net"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { Send, WireAnswer, WireRequest } from "../../support/wire.ts"
import { constant, oneOf, text, weighted } from "../abuse/arbitraries.ts"
import { must } from "../operations.ts"

const path = "/api/v0/keys/validate"
/** The same operation, in a spelling that only the router handles. */
const byTheRouter = `${path}?`

const bytesOf = ({ status, headers, text }: WireAnswer) => ({
  status,
  text,
  headers: { ...headers, date: "", "x-request-id": headers["x-request-id"]?.length },
})

/** Keys by name: those of an existing org, and invalid ones. */
const world = Effect.fnUntraced(function* (send: Send, as: string | undefined) {
  const create = (path: string, json: object) => must(send, "POST", `/api/v0${path}`, { json, as })
  const { orgId } = yield* create("/orgs", { name: "Acme" })
  const { projectId } = yield* create("/projects", { name: "docs", orgId })
  const org = yield* create(`/orgs/${orgId}/keys`, { name: "org" })
  const project = yield* create("/keys", { name: "project", projectId })
  const deleted = yield* create("/keys", { name: "deleted", projectId })
  const validate = (key: string) => send("POST", path, { json: { key }, as: org["key"] })
  yield* validate(deleted["key"]!)
  yield* must(send, "DELETE", `/api/v0/orgs/${orgId}/keys/${deleted["id"]}`, { as })
  const gateway = yield* create(`/orgs/${orgId}/keys`, {
    name: "gäteway",
    permissions: ["a.*", "b"],
    externalId: "é",
    metadata: { plan: "pro", n: [1.5, null] },
    expiresAt: "2999-01-01T00:00:00Z",
  })
  const restricted = yield* create(`/orgs/${orgId}/keys`, { name: "restricted", allowedIps: ["10.0.0.0/8"] })
  return {
    restricted: restricted["key"]!,
    gateway: gateway["key"]!,
    org: org["key"]!,
    project: project["key"]!,
    deleted: deleted["key"]!,
    administrator: adminToken,
    none: "",
  }
})
type Keys = Effect.Success<ReturnType<typeof world>>

const good = oneOf<keyof Keys>("org", "project", "gateway", "restricted")
const named = weighted<string>([1, good], [1, oneOf<keyof Keys>("administrator", "deleted", "none")])
const cases = Arbitrary.all({
  key: weighted<string>([2, good], [1, named], [1, text]),
  caller: weighted<string>([3, named], [1, text]),
  /** The header of the credential. */
  scheme: oneOf("Bearer ", "Bearer ", "bearer ", "Basic ", "x-api-key", "both"),
  contentType: oneOf("application/json", "application/json", "application/json; charset=utf-8", "text/plain", ""),
  encoding: oneOf<"utf8" | "latin1">("utf8", "utf8", "latin1"),
  /** The JSON around the key in the body. */
  body: weighted(
    [1, constant('{"key":?}')],
    [
      2,
      oneOf(
        ...['{"key":?,"details":true}', '{"key":?,"details":false,"cost":0}', '{"key":?,"permissions":["a.b","b"]}'],
        ...['{"details":true,"permissions":["a.c"],"cost":1000000,"key":?}', '{"key":?,"permissions":["c","a.b"]}'],
        ...['{"key":?,"clientIp":"10.1.2.3"}', '{"key":?,"clientIp":"::1"}', '{"key":?,"clientIp":"x\u00ff"}'],
        ...['{"key":?,"permissions":[]}', '{"key":?,"permissions":["A"]}', '{"key":?,"permissions":null}'],
        ...['{"key":?,"cost":-1}', '{"key":?,"cost":1.5}', '{"key":?,"cost":1e400}', '{"key":?,"details":1}'],
      ),
    ],
    [1, oneOf(' {\n"key" : ? , "other":1}', '{"key":1,"key":?}', '[{"key":?}]', '{"key":[?]}', '{"key":?', "?", "")],
  ),
  requestId: oneOf("", "mine", "not sane"),
  accept: oneOf("", "text/html"),
})
type Case = typeof cases extends Arbitrary.Arbitrary<infer A> ? A : never

const headerSafe = (text: string) => text.replace(/[^\t\x20-\x7e]/g, "?").trim()

const requestOf = (
  keys: Keys,
  { key, caller, scheme, contentType, body, encoding, requestId, accept }: Case,
): WireRequest => {
  const named = (name: string) => (Object.hasOwn(keys, name) ? keys[name as keyof Keys] : name)
  const credential = headerSafe(named(caller))
  const inApiKey = scheme === "x-api-key" || scheme === "both"
  const headers = {
    "content-type": contentType,
    "x-request-id": requestId,
    accept,
    authorization:
      credential === "" || scheme === "x-api-key" ? "" : (scheme === "both" ? "Bearer " : scheme) + credential,
    "x-api-key": inApiKey ? credential : "",
  }
  return {
    headers: Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== "")),
    body: Buffer.from(
      body.replace("?", () => JSON.stringify(named(key))),
      encoding,
    ),
  }
}

for (const [mode, environment, as] of [
  ["guarded", guarded, adminToken],
  ["open, on the embedded database", embedded, undefined],
  ["guarded, on PostgreSQL, nothing in memory", onPostgres({ ...guarded, KEY_CACHE_SIZE: "0" }), adminToken],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(`the hot path, ${mode}`, (it) => {
    it.effect("answers exactly like the operation, to the byte", function* () {
      const { send, routed } = yield* TestServer
      const keys = yield* world(send, as)
      let hot = 0
      const result = yield* Arbitrary.checkEffect(
        cases,
        Effect.fnUntraced(function* (each: Case) {
          const request = requestOf(keys, each)
          const before = routed()
          const answer = yield* send("POST", path, request)
          if (routed() === before) hot++
          expect(bytesOf(answer)).toEqual(bytesOf(yield* send("POST", byTheRouter, request)))
          return true
        }),
        { runs: 400 },
      )
      expect(Arbitrary.formatCheckFailure(result)).toBeUndefined()
      expect(hot).toBeGreaterThan(10)
    })

    it.effect("passes other requests on unchanged, in any number of packets", function* () {
      const { url, send } = yield* TestServer
      const { org } = yield* world(send, as)
      const body = JSON.stringify({ key: org })
      const head = `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${org}\r\ncontent-type: application/json\r\n`
      const whole = `${head}content-length: ${body.length}\r\n\r\n${body}`
      const chunked = `${head}transfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
      const unknown = whole.replace(`"${org}"`, `"${"x".repeat(org.length)}"`)
      const padded = `${body.slice(0, -1)}${" ".repeat(2_000)}}`
      const long = `${head}content-length: ${padded.length}\r\n\r\n${padded}`
      const sequences: ReadonlyArray<readonly [pieces: ReadonlyArray<string>, statuses: ReadonlyArray<number>]> = [
        [
          [whole, chunked, whole],
          [200, 200, 200],
        ],
        [[whole + whole + unknown + chunked + whole], [200, 200, 401, 200, 200]],
        [[whole.slice(0, -10), whole.slice(-10)], [200]],
        [
          [long.slice(0, -10), long.slice(-10) + whole],
          [200, 200],
        ],
        [
          [head, "content-length: 0\r\n\r\n", whole],
          [400, 200],
        ],
        [
          [unknown.slice(0, -10), unknown.slice(-10) + whole.slice(0, 20), whole.slice(20)],
          [401, 200],
        ],
      ]
      for (const [pieces, statuses] of sequences) {
        expect(yield* converse(url, pieces, statuses.length), pieces.join("|")).toEqual(statuses)
      }
    })
  })
}

/** Sends the pieces one by one on one connection; returns the statuses of that many answers. */
const converse = (url: string, pieces: ReadonlyArray<string>, answers: number) =>
  Effect.callback<ReadonlyArray<number>>((resume) => {
    const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", noDelay: true })
    let received = ""
    socket.on("data", (data) => {
      received += data.toString()
      const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status))
      if (statuses.length < answers) return
      socket.destroy()
      resume(Effect.succeed(statuses))
    })
    const [first, ...rest] = pieces
    socket.write(first!)
    rest.forEach((piece, n) => setTimeout(() => socket.write(piece), 10 * (n + 1)))
    return Effect.sync(() => socket.destroy())
  })
