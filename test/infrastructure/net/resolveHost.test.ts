import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { createSocket } from "node:dgram"
import { makeResolveHost } from "#src/infrastructure/net/connector.ts"
import { it } from "../../support/it.ts"

interface Zone {
  /** The code of the answer: 0 success, 2 server failure, 3 no such name. */
  readonly code: number
  /** The data of the records. */
  readonly a?: ReadonlyArray<ReadonlyArray<number>>
  readonly aaaa?: ReadonlyArray<ReadonlyArray<number>>
  /** Whether questions for AAAA are dropped. */
  readonly dropsAaaa?: boolean
}

/** A name server (RFC 1035) that answers every question alike, until the scope closes. */
const nameServer = (zone: Zone) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly address: string; readonly close: () => void; readonly asked: () => number }>(
      (resume) => {
        let asked = 0
        const socket = createSocket("udp4", (query, { port }) => {
          asked++
          const end = query.indexOf(0, 12) + 1
          const type = query.readUInt16BE(end)
          if (type === 28 && zone.dropsAaaa === true) return
          const records = (type === 1 ? zone.a : zone.aaaa) ?? []
          const head = Buffer.from([query[0]!, query[1]!, 0x81, 0x80 | zone.code, 0, 1, 0, records.length, 0, 0, 0, 0])
          const answers = records.map((data) =>
            Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, data.length, ...data]),
          )
          socket.send(Buffer.concat([head, query.subarray(12, end + 4), ...answers]), port)
        })
        socket.bind(0, "127.0.0.1", () => {
          const address = `127.0.0.1:${socket.address().port}`
          resume(Effect.succeed({ address, close: () => socket.close(), asked: () => asked }))
        })
      },
    ),
    ({ close }) => Effect.sync(close),
  )

const resolving = Effect.fnUntraced(function* (zone: Zone, askSystemToo = false) {
  const { address, asked } = yield* nameServer(zone)
  const resolve = makeResolveHost({ askSystemToo, nameServers: [address] })
  const attempt = (hostname: string) =>
    Effect.tryPromise({ try: () => resolve(hostname), catch: (error) => (error as { code?: string }).code })
  return { attempt, asked }
})

describe("resolveHost", () => {
  it.live("returns all addresses of both families", function* () {
    const ipv6 = [0x26, 6, 0x47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    const { attempt } = yield* resolving({
      code: 0,
      a: [
        [1, 2, 3, 4],
        [10, 0, 0, 1],
      ],
      aaaa: [ipv6],
    })
    assert.deepStrictEqual(yield* attempt("receiver.example"), ["1.2.3.4", "10.0.0.1", "2606:4700::1"])
  })

  it.live("returns those of one family when the other has none", function* () {
    const { attempt } = yield* resolving({ code: 0, a: [[1, 2, 3, 4]] })
    assert.deepStrictEqual(yield* attempt("receiver.example"), ["1.2.3.4"])
  })

  // Seen failing: each name server was asked twice, and three of them took longer than a delivery may take.
  it.live("does not wait until a name server that drops questions for IPv6 is asked again", function* () {
    const { asked, attempt } = yield* resolving({ code: 0, a: [[1, 2, 3, 4]], dropsAaaa: true })
    assert.deepStrictEqual(yield* attempt("receiver.example"), ["1.2.3.4"])
    assert.strictEqual(asked(), 2)
  })

  it.live("asks the system for names that DNS does not know, where that is allowed", function* () {
    // The system resolves this one without a query: it is an address.
    const strict = yield* resolving({ code: 3 })
    assert.strictEqual(yield* Effect.flip(strict.attempt("127.0.0.1")), "ENOTFOUND")
    const lenient = yield* resolving({ code: 3 }, true)
    assert.deepStrictEqual(yield* lenient.attempt("127.0.0.1"), ["127.0.0.1"])
  })

  it.live("does not ask the system when a name server fails, because that would wait too", function* () {
    const { attempt } = yield* resolving({ code: 2 }, true)
    assert.strictEqual(yield* Effect.flip(attempt("127.0.0.1")), "ESERVFAIL")
  })

  it.live("asks the system for a name without a dot, and no name server", function* () {
    const { attempt, asked } = yield* resolving({ code: 2 })
    assert.include(["127.0.0.1", "::1"], (yield* attempt("localhost"))[0])
    assert.strictEqual(asked(), 0)
  })
})
