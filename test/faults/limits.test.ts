import { assert, describe } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { freshFolder, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { crowd } from "./crowd.ts"
import { memoryOf, peakMemoryOf } from "./memory.ts"
import { hurried, inFolder, onPostgres, until } from "./support.ts"
import { makeWitness } from "./witness.ts"

const start = (options = {}) =>
  Effect.flatMap(freshPostgres(), (url) => startService({ ...hurried, ...onPostgres(url).environment }, options))

describe("limits", () => {
  // Seen failing without a limit on clients' connections: no file was left for deliveries, which failed permanently.
  /**
   * Promise (Overload): 256 open files and 600 clients: connections above three quarters are refused, and the database
   * and deliveries continue.
   */
  it.live("more connections than 256 open files: the service recovers", function* () {
    const service = yield* start({ maxFiles: 256 })
    const { through } = yield* makeWitness(() => service)
    const { close, state } = yield* crowd(service, 600, "")
    yield* until(() => state.ended > 350)
    yield* through({ name: "out of files", begin: Effect.void, lasts: "6 seconds", end: close, mayBreak: true })
  })

  // Seen failing without a limit on waiting requests: all 5,000 waited, and no 503 had Retry-After.
  /**
   * Promise (Overload): 5,000 writes at once: each is done, or 503 with `Retry-After`. Health answers meanwhile, and
   * the next write is done at once.
   */
  it.live("5,000 writes at once: each is answered, and those above the limit get 503 and Retry-After", function* () {
    const service = yield* start()
    const write = service.send("POST", "/api/v0/projects", { json: { name: "p" } })
    // The first project of an org counts its projects, and the others would wait for that.
    yield* write
    const flood = Effect.all(
      Array.from({ length: 5_000 }, () => write),
      { concurrency: "unbounded" },
    )
    const health = Effect.repeat(Effect.timed(service.send("GET", "/healthz")), { times: 20 })
    const [answers, [slowest]] = yield* Effect.all([flood, Effect.delay(health, "50 millis")], { concurrency: 2 })
    const refused = answers.filter(({ status }) => status !== 200)
    for (const { headers, status } of refused) assert.deepStrictEqual([status, headers["retry-after"]], [503, "1"])
    assert.isNotEmpty(refused.filter(({ text }) => text.includes("Too many requests wait")))
    const [took] = yield* write.pipe(
      Effect.repeat({ until: ({ status }) => status === 200 }),
      Effect.timeout("10 seconds"),
      Effect.timed,
    )
    yield* Effect.log(
      `${5_000 - refused.length} of 5,000 writes done, ${refused.length} refused; ${Math.round(memoryOf(service))} MiB; the next after ${Duration.toMillis(took).toFixed(0)} ms; health within ${Duration.toMillis(slowest).toFixed(0)} ms`,
    )
  })

  // Seen failing at both starts with an engine that V8 optimizes.
  /**
   * Promise (Small machines): A small machine: the embedded database is created in 950 MiB, and opened and used in 550
   * MiB.
   */
  it.live(
    "a small machine: the first start of the embedded database needs 950 MiB at most, and later ones 550",
    function* () {
      const { environment } = inFolder(yield* freshFolder("empty"))
      const peak = Effect.gen(function* () {
        const service = yield* startService(environment)
        yield* Effect.repeat(service.send("POST", "/api/v0/projects", { json: { name: "p" } }), { times: 100 })
        return peakMemoryOf(service)
      }).pipe(Effect.scoped)
      const [made, opened] = [yield* peak, yield* peak]
      yield* Effect.log(`${Math.round(made)} MiB at the first start, ${Math.round(opened)} MiB at the next`)
      assert.isBelow(made, 950)
      assert.isBelow(opened, 550)
    },
  )

  // Seen failing without `endUnusedWhenClosing`: the shutdown waited for connections without a request.
  /** Promise (Overload): 10,000 idle connections: requests are served as before, and SIGTERM ends in 5 seconds. */
  it.live("10,000 idle connections do not affect other clients, and are closed at shutdown", function* () {
    const service = yield* start()
    const before = memoryOf(service)
    const used = yield* crowd(service, 9_000, "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n", { answered: true })
    const unused = yield* crowd(service, 1_000, "")
    yield* until(() => used.state.answered === 9_000 && unused.state.open === 1_000)
    const memory = memoryOf(service) - before
    const took: Array<number> = []
    for (let n = 0; n < 100; n++) {
      const [time, { status }] = yield* Effect.timed(service.send("POST", "/api/v0/projects", { json: { name: "p" } }))
      assert.strictEqual(status, 200)
      took.push(Duration.toMillis(time))
    }
    assert.strictEqual(used.state.ended + unused.state.ended, 0)
    assert.isBelow(memory, 512)
    const end = yield* service.end("SIGTERM")
    assert.strictEqual(end.how, 0)
    assert.isBelow(end.took, 5_000)
    yield* Effect.log(
      `10,000 idle connections: ${memory.toFixed(0)} MiB more; writes within ${Math.max(...took).toFixed(0)} ms, median ${took.toSorted((a, b) => a - b)[50]!.toFixed(1)}; ended in ${end.took.toFixed(0)} ms`,
    )
  })
})
