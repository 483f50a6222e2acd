import { assert, describe } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import type { Socket } from "node:net"
import { it } from "../../support/it.ts"
import { makeReceiver, type Receiver } from "../../support/receiver.ts"
import { isKind, safeClient, text } from "../../support/safeHttp.ts"
import { within } from "../../support/wait.ts"

/** How many requests have arrived on a connection. */
const used = (receiver: Receiver, socket: Socket) => receiver.received.filter((one) => one.socket === socket).length

describe("SafeHttp sends", () => {
  it.live("exactly what it was asked to, without tracing headers", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave({ status: 201, headers: { "x-a": ["1", "2"], "X-B": "b" }, body: "thanks" })
    const body = '{"a":"ü\\u0000"}'
    const headers = { "content-type": "application/json", "x-event-type": "job.completed" }
    const answer = yield* post(`${receiver.url}/hook?a=1#b`, { headers, body }).pipe(Effect.withSpan("request"))
    const [request] = receiver.received
    assert.deepStrictEqual(request!.headerNames, [
      "host",
      "connection",
      "content-type",
      "x-event-type",
      "content-length",
    ])
    assert.strictEqual(request!.headers.host, `127.0.0.1:${receiver.port}`)
    assert.deepInclude(request, { method: "POST", path: "/hook?a=1", body: Buffer.from(body) })
    assert.deepInclude(answer, { status: 201, truncated: false, bytesRead: 6 })
    assert.deepInclude(answer.headers, { "x-a": "1, 2", "x-b": "b" })
    assert.strictEqual(text(answer.body), "thanks")
  })

  it.live("GET without a body, and bytes", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    yield* post(receiver.url, { method: "GET", body: undefined } as never)
    yield* post(receiver.url, { body: new Uint8Array([0, 255]) })
    assert.deepStrictEqual(receiver.received[0]!.headerNames, ["host", "connection"])
    assert.deepStrictEqual([...receiver.received[1]!.body], [0, 255])
  })

  it.live("over a kept connection", function* () {
    const receiver = yield* makeReceiver()
    const { post, asked } = yield* safeClient()
    const url = `http://receiver.test:${receiver.port}/`
    for (let n = 0; n < 5; n++) yield* post(url)
    assert.deepStrictEqual(new Set(receiver.received.map(({ connection }) => connection)), new Set([1]))
    assert.deepStrictEqual(asked, ["receiver.test"])
  })

  it.live("over a new connection when the old one was closed", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave({ status: 200, headers: { connection: "close" } })
    for (let n = 0; n < 3; n++) yield* post(receiver.url)
    assert.strictEqual(receiver.connections().accepted, 3)
    receiver.behave({ status: 200 })
    yield* post(receiver.url)
    yield* post(receiver.url)
    assert.strictEqual(receiver.connections().accepted, 4)
  })

  it.live("over a new connection when the old one is too old, without interrupting a request", function* () {
    const receiver = yield* makeReceiver()
    const { post, asked } = yield* safeClient({ maxConnectionAge: "50 millis" })
    const url = `http://receiver.test:${receiver.port}/`
    yield* post(url)
    yield* within("the connections to end", receiver.quiet)
    receiver.behave("slow")
    assert.strictEqual((yield* post(url)).status, 200)
    yield* post(url)
    assert.strictEqual(receiver.connections().accepted, 3)
    assert.strictEqual(asked.length, 3)
  })

  it.live("once more on a new connection when a kept one fails before a byte of the response", function* () {
    const receiver = yield* makeReceiver()
    const { fails, post } = yield* safeClient()
    for (const fault of ["close", "reset"] as const) {
      yield* Effect.all([post(receiver.url), post(receiver.url)], { concurrency: 2 })
      const before = receiver.received.length
      // Another kept connection may be closed too.
      receiver.behave(({ socket }) => (used(receiver, socket) > 1 ? fault : { status: 200 }))
      assert.strictEqual((yield* post(receiver.url, { headers: { "webhook-id": "1" } })).status, 200)
      const ids = receiver.received.slice(before).map(({ headers }) => headers["webhook-id"])
      assert.deepStrictEqual(ids, ["1", "1"])
      receiver.behave(fault)
      isKind(yield* fails(receiver.url), "connection")
      assert.strictEqual(receiver.received.length, before + 4)
      // The first request on a connection is not repeated, nor one whose response has begun.
      isKind(yield* fails(receiver.url), "connection")
      assert.isAtMost(receiver.received.length, before + 6)
      receiver.behave({ status: 200 })
      yield* post(receiver.url)
      receiver.behave("reset-in-headers")
      const begun = receiver.received.length
      isKind(yield* fails(receiver.url), "connection")
      assert.strictEqual(receiver.received.length, begun + 1)
      receiver.behave({ status: 200 })
    }
  })

  it.live("200 requests at once, each over a connection of its own, and closes all at the end", function* () {
    const receiver = yield* makeReceiver()
    const scope = yield* Scope.make()
    const { post } = yield* Scope.provide(safeClient(), scope)
    for (let round = 0; round < 2; round++) {
      yield* Effect.forEach(Array.from({ length: 200 }), () => post(receiver.url), { concurrency: "unbounded" })
    }
    assert.strictEqual(receiver.received.length, 400)
    assert.strictEqual(receiver.connections().accepted, 200)
    yield* Scope.close(scope, Exit.void)
    yield* within("the connections to end", receiver.quiet)
  })

  it.live("past a path that hangs on the same host", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave(({ path }) => (path === "/hang" ? "hang" : { status: 200 }))
    const hanging = Array.from({ length: 50 }, () => Effect.forkChild(post(`${receiver.url}/hang`)))
    yield* Effect.all(hanging)
    const { status } = yield* post(`${receiver.url}/fine`)
    assert.strictEqual(status, 200)
  })

  it.live("with at most 1,024 idle connections", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    const hosts = Array.from({ length: 1_100 }, (_, n) => `http://h${n}.test:${receiver.port}/`)
    yield* Effect.forEach(hosts, (url) => post(url), { concurrency: 50, discard: true })
    // Idle connections close by themselves only after four seconds, so that does not count here.
    const bounded = Effect.repeat(Effect.sleep("5 millis"), { while: () => receiver.connections().open > 1_024 })
    yield* within("the connections past 1,024 to end", bounded)
    yield* post(hosts[1_099]!)
    assert.strictEqual(receiver.connections().accepted, 1_100)
    yield* post(hosts[0]!)
    assert.strictEqual(receiver.connections().accepted, 1_101)
  })
})

describe("SafeHttp reads", () => {
  it.live("the response after unasked informational ones, and keeps the connection", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave("continue")
    for (let n = 0; n < 3; n++) assert.strictEqual(text((yield* post(receiver.url)).body), "ok")
    assert.strictEqual(receiver.connections().accepted, 1)
  })

  it.live.each([200, 204, 400, 410, 429, 500, 503])("any status as an answer: %i", function* (status) {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave({ status })
    assert.strictEqual((yield* post(receiver.url)).status, status)
  })

  it.live.each([301, 302, 303, 304, 307, 308])("redirects without following them: %i", function* (status) {
    const [receiver, other] = [yield* makeReceiver(), yield* makeReceiver()]
    const { post } = yield* safeClient()
    receiver.behave({ status, headers: { location: other.url } })
    const answer = yield* post(receiver.url)
    assert.strictEqual(answer.status, status)
    assert.strictEqual(answer.headers["location"], other.url)
    assert.strictEqual(other.connections().accepted, 0)
    assert.strictEqual(receiver.received.length, 1)
  })

  it.live("a gzip bomb as the bytes that were sent", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave("bomb")
    const answer = yield* post(receiver.url)
    assert.isBelow(answer.bytesRead, 20_000)
    assert.deepStrictEqual([...answer.body.subarray(0, 2)], [0x1f, 0x8b])
    assert.strictEqual(answer.body.length, 4096)
    assert.isFalse(answer.truncated)
  })

  it.live("an endless body up to its limit, and closes the connection", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave("endless-body")
    const answer = yield* post(receiver.url)
    assert.deepInclude(answer, { status: 200, truncated: true })
    assert.strictEqual(text(answer.body), "x".repeat(4096))
    assert.isBelow(answer.bytesRead, 2 * 64 * 1024)
    yield* receiver.quiet
  })

  it.live("as many bytes as allowed, and not one more", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    receiver.behave({ status: 200, body: "x".repeat(1000) })
    const whole = yield* post(receiver.url, { maxRead: 1000, keep: 1000 })
    assert.deepInclude(whole, { truncated: false, bytesRead: 1000 })
    const cut = yield* post(receiver.url, { maxRead: 999, keep: 999 })
    assert.isTrue(cut.truncated)
    assert.strictEqual(cut.body.length, 999)
  })

  it.live("20 MiB where that is allowed", function* () {
    const receiver = yield* makeReceiver()
    const { post } = yield* safeClient()
    const body = Buffer.alloc(20 * 1024 * 1024, "abc")
    receiver.behave({ status: 200, body })
    const answer = yield* post(receiver.url, { maxRead: body.length, keep: body.length })
    assert.isTrue(body.equals(answer.body))
  })
})
