import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { connect } from "node:net"
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { faultOfError } from "../operations.ts"
import { faultOfWebhookError } from "../webhooks/webhookOperations.ts"

/**
 * Promise (Documented responses): An ambiguous request is refused, and its connection ends. Unsupported headers,
 * targets, protocols, encodings and compressed bodies are refused in the documented shape.
 */

/**
 * Promise (Documented responses): A path has one spelling: percent-encoded letters are refused before any rule by path
 * looks. Two `Host` headers are a 400.
 */

interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

/** All answers of one connection, split by their lengths. */
const answersIn = (bytes: string): ReadonlyArray<RawAnswer> => {
  if (bytes === "") return []
  const [head, ...rest] = bytes.split("\r\n\r\n")
  const [first, ...lines] = head!.split("\r\n")
  const headers = Object.fromEntries(
    lines.map((line) => [line.split(":", 1)[0]!.toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
  )
  const body = rest.join("\r\n\r\n")
  const length = Number(headers["content-length"])
  const text = Buffer.from(body).subarray(0, length).toString()
  const next = Buffer.from(body).subarray(length).toString()
  return [{ status: Number(first!.split(" ")[1]), headers, text }, ...answersIn(next)]
}

/** Writes bytes unchanged (as Latin-1); returns what comes back until the connection ends or is silent. */
const exchange = (url: string, bytes: string) =>
  Effect.callback<{ readonly answers: ReadonlyArray<RawAnswer>; readonly ended: boolean }>((resume) => {
    const { hostname, port } = new URL(url)
    let got = ""
    const socket = connect(Number(port), hostname, () => socket.write(bytes, "latin1"))
    const end = (ended: boolean) => {
      socket.destroy()
      resume(Effect.sync(() => ({ answers: answersIn(got), ended })))
    }
    socket.setTimeout(30_000, () => end(false))
    socket.on("data", (chunk) => (got += chunk.toString()))
    socket.on("error", () => end(true))
    socket.on("close", () => end(true))
  })

/** The fault of an answer, in the shape of the interface of its path. */
const faultOf = ({ status, headers, text }: RawAnswer, path = "") => {
  if (headers["x-request-id"] === undefined) return `no x-request-id: ${text}`
  if (headers["x-content-type-options"] !== "nosniff") return `no nosniff: ${text}`
  if (status < 400) return undefined
  const answer = { status, headers, text, json: JSON.parse(text) as unknown }
  // A malformed request gets the platform's shape, and statuses that no operation has.
  if ([408, 417, 431].includes(status))
    return Object.keys(answer.json as object).join() === "error,code" ? undefined : text
  return path.startsWith("/v1") ? faultOfWebhookError(answer) : faultOfError(answer)
}

/** A second request, hidden in the body of the first. */
const hidden = "GET /smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\nx-request-id: smuggled\r\n\r\n"
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`
const authorized = `authorization: Bearer ${adminToken}\r\ncontent-type: application/json\r\n`
const post = (headers: string, body: string) =>
  `POST /api/v0/orgs HTTP/1.1\r\nhost: 127.0.0.1\r\n${authorized}${headers}\r\n${body}`
const get = (headers: string, target = "/api/v0/orgs", version = "HTTP/1.1") =>
  `GET ${target} ${version}\r\nhost: 127.0.0.1\r\n${authorized}${headers}\r\n`
/** The last request of its connection. */
const last = (headers: string, target?: string, version?: string) =>
  get(`connection: close\r\n${headers}`, target, version)
const json = '{"name":"a"}'

layer(TestServer.layer(guarded), { excludeTestServices: true })("on the wire", (it) => {
  it.effect("a request that can be read as two is refused, and its connection ends", function* () {
    const { url } = yield* TestServer
    const length = `content-length: ${hidden.length}\r\n`
    const smuggled: Readonly<Record<string, string>> = {
      "a length and chunks": post(`${length}transfer-encoding: chunked\r\n`, `0\r\n\r\n${hidden}`),
      "chunks and a length": post(`transfer-encoding: chunked\r\n${length}`, `0\r\n\r\n${hidden}`),
      "two lengths": post(`content-length: ${json.length}\r\n${length}`, `${json}${hidden}`),
      "two lengths in one": post(`content-length: ${json.length}, ${hidden.length}\r\n`, `${json}${hidden}`),
      "a length with a sign": post(`content-length: +${json.length}\r\n`, `${json}${hidden}`),
      "a negative length": post("content-length: -1\r\n", `${json}${hidden}`),
      "a length in hex": post("content-length: 0xc\r\n", `${json}${hidden}`),
      "a length beyond the integers": post("content-length: 99999999999999999999\r\n", `${json}${hidden}`),
      "a space before the colon": post(`transfer-encoding : chunked\r\n${length}`, `0\r\n\r\n${hidden}`),
      "a folded header": post(`x: a\r\n transfer-encoding: chunked\r\n`, `0\r\n\r\n${hidden}`),
      "an unknown encoding": post("transfer-encoding: xchunked\r\n", `0\r\n\r\n${hidden}`),
      "chunked, and then not": post("transfer-encoding: chunked, identity\r\n", `0\r\n\r\n${hidden}`),
      "a line feed alone": post(`x: a\ntransfer-encoding: chunked\r\n`, `0\r\n\r\n${hidden}`),
      "a carriage return alone": post(`x: a\rtransfer-encoding: chunked\r\n`, `0\r\n\r\n${hidden}`),
      "a chunk longer than it says": post("transfer-encoding: chunked\r\n", `1\r\n${json}\r\n0\r\n\r\n${hidden}`),
      "a chunk beyond the integers": post("transfer-encoding: chunked\r\n", `fffffffffffffffff\r\n${json}${hidden}`),
      "a chunk whose length is no number": post(
        "transfer-encoding: chunked\r\n",
        `0xc\r\n${json}\r\n0\r\n\r\n${hidden}`,
      ),
      "a chunk ended by a line feed": post("transfer-encoding: chunked\r\n", `c\n${json}\n0\n\n${hidden}`),
    }
    for (const [name, bytes] of Object.entries(smuggled)) {
      const { answers, ended } = yield* exchange(url, bytes)
      const all = `${name}: ${JSON.stringify(answers)}`
      expect(answers.length, all).toBeLessThanOrEqual(1)
      expect(all).not.toContain("smuggled")
      expect(ended, all).toBe(true)
      for (const answer of answers) expect([answer.status, faultOf(answer)], all).toEqual([400, undefined])
    }
  })

  // Seen failing: the first Host counted, and a proxy in front may take the last one.
  it.effect("two Host headers are refused, also by the shortest way", function* () {
    const { url } = yield* TestServer
    const validation = JSON.stringify({ key: "svc_x" })
    for (const bytes of [
      get("HOST: other.example\r\n"),
      get("host: 127.0.0.1\r\n", "/healthz"),
      `POST /api/v0/keys/validate HTTP/1.1\r\nhost: a\r\nhost: b\r\n${authorized}content-length: ${validation.length}\r\n\r\n${validation}`,
    ]) {
      const { answers, ended } = yield* exchange(url, bytes)
      expect([answers.map((answer) => [answer.status, faultOf(answer)]), ended], bytes).toEqual([
        [[400, undefined]],
        true,
      ])
    }
  })

  // Seen failing: it read a body of 900 KB without a credential, and /%6detrics passed a proxy's rule for /metrics.
  it.effect("a path with a needlessly encoded character is refused before its body is read", function* () {
    const { send } = yield* TestServer
    for (const path of [
      "/api/v0/keys/validat%65",
      "/%76%31/jobs/create",
      "/%6detrics",
      "/docs%2D",
      "/api/v0/projects/%7Ea?b=%65",
    ]) {
      const { json, status } = yield* send("POST", path, { json: { key: "x".repeat(900_000) } })
      expect([status, JSON.stringify(json)], path).toEqual([
        404,
        expect.stringContaining("There is no operation at this path: send "),
      ])
    }
    // What must be encoded, and the query, may be.
    const encoded = yield* send("GET", "/api/v0/projects/a%20b%2F%C3%A4", { as: adminToken })
    expect([encoded.status, encoded.text]).toEqual([404, expect.stringContaining("There is no such project")])
    expect((yield* send("GET", "/api/v0/projects?%6cimit=1", { as: adminToken })).status).toBe(200)
  })

  it.effect("two requests in one packet are two, with any body in the first", function* () {
    const { url } = yield* TestServer
    const second = get("connection: close\r\n", "/healthz")
    const firsts: Readonly<Record<string, readonly [bytes: string, status: number]>> = {
      "a body": [post(`content-length: ${json.length}\r\n`, json), 200],
      chunks: [post("transfer-encoding: chunked\r\n", `${chunk(json)}0\r\n\r\n`), 200],
      "chunks with extensions": [post("transfer-encoding: chunked\r\n", `c;a="b"\r\n${json}\r\n0\r\n\r\n`), 200],
      trailers: [post("transfer-encoding: chunked\r\n", `${chunk(json)}0\r\nauthorization: x\r\n\r\n`), 200],
      "a GET with a body": [get(`content-length: ${hidden.length}\r\n`) + hidden, 200],
      "a body that no operation reads": [
        `POST /nope HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${hidden.length}\r\n\r\n${hidden}`,
        404,
      ],
      "a body without a valid credential": [
        `POST /api/v0/orgs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${hidden.length}\r\n\r\n${hidden}`,
        401,
      ],
    }
    for (const [name, [first, status]] of Object.entries(firsts)) {
      const { answers } = yield* exchange(url, first + second)
      expect(
        answers.map((answer) => [answer.status, faultOf(answer)]),
        name,
      ).toEqual([
        [status, undefined],
        [200, undefined],
      ])
    }
  })

  it.effect(
    "invalid, too many or too large headers are refused, and no header is written into an answer",
    function* () {
      const { url } = yield* TestServer
      const cases: Readonly<Record<string, readonly [bytes: string, status: number]>> = {
        "NUL in a value": [last("x: a\0b\r\n"), 400],
        "NUL in a name": [last("x\0y: a\r\n"), 400],
        "an invalid name": [last("x y: a\r\n"), 400],
        "a line without a colon": [last("nonsense\r\n"), 400],
        "bytes that are not UTF-8": [last("x-request-id: \xff\xfe\x80\r\n"), 200],
        "a tab": [last("x-request-id: a\tb\r\n"), 200],
        "an encoded header": [last("x-request-id: a%0d%0ax-injected: 1\r\n"), 200],
        "190 headers": [last("a: b\r\n".repeat(190)), 200],
        // Seen failing: all were read, and those after the 2,000th were lost.
        "500 headers": [last("a: b\r\n".repeat(500)), 431],
        "2,500 headers": [last("a:\r\n".repeat(2_500)), 431],
        "5,000 headers": [last("a: b\r\n".repeat(5_000)), 431],
        "headers of 17 KiB": [last(`x: ${"a".repeat(17_000)}\r\n`), 431],
        "a target of 17 KiB": [last("", `/${"a".repeat(17_000)}`), 431],
        // RFC 9112, section 3.2.2: a server accepts it with any host.
        "a target that is a URL": [last("", "http://evil.example/api/v0/orgs"), 200],
        "a target of two slashes": [last("", "//evil.example/api/v0/orgs"), 404],
        "a target with ..": [last("", "/healthz/../api/v0/orgs"), 404],
        "a target with .., encoded": [last("", "/healthz/%2e%2e/api/v0/orgs"), 404],
        "an encoded slash": [last("", "/api%2Fv0%2Forgs"), 404],
        "a backslash": [last("", "/api\\v0\\orgs"), 404],
        "an encoded NUL": [last("", "/api/v0/orgs%00"), 404],
        "a full-width letter": [last("", "/api/v0/%EF%BD%8Frgs"), 404],
        "a capital letter": [last("", "/api/v0/Orgs"), 404],
        // Seen failing without the check for other separators: the router ends a path at either.
        "a matrix parameter": [last("", "/api/v0/orgs;a=b"), 404],
        "a fragment": [last("", "/api/v0/orgs#a"), 404],
        "a matrix parameter after a path that a proxy may block": [last("", "/metrics;a"), 404],
        "a semicolon and a hash in a query": [last("", "/api/v0/orgs?a;b#c"), 400],
        "an invalid version": [last("", "/api/v0/orgs", "HTTP/1.1x"), 400],
        "no version": ["GET /api/v0/orgs\r\n\r\n", 401],
        "the preface of HTTP/2": ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400],
        "a TLS greeting": ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400],
      }
      for (const [name, [bytes, status]] of Object.entries(cases)) {
        const { answers } = yield* exchange(url, bytes)
        const all = `${name}: ${JSON.stringify(answers)}`
        expect(
          answers.map((answer) => [answer.status, faultOf(answer)]),
          all,
        ).toEqual([[status, undefined]])
        expect(answers[0]!.headers["x-injected"], all).toBeUndefined()
        expect(answers[0]!.headers["x-request-id"], all).toMatch(/^[\w-]{26,36}$/)
      }
    },
  )

  it.effect("an error has the shape of its interface, however its path is written", function* () {
    const { url } = yield* TestServer
    for (const target of ["/v1/nope", "http://evil.example/v1/nope", "http://evil.example:80/v1/jobs/list?a"]) {
      const { answers } = yield* exchange(url, last("", target))
      expect(
        answers.map((answer) => [answer.status, faultOf(answer, "/v1")]),
        target,
      ).toEqual([[target.includes("jobs/list") ? 405 : 404, undefined]])
    }
  })

  // Seen failing without `shouldUpgradeCallback`: the runtime's own 411, without a body or a request id. Without the
  // answer to CONNECT, the connection was cut silently.
  it.effect("a request for another protocol, a tunnel or 100 Continue gets an answer of the service", function* () {
    const { url } = yield* TestServer
    const upgrade = (protocol: string, rest = "") =>
      get(`connection: upgrade, close\r\nupgrade: ${protocol}\r\n${rest}`)
    const cases: Readonly<Record<string, readonly [bytes: string, status: number]>> = {
      websocket: [
        upgrade("websocket", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"),
        200,
      ],
      "HTTP/2 in the clear": [upgrade("h2c", "http2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"), 200],
      "another protocol, with chunks": [
        post("connection: upgrade, close\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n", `${chunk(json)}0\r\n\r\n`),
        200,
      ],
      "a tunnel": ["CONNECT 127.0.0.1:5432 HTTP/1.1\r\nhost: 127.0.0.1:5432\r\n\r\n", 404],
      "an expected 100 Continue": [
        post(`connection: close\r\nexpect: 100-continue\r\ncontent-length: ${json.length}\r\n`, json),
        200,
      ],
      "a cup of tea": [get("expect: tea\r\n"), 417],
    }
    for (const [name, [bytes, status]] of Object.entries(cases)) {
      const { answers } = yield* exchange(url, bytes)
      const final = answers.at(-1)
      expect([final?.status, final && faultOf(final)], `${name}: ${JSON.stringify(answers)}`).toEqual([
        status,
        undefined,
      ])
    }
  })

  it.effect("a body in another encoding, charset or type is refused, and none is unpacked", function* () {
    const { send, logs } = yield* TestServer
    // 100 KiB that unpack to 100 MiB.
    const bomb = gzipSync(Buffer.alloc(100 * 1024 * 1024, " "))
    const bodies: ReadonlyArray<readonly [encoding: string, body: Uint8Array]> = [
      ["gzip", gzipSync(json)],
      ["x-gzip", gzipSync(json)],
      ["deflate", deflateSync(json)],
      ["br", brotliCompressSync(json)],
      ["zstd", zstdCompressSync(json)],
      ["gzip, gzip", gzipSync(gzipSync(json))],
      ["gzip", bomb],
      ["nonsense", gzipSync(json)],
    ]
    for (const [path, faultOf] of [
      ["/api/v0/orgs", faultOfError],
      ["/v1/jobs/create", faultOfWebhookError],
    ] as const) {
      for (const [encoding, body] of bodies) {
        const headers = { "content-type": "application/json", "content-encoding": encoding }
        const answer = yield* send("POST", path, { body, headers, as: adminToken })
        const expected = path.startsWith("/v1/") ? 401 : 400
        expect([answer.status, faultOf(answer)], `${encoding} ${answer.text}`).toEqual([expected, undefined])
      }
    }
    const encoded: ReadonlyArray<readonly [type: string, body: Uint8Array | string, status: number]> = [
      ["application/json; charset=utf-16le", Buffer.from(json, "utf16le"), 415],
      ["application/json", Buffer.from(`\ufeff${json}`, "utf16le"), 400],
      ["application/json", Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]), 400],
      ["application/json", Buffer.from([0xc0, 0x80]), 400],
      ["application/json; charset=utf-7", "+AHs-", 415],
      ["application/json;", json, 200],
      ["APPLICATION/JSON", json, 200],
      ["application/vnd.api+json", json, 415],
      ["text/json", json, 415],
      ["application/jsonp", json, 415],
      ["text/plain, application/json", json, 415],
      ["application/x-www-form-urlencoded", "name=a", 415],
      ["multipart/form-data", json, 415],
      ["multipart/form-data; boundary=x", '--x\r\ncontent-disposition: form-data; name="name"\r\n\r\na\r\n--x--', 415],
      ["application/octet-stream", json, 415],
      ["application/msgpack", "\x81\xa4name\xa1a", 415],
    ]
    for (const [type, body, status] of encoded) {
      const answer = yield* send("POST", "/api/v0/orgs", { body, headers: { "content-type": type }, as: adminToken })
      expect(answer.status, `${type} ${answer.text}`).toBe(status)
      if (status !== 200) expect(faultOfError(answer), type).toBeUndefined()
    }
    expect(logs()).not.toContain("A request failed")
  })
})
