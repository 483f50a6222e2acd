import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { TLSSocket } from "node:tls"
import type { FailureKind } from "#src/domain/webhooks/WebhookSender.ts"
import { connectionFault } from "#src/infrastructure/net/connectionFault.ts"
import { makeAuthority, selfSigned, trusted } from "../../support/certificate.ts"
import { it } from "../../support/it.ts"
import { type Behaviour, closedPort, makeReceiver } from "../../support/receiver.ts"
import { isKind, safeClient, text } from "../../support/safeHttp.ts"

describe("SafeHttp fails", () => {
  const faults: ReadonlyArray<readonly [Behaviour, FailureKind]> = [
    ["hang", "timeout"],
    ["drip", "timeout"],
    ["drip-headers", "timeout"],
    ["close", "connection"],
    ["reset", "connection"],
    ["reset-in-headers", "connection"],
    ["reset-in-body", "connection"],
    ["close-in-body", "connection"],
    ["close-in-chunk", "connection"],
    ["endless-headers", "bad_response"],
    ["endless-informational", "bad_response"],
    ["garbage", "bad_response"],
    ["upgrade", "bad_response"],
    ["101", "bad_response"],
    ["no-status", "bad_response"],
  ]
  it.live.each(faults)("with its kind, and closes the connection: %s → %s", function* ([behaviour, kind]) {
    const receiver = yield* makeReceiver()
    const { post, fails } = yield* safeClient()
    receiver.behave(behaviour)
    const error = yield* fails(receiver.url, kind === "timeout" ? { timeout: "200 millis" } : {})
    isKind(error, kind)
    assert.match(error.message, /^[A-Z].*\.$/)
    yield* receiver.quiet
    receiver.behave({ status: 200 })
    assert.strictEqual((yield* post(receiver.url)).status, 200)
  })

  it.live.each(["upgrade", "101"] as const)("with words of its own for a 101: %s", function* (behaviour) {
    const receiver = yield* makeReceiver()
    const { fails } = yield* safeClient()
    receiver.behave(behaviour)
    const { message } = yield* fails(receiver.url)
    assert.strictEqual(message, "The receiver switches protocols (101), which the request does not offer.")
  })

  // Seen failing: it was said to be closed.
  it.live.each(["100", ["4", "4"]])(
    "with words of its own for a content-length that is none of the body: %j",
    function* (length) {
      const receiver = yield* makeReceiver()
      const { fails } = yield* safeClient()
      receiver.behave({ status: 200, headers: { "content-length": length, connection: "close" }, body: "four" })
      const { message } = yield* fails(receiver.url)
      assert.match(message, /^The connection carried a response of another length than its content-length \(/)
    },
  )

  it.live("with the part of the answer that had arrived", function* () {
    const receiver = yield* makeReceiver()
    const { fails } = yield* safeClient()
    receiver.behave("close-in-body")
    const { partial } = yield* fails(receiver.url)
    assert.strictEqual(partial?.status, 200)
    assert.strictEqual(text(partial!.body), "part")
    receiver.behave("close")
    assert.isUndefined((yield* fails(receiver.url)).partial)
  })

  it.live("where nothing listens", function* () {
    const { fails } = yield* safeClient()
    const error = yield* fails(`http://127.0.0.1:${yield* closedPort}/`)
    isKind(error, "connection")
    assert.strictEqual(error.message, "The connection was refused (ECONNREFUSED).")
  })

  it.live("when the name does not resolve, has no address, or is not answered in time", function* () {
    const resolve = (hostname: string): Promise<ReadonlyArray<string>> => {
      if (hostname === "empty.test") return Promise.resolve([])
      if (hostname === "silent.test") return new Promise(() => {})
      return Promise.reject(Object.assign(new Error("queryA ENOTFOUND"), { code: "ENOTFOUND" }))
    }
    const { fails } = yield* safeClient({ resolve })
    const unknown = yield* fails("http://unknown.test/")
    isKind(unknown, "dns")
    assert.strictEqual(unknown.message, "The host's name does not resolve (ENOTFOUND).")
    isKind(yield* fails("http://empty.test/"), "dns")
    isKind(yield* fails("http://silent.test/", { timeout: "50 millis" }), "timeout")
  })

  it.live("at its deadline when a host accepts and sends nothing, even in TLS", function* () {
    const receiver = yield* makeReceiver({ mute: true })
    const { fails } = yield* safeClient()
    for (const scheme of ["http", "https"]) {
      isKind(yield* fails(`${scheme}://127.0.0.1:${receiver.port}/`, { timeout: "100 millis" }), "timeout")
      yield* receiver.quiet
    }
  })

  it.live("and closes the connection when it is interrupted, in every phase", function* () {
    const [receiver, mute] = [yield* makeReceiver(), yield* makeReceiver({ mute: true })]
    const { post } = yield* safeClient()
    for (const behaviour of ["hang", "drip"] as const) {
      receiver.behave(behaviour)
      const before = receiver.received.length
      const reading = yield* Effect.forkChild(post(receiver.url))
      yield* receiver.arrived(before + 1)
      yield* Fiber.interrupt(reading)
      yield* receiver.quiet
    }
    const inTls = yield* Effect.forkChild(post(`https://127.0.0.1:${mute.port}/`))
    yield* mute.accepted(1)
    yield* Fiber.interrupt(inTls)
    yield* mute.quiet
  })

  it.live("and never connects when it is interrupted while it resolves", function* () {
    const receiver = yield* makeReceiver()
    const answer = Promise.withResolvers<ReadonlyArray<string>>()
    const { post, asked } = yield* safeClient({ resolve: () => answer.promise })
    const resolving = yield* Effect.forkChild(post(`http://receiver.test:${receiver.port}/`))
    while (asked.length === 0) yield* Effect.yieldNow
    yield* Fiber.interrupt(resolving)
    answer.resolve(["127.0.0.1"])
    yield* Effect.sleep("50 millis")
    assert.strictEqual(receiver.connections().accepted, 0)
  })

  it.live.each([
    "ftp://127.0.0.1/",
    "http://user@127.0.0.1/",
    "http://127.0.0.1:0/",
    "/hook",
    `http://127.0.0.1/${"x".repeat(2048)}`,
  ])("without a connection for a url that it may not call: %#", function* (url) {
    const { fails } = yield* safeClient()
    const error = yield* fails(url)
    isKind(error, "refused_address")
    assert.match(error.message, /^The url must .*\.$/)
  })
})

describe("SafeHttp over TLS", () => {
  it.live("accepts a trusted certificate, for its names only", function* () {
    const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["receiver.test"] }) })
    const { post, fails } = yield* safeClient()
    receiver.behave({ status: 200, body: "over TLS" })
    const url = `https://receiver.test:${receiver.port}/`
    assert.strictEqual(text((yield* post(url)).body), "over TLS")
    yield* post(url)
    assert.strictEqual(receiver.connections().accepted, 1)
    const error = yield* fails(`https://other.test:${receiver.port}/`)
    isKind(error, "tls")
    assert.include(error.message, "ERR_TLS_CERT_ALTNAME_INVALID")
    assert.strictEqual(receiver.received.length, 2)
  })

  it.live("sends a name with a final dot without it in SNI, and as it is in host", function* () {
    const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["receiver.test"] }) })
    const { post } = yield* safeClient()
    assert.strictEqual((yield* post(`https://receiver.test.:${receiver.port}/`)).status, 200)
    const [{ headers, socket } = assert.fail()] = receiver.received
    assert.strictEqual((socket as TLSSocket & { readonly servername: string }).servername, "receiver.test")
    assert.strictEqual(headers.host, `receiver.test.:${receiver.port}`)
  })

  it.live.each([
    ["TLSv1.3", /^TLS failed: the other side sent the alert certificate required \(ERR_SSL_TLSV13_ALERT_/],
    ["TLSv1.2", /^TLS failed: the other side sent the alert handshake failure \(ERR_SSL_/],
  ] as const)("names the alert of a server that wants a certificate: %s", ([maxVersion, message]) =>
    Effect.gen(function* () {
      const authority = makeAuthority("Test")
      const tls = { ...(yield* trusted({ names: ["receiver.test"] })), ca: authority.cert, maxVersion }
      const receiver = yield* makeReceiver({ tls })
      const { fails } = yield* safeClient()
      const url = `https://receiver.test:${receiver.port}/`
      const error = yield* fails(url)
      isKind(error, "tls")
      assert.match(error.message, message)
    }),
  )

  it("names an unknown authority, whose alert servers of Node do not send", () => {
    const error = Object.assign(new Error(), { code: "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA" })
    assert.deepStrictEqual(connectionFault(error), {
      kind: "tls",
      message: "TLS failed: the other side sent the alert unknown ca (ERR_SSL_TLSV1_ALERT_UNKNOWN_CA).",
    })
  })

  it.live("refuses an untrusted certificate, and sends nothing", function* () {
    const receiver = yield* makeReceiver({ tls: selfSigned({ names: ["receiver.test"] }) })
    const { fails } = yield* safeClient()
    const error = yield* fails(`https://receiver.test:${receiver.port}/`)
    isKind(error, "tls")
    assert.include(error.message, "DEPTH_ZERO_SELF_SIGNED_CERT")
    assert.strictEqual(receiver.received.length, 0)
  })

  it.live("fails with a suitable kind when the server does not speak TLS", function* () {
    const receiver = yield* makeReceiver()
    const { fails } = yield* safeClient()
    const noTls = yield* fails(`https://127.0.0.1:${receiver.port}/`)
    isKind(noTls, "tls")
    // The message leaves out OpenSSL's references to its own source.
    assert.strictEqual(noTls.message, "TLS failed (ERR_SSL_WRONG_VERSION_NUMBER).")
    isKind(yield* fails(`https://127.0.0.1:${yield* closedPort}/`), "connection")
  })
})
