import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { slowness } from "../support/slowness.ts"
import { hurried, makeRestartable, makeTenant, onPostgres, until } from "./support.ts"

/**
 * A receiver that records the data and the arrival of each event, and answers after a delay. The arrival is between
 * `earliest` and `at`: a busy process notices several arrivals together.
 */
const makeReceiver = (answerAfterMillis = 0, statusOf: (n: number) => number = () => 200) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const received: Array<{
        readonly path: string
        readonly n: number
        readonly earliest: number
        readonly at: number
      }> = []
      let ticks = [performance.now(), performance.now()] as const
      const clock = setInterval(() => (ticks = [ticks[1], performance.now()]), 5)
      let inFlight = 0
      const most = { inFlight: 0 }
      const server = createServer((request, response) => {
        const [earliest] = ticks
        const at = performance.now()
        most.inFlight = Math.max(most.inFlight, ++inFlight)
        response.once("close", () => inFlight--)
        const chunks: Array<Buffer> = []
        request.on("data", (chunk: Buffer) => chunks.push(chunk))
        request.on("end", async () => {
          const { data } = JSON.parse(Buffer.concat(chunks).toString()) as { data: number }
          received.push({ path: request.url!, n: data, earliest, at })
          if (answerAfterMillis > 0) await sleep(answerAfterMillis)
          response.writeHead(statusOf(received.length)).end()
        })
      })
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
      return { server, clock, received, most, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
    }),
    ({ clock, server }) =>
      Effect.sync(() => {
        clearInterval(clock)
        server.close(() => {})
        server.closeAllConnections()
      }),
  )

/** The lanes that send in order, and the events of each: ORDERED=100x1000 makes more. */
const [lanes, perLane] = (process.env["ORDERED"] ?? "10x300").split("x").map(Number) as [number, number]

/** Waits for so many arrivals, for as long as the test may take. */
const arrived = (receiver: { readonly received: ReadonlyArray<unknown> }, count: number) =>
  Effect.gen(function* () {
    while (receiver.received.length < count) yield* Effect.sleep("20 millis")
  })

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
/** The first arrival of each number, in order of arrival. */
const firsts = (received: ReadonlyArray<{ readonly n: number }>) => [...new Set(received.map(({ n }) => n))]

describe("events of your own", () => {
  /**
   * Promise (Answered is stored): Three times kill -9 while events are published: nothing that was answered is lost,
   * and a key makes one event.
   */
  it.live("three kill -9 while events are published: no answered event is lost", function* () {
    const service = yield* makeRestartable(onPostgres(yield* freshPostgres()).environment)
    const receiver = yield* makeReceiver()
    const tenant = yield* makeTenant(service.current)
    yield* tenant.endpoint(receiver.url)
    let published = 0
    const kills = Effect.gen(function* () {
      for (let kill = 1; kill <= 3; kill++) {
        yield* until(() => published >= kill * 100)
        yield* service.current().end("SIGKILL")
        yield* service.restart
      }
    })
    // `call` repeats a request until it is answered; its idempotency key makes it one event.
    const publishing = Effect.forEach(
      numbers(600),
      (n) =>
        Effect.tap(tenant.call("events/publish", { type: "a.b", data: n, idempotency_key: `${n}` }), () =>
          Effect.sync(() => published++),
        ),
      { concurrency: 16, discard: true },
    )
    yield* Effect.all([publishing, kills], { concurrency: 2 })
    yield* tenant.settled
    assert.sameMembers(firsts(receiver.received), numbers(600))
  })

  /**
   * Promise (Order): `ordered` stays ordered over three times kill -9 of one of two replicas, while receivers fail.
   */
  it.live(
    "an ordered endpoint stays ordered after kill -9 of one of two replicas",
    function* () {
      const { environment } = onPostgres(yield* freshPostgres())
      const service = yield* makeRestartable(environment)
      yield* startService({ ...hurried, ...environment })
      const receiver = yield* makeReceiver(1, (n) => (n % 97 === 0 ? 500 : 200))
      const tenant = yield* makeTenant(service.current)
      for (let lane = 0; lane < lanes; lane++) {
        yield* tenant.call("webhooks/create", { url: `${receiver.url}/${lane}`, signing_secret: "s", ordered: true })
      }
      for (let from = 0; from < perLane; from += 100) {
        const events = numbers(100).map((n) => ({ type: "a.b", data: from + n, idempotency_key: `${from + n}` }))
        yield* tenant.call("events/publish-batch", { events })
      }
      for (let kill = 1; kill <= 3; kill++) {
        yield* arrived(receiver, (kill * lanes * perLane) / 8)
        yield* service.current().end("SIGKILL")
        yield* service.restart
      }
      yield* arrived(receiver, lanes * perLane)
      yield* tenant.settled
      for (let lane = 0; lane < lanes; lane++) {
        const ofLane = receiver.received.filter(({ path }) => path === `/${lane}`)
        assert.deepStrictEqual(firsts(ofLane), numbers(perLane))
      }
    },
    (180_000 + 20 * lanes * perLane) * slowness,
  )

  // Seen failing by the replicas' clocks: 73 in a second, and nothing after the step back.
  /**
   * Promise (Pace): `max_per_second: 50` over three replicas, whose clocks differ by 300 ms and are set back by ten
   * minutes: never more in any second, and most of it is used. A step of the database's clock stops no endpoint.
   */
  it.live(
    "max_per_second: 50 over three replicas whose clocks differ: never exceeded in any second, and mostly used",
    function* () {
      const { environment } = onPostgres(yield* freshPostgres())
      const replicas = yield* Effect.all(
        Array.from({ length: 3 }, () => startService({ ...hurried, ...environment }, { preloaded: true })),
        { concurrency: "unbounded" },
      )
      yield* replicas[1]!.ask({ stepClock: -300 })
      yield* replicas[2]!.ask({ stepClock: 300 })
      const receiver = yield* makeReceiver()
      const tenant = yield* makeTenant(() => replicas[0]!)
      yield* tenant.call("webhooks/create", { url: receiver.url, signing_secret: "s", max_per_second: 50 })
      for (let from = 0; from < 500; from += 100) {
        yield* tenant.call("events/publish-batch", {
          events: numbers(100).map((n) => ({ type: "a.b", data: from + n })),
        })
      }
      yield* until(() => receiver.received.length >= 100)
      for (const replica of replicas) yield* replica.ask({ stepClock: -600_000 })
      yield* until(() => receiver.received.length >= 500)
      const times = receiver.received.map(({ at }) => at).toSorted((a, b) => a - b)
      const certainlyWithin = (start: number) =>
        receiver.received.filter(({ at, earliest }) => earliest >= start && at < start + 1_000).length
      const most = Math.max(...receiver.received.map(({ earliest }) => certainlyWithin(earliest)))
      const average = (times.length - 1) / ((times.at(-1)! - times[0]!) / 1_000)
      yield* Effect.log(`at most ${most} in a second, ${average.toFixed(1)} on average`)
      assert.isAtMost(most, 50)
      // Below the 46.3 that the interval allows, because times that are over are lost while the machine is busy. Seen
      // failing when a late attempt lost the times of all that were prefetched: 13.5 at a load of 35.
      assert.isAtLeast(average, 20)
    },
  )
})
