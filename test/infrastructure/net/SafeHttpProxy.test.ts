import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { egressProxyOf } from "#src/infrastructure/net/EgressProxy.ts"
import { trusted } from "../../support/certificate.ts"
import { makeConnectProxy, type ProxyBehaviour } from "../../support/connectProxy.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver } from "../../support/receiver.ts"
import { isKind, safeClient, text } from "../../support/safeHttp.ts"
import { until } from "../../support/wait.ts"

/** What the client's own name server knows; other names are known to the proxy alone. */
const known: Readonly<Record<string, ReadonlyArray<string>>> = {
  "inside.test": ["10.0.0.7"],
  "both.test": ["93.184.216.34", "169.254.169.254"],
  "outside.test": ["93.184.216.34"],
}

/** A client whose requests go through a proxy, in guarded mode by default. */
const proxiedClient = (url: string, allowPrivateNetworks = false) =>
  safeClient({
    egressProxy: egressProxyOf(url),
    allowPrivateNetworks,
    resolve: (name) =>
      name in known ? Promise.resolve(known[name]!) : Promise.reject(Object.assign(new Error(), { code: "ENOTFOUND" })),
  })

describe("SafeHttp through an egress proxy", () => {
  it.live(
    "sends http and https by CONNECT, over one connection for each origin, also to names that only the proxy knows",
    function* () {
      const tls = yield* trusted({ names: ["hooks.test"] })
      const proxy = yield* makeConnectProxy()
      const { post } = yield* proxiedClient(proxy.url)
      for (const receiver of [yield* makeReceiver(), yield* makeReceiver({ tls })]) {
        receiver.behave({ status: 200, body: "through the proxy" })
        const url = receiver.url.replace("127.0.0.1", "hooks.test")
        assert.strictEqual(text((yield* post(url)).body), "through the proxy")
        yield* post(`${url}/again`)
        assert.strictEqual(proxy.connected.at(-1), `hooks.test:${receiver.port}`)
        assert.strictEqual(receiver.connections().accepted, 1)
        const [first] = receiver.received
        assert.strictEqual(first!.headers.host, `hooks.test:${receiver.port}`)
        assert.notInclude(first!.headerNames.join().toLowerCase(), "proxy")
      }
      assert.strictEqual(proxy.connected.length, 2)
    },
  )

  it.live(
    "checks the receiver's certificate, not the proxy's, and reports its faults as without a proxy",
    function* () {
      const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["hooks.test"] }) })
      const proxy = yield* makeConnectProxy()
      const { fails } = yield* proxiedClient(proxy.url)
      const error = yield* fails(`https://other.test:${receiver.port}/`)
      isKind(error, "tls")
      assert.include(error.message, "ERR_TLS_CERT_ALTNAME_INVALID")
      receiver.behave("close")
      isKind(yield* fails(`https://hooks.test:${receiver.port}/`), "connection")
      receiver.behave("hang")
      isKind(yield* fails(`https://hooks.test:${receiver.port}/`, { timeout: "200 millis" }), "timeout")
      yield* receiver.quiet
    },
  )

  it.live("speaks TLS to a proxy with an https url, and authenticates", function* () {
    const proxy = yield* makeConnectProxy({ tls: yield* trusted({ names: ["localhost"] }), authenticated: true })
    const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["hooks.test"] }) })
    const { post } = yield* proxiedClient(proxy.urlWithCredentials)
    assert.strictEqual((yield* post(`https://hooks.test:${receiver.port}/`)).status, 200)
    const without = yield* proxiedClient(proxy.url)
    const refused = yield* without.fails(`https://hooks.test:${receiver.port}/`)
    assert.strictEqual(refused.message, "The egress proxy refused the connection with status 407.")
    // The proxy's certificate is not for its address.
    const misnamed = yield* proxiedClient(proxy.urlWithCredentials.replace("localhost", "127.0.0.1"))
    const untrusted = yield* misnamed.fails(`https://hooks.test:${receiver.port}/`)
    assert.strictEqual(untrusted.message, "The connection to the egress proxy failed (ERR_TLS_CERT_ALTNAME_INVALID).")
    assert.strictEqual(receiver.received.length, 1)
  })

  it.live("refuses forbidden addresses and names that have one, and leaves all others to the proxy", function* () {
    const receiver = yield* makeReceiver()
    const proxy = yield* makeConnectProxy()
    const { post, fails } = yield* proxiedClient(proxy.url)
    for (const host of ["127.0.0.1", "2130706433", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"].concat(
      ["inside.test", "both.test"],
    )) {
      isKind(yield* fails(`http://${host}:${receiver.port}/`), "refused_address")
    }
    assert.deepStrictEqual(proxy.connected, [])
    yield* post(`http://outside.test:${receiver.port}/`)
    yield* post(`http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:${receiver.port}/`)
    const open = yield* proxiedClient(proxy.url, true)
    yield* open.post(`http://127.0.0.1:${receiver.port}/`)
    yield* open.post(`http://inside.test:${receiver.port}/`)
    const { port } = receiver
    assert.deepStrictEqual(proxy.connected, [
      `outside.test:${port}`,
      `[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:${port}`,
      `127.0.0.1:${port}`,
      `inside.test:${port}`,
    ])
  })

  const faults: ReadonlyArray<readonly [ProxyBehaviour, string]> = [
    [403, "The egress proxy refused the connection with status 403."],
    [503, "The egress proxy refused the connection with status 503."],
    ["close", "The connection to the egress proxy failed (UND_ERR_SOCKET)."],
  ]
  it.live.each(faults)(
    "fails with a sentence about the proxy, and closes the connection: %s",
    function* ([behaviour, message]) {
      const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["hooks.test"] }) })
      const proxy = yield* makeConnectProxy()
      const { post, fails } = yield* proxiedClient(proxy.url)
      const url = `https://hooks.test:${receiver.port}/`
      proxy.behave(behaviour)
      const error = yield* fails(url)
      isKind(error, "connection")
      assert.strictEqual(error.message, message)
      yield* until("no connection to the proxy", Effect.sync(proxy.open), (open) => open === 0)
      proxy.behave("connect")
      assert.strictEqual((yield* post(url)).status, 200)
    },
  )

  it.live("fails when nothing listens at the proxy's address", function* () {
    const { fails } = yield* proxiedClient(`http://127.0.0.1:${yield* closedPort}`)
    const error = yield* fails("https://hooks.test/")
    isKind(error, "connection")
    assert.strictEqual(error.message, "The connection to the egress proxy failed (ECONNREFUSED).")
  })

  it.live("ends a proxy that does not answer at the deadline and at an interruption", function* () {
    const proxy = yield* makeConnectProxy()
    proxy.behave("hang")
    const { post, fails } = yield* proxiedClient(proxy.url)
    const open = (count: number) => until("connections to the proxy", Effect.sync(proxy.open), (n) => n === count)
    isKind(yield* fails("https://hooks.test/", { timeout: "200 millis" }), "timeout")
    yield* open(0)
    const fiber = yield* Effect.forkChild(post("https://hooks.test/"))
    yield* open(1)
    yield* Fiber.interrupt(fiber)
    yield* open(0)
  })
})
