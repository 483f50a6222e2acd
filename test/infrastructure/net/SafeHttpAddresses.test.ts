import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { once } from "node:events"
import { connect } from "node:net"
import { Worker } from "node:worker_threads"
import { makeResolveHost } from "#src/infrastructure/net/connector.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver } from "../../support/receiver.ts"
import { isKind, safeClient } from "../../support/safeHttp.ts"

/** Hosts in a url that lead to loopback or another refused address; PORT is the receiver's. */
const hostileHosts = [
  "127.0.0.1",
  "127.1",
  "127.0.1",
  "2130706433",
  "0x7f000001",
  "0x7F.0.0.1",
  "017700000001",
  "0177.0.0.01",
  "0x7f.1",
  "00000000177.0.0.1",
  "127.0.0.1.",
  "127。0。0。1",
  "127．0．0．1",
  "１２７.０.０.１",
  "①②⑦.0.0.1",
  "%31%32%37.0.0.1",
  "127.0.0.%31",
  "0",
  "0.0.0.0",
  "0x0",
  "[::1]",
  "[0:0:0:0:0:0:0:1]",
  "[0000:0000:0000:0000:0000:0000:0000:0001]",
  "[::]",
  "[::127.0.0.1]",
  "[::7f00:1]",
  "[::ffff:127.0.0.1]",
  "[::FFFF:7F00:1]",
  "[0:0:0:0:0:ffff:127.0.0.1]",
  "[::ffff:0:127.0.0.1]",
  "[64:ff9b::127.0.0.1]",
  "[64:ff9b:1::7f00:1]",
  "[2002:7f00:1::]",
  "[2001:0:7f00:1::]",
  "[fe80::1]",
  "[fec0::1]",
  "[fc00::1]",
  "[fd00:ec2::254]",
  "[ff02::1]",
  "[100::1]",
  "[2001:db8::1]",
  "[3fff::1]",
  "[5f00::1]",
  "169.254.169.254",
  "0xa9fea9fe",
  "2852039166",
  "10.0.0.1",
  "172.31.255.255",
  "192.168.0.1",
  "100.64.0.1",
  "198.18.0.1",
  "203.0.113.1",
  "224.0.0.1",
  "255.255.255.255",
  "168.63.129.16",
]

/** Names that resolve to refused addresses. */
const hostileNames = [
  "localhost",
  "LOCALHOST",
  "localhost.",
  "ｌｏｃａｌｈｏｓｔ",
  "app.localhost",
  "127.0.0.1.nip.io",
  "metadata.google.internal",
  "пример.рф",
  "xn--e1afmkfd.xn--p1ai",
]

describe("SafeHttp in guarded mode", () => {
  it.live.each(hostileHosts)("refuses http://%s without resolving it", function* (host) {
    const receiver = yield* makeReceiver()
    const { fails, asked } = yield* safeClient({ allowPrivateNetworks: false })
    isKind(yield* fails(`http://${host}:${receiver.port}/`), "refused_address")
    isKind(yield* fails(`https://${host}:${receiver.port}/`), "refused_address")
    assert.deepStrictEqual(asked, [])
    assert.strictEqual(receiver.connections().accepted, 0)
  })

  it.live.each(hostileNames)("refuses http://%s, which leads to loopback", function* (name) {
    const receiver = yield* makeReceiver()
    const { fails, asked } = yield* safeClient({ allowPrivateNetworks: false })
    const error = yield* fails(`http://${name}:${receiver.port}/`)
    isKind(error, "refused_address")
    assert.notInclude(error.message, "127.0.0.1")
    assert.strictEqual(asked.length, 1)
    assert.strictEqual(receiver.connections().accepted, 0)
  })

  it.live.each([
    ["10.0.0.1", "93.184.215.14"],
    ["93.184.215.14", "10.0.0.1"],
    ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::1"],
    ["93.184.215.14", "fe80::1%eth0"],
    ["93.184.215.14", "no address"],
  ])("refuses a name with one bad address: %s, %s", function* ([...addresses]) {
    const { fails } = yield* safeClient({ allowPrivateNetworks: false, resolve: async () => addresses })
    isKind(yield* fails("http://several.test/"), "refused_address")
  })

  it.live("refuses the addresses of localhost", function* () {
    const receiver = yield* makeReceiver()
    const resolve = makeResolveHost({ askSystemToo: false })
    const { fails } = yield* safeClient({ allowPrivateNetworks: false, resolve })
    isKind(yield* fails(`http://localhost:${receiver.port}/`), "refused_address")
    assert.strictEqual(receiver.connections().accepted, 0)
  })
})

/** Listens on an address in a thread that accepts no connection, so that further ones hang, until `accept`. */
const makeSlow = (host: string, port: number) =>
  Effect.gen(function* () {
    const gate = new Int32Array(new SharedArrayBuffer(4))
    const source = `
      const { parentPort, workerData } = require("node:worker_threads")
      const { host, port, gate } = workerData
      require("node:http").createServer((_, response) => response.writeHead(204).end())
        .listen({ host, port, backlog: 1 }, () => {
          parentPort.postMessage("listens")
          setImmediate(() => Atomics.wait(gate, 0, 0))
        })`
    const worker = yield* Effect.acquireRelease(
      Effect.sync(() => new Worker(source, { eval: true, workerData: { host, port, gate } })),
      (worker) => Effect.promise(() => worker.terminate()),
    )
    yield* Effect.promise(() => once(worker, "message"))
    yield* Effect.addFinalizer(() => accept)
    const accept = Effect.sync(() => {
      Atomics.store(gate, 0, 1)
      Atomics.notify(gate, 0)
    })
    const queued = Array.from({ length: 4 }, () => connect(port, host).on("error", () => {}))
    yield* Effect.addFinalizer(() => Effect.sync(() => queued.forEach((socket) => socket.destroy())))
    yield* Effect.promise(() => once(queued[0]!, "connect"))
    return accept
  })

describe("SafeHttp and a name with several addresses", () => {
  it.live("calls the next one while one hangs", function* () {
    const receiver = yield* makeReceiver({ host: "127.0.0.9" })
    yield* Effect.asVoid(makeSlow("127.0.0.8", receiver.port))
    const { post } = yield* safeClient({ resolve: async () => ["127.0.0.8", "127.0.0.9"] })
    assert.strictEqual((yield* post(`http://two.test:${receiver.port}/`)).status, 200)
  })

  it.live("does not give up one that answers late, when the others fail", function* () {
    const port = yield* closedPort
    const accept = yield* makeSlow("127.0.0.8", port)
    const { post } = yield* safeClient({ resolve: async () => ["127.0.0.8", "127.0.0.7"] })
    const late = yield* Effect.forkChild(post(`http://two.test:${port}/`))
    // Longer than the time after which the next address is tried.
    yield* Effect.sleep("400 millis")
    yield* accept
    assert.strictEqual((yield* Fiber.join(late)).status, 204)
  })

  it.live("fails with what an address answered, and not with an address that this machine cannot reach", function* () {
    const { fails } = yield* safeClient({
      resolve: async () => ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "127.0.0.1"],
    })
    assert.include((yield* fails(`http://two.test:${yield* closedPort}/`)).message, "was refused")
  })

  it.live("refuses a name with more than 256 addresses", function* () {
    const addresses = Array.from({ length: 257 }, (_, n) => `127.0.1.${n % 256}`)
    const { fails } = yield* safeClient({ resolve: async () => addresses })
    isKind(yield* fails("http://many.test/"), "dns")
  })
})

describe("SafeHttp in open mode", () => {
  it.live("calls loopback by its address and by its name, and no special address", function* () {
    const receiver = yield* makeReceiver()
    const { post, fails } = yield* safeClient({ resolve: makeResolveHost({ askSystemToo: true }) })
    for (const host of ["127.0.0.1", "2130706433", "localhost"]) {
      assert.strictEqual((yield* post(`http://${host}:${receiver.port}/`)).status, 200)
    }
    for (const host of ["169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[64:ff9b::7f00:1]"]) {
      isKind(yield* fails(`http://${host}:${receiver.port}/`), "refused_address")
    }
    assert.strictEqual(receiver.received.length, 3)
  })
})

describe("SafeHttp and a name whose address changes", () => {
  /** A resolver that returns the receiver's address first, and another one afterwards. */
  const rebinding = (then: string) => {
    let times = 0
    return async () => [times++ === 0 ? "127.0.0.1" : then]
  }

  it.live("connects to the address that was checked: a connection resolves its name once", function* () {
    const receiver = yield* makeReceiver()
    const { post, asked } = yield* safeClient({ resolve: rebinding("169.254.169.254") })
    const url = `http://rebinding.test:${receiver.port}/`
    const statuses = [(yield* post(url)).status, (yield* post(url)).status]
    assert.deepStrictEqual(statuses, [200, 200])
    assert.deepStrictEqual(asked, ["rebinding.test"])
    assert.deepStrictEqual(
      receiver.received.map(({ headers }) => headers.host),
      [`rebinding.test:${receiver.port}`, `rebinding.test:${receiver.port}`],
    )
  })

  it.live("checks again for the next connection", function* () {
    const receiver = yield* makeReceiver()
    const { post, fails, asked } = yield* safeClient({ resolve: rebinding("169.254.169.254") })
    receiver.behave({ status: 200, headers: { connection: "close" } })
    const url = `http://rebinding.test:${receiver.port}/`
    yield* post(url)
    isKind(yield* fails(url), "refused_address")
    assert.strictEqual(asked.length, 2)
    assert.strictEqual(receiver.connections().accepted, 1)
  })

  it.live("tries the checked addresses one after the other, and no others", function* () {
    const receiver = yield* makeReceiver()
    const { post, asked } = yield* safeClient({ resolve: async () => ["::1", "127.0.0.1"] })
    assert.strictEqual((yield* post(`http://two.test:${receiver.port}/`)).status, 200)
    assert.deepStrictEqual(asked, ["two.test"])
  })
})
