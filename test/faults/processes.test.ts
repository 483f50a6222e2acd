import { assert, describe } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { setTimeout as sleep } from "node:timers/promises"
import { freshFolder, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { main, startService } from "../support/process.ts"
import { type Passage, proxied } from "../support/proxy.ts"
import { assertDelivered, hurried, makeRestartable, makeTenant, makeVerifier, onPostgres, places } from "./support.ts"
import { makeWitness } from "./witness.ts"

/** The text that identifies a completion on its way to the database. */
const outcome = "the outcome of this job"

/** The points at which the process is killed during a completion, by the data between it and PostgreSQL. */
const points: Record<string, (receiver: string) => ReadonlyArray<Passage>> = {
  "as the outcome leaves for the database, and never arrives": () => [{ from: "client", text: outcome, passes: false }],
  "as the outcome leaves for the database, and arrives": () => [{ from: "client", text: outcome, passes: true }],
  "as the database answers, and the answer never arrives": () => [
    { from: "client", text: outcome, passes: true },
    { from: "server", text: "", passes: false },
  ],
  "between a delivery's claim and its first byte": (receiver) => [{ from: "server", text: receiver, passes: false }],
}

describe.concurrent("kill -9", () => {
  // Seen failing: the first three when a completion was answered before its transaction; the fourth when a claim
  // skipped the deliveries of a dead claim.
  /**
   * Promise (Answered is stored): After kill -9 at any moment of a completion, or between a claim and the first byte
   * of its delivery: an answered completion is there, and repeating it makes no second event.
   */
  it.live.each(Object.entries(points))("%s", function* ([, point]) {
    const url = yield* freshPostgres()
    const proxy = yield* proxied(url)
    const service = yield* makeRestartable(onPostgres(proxy.url).environment)
    const verifier = yield* makeVerifier()
    const tenant = yield* makeTenant(service.current)
    yield* tenant.endpoint(`${verifier.url}/a`)
    const { job_id } = yield* tenant.call("jobs/create", { workflow: "w" })
    const killed = Promise.withResolvers<void>()
    const watch = ([next, ...rest]: ReadonlyArray<Passage>): Effect.Effect<void> =>
      proxy.watch(next!, () => {
        if (rest.length > 0) return Effect.runSync(watch(rest))
        service.current().signal("SIGKILL")
        killed.resolve()
      })
    yield* watch(point(verifier.url))
    const json = { job_id, result: outcome }
    const first = service.current().send("POST", "/v1/jobs/complete", { json, headers: { "x-api-key": tenant.key } })
    const answered = yield* Effect.match(first, { onFailure: () => false, onSuccess: ({ status }) => status === 200 })
    yield* Effect.promise(() => killed.promise)
    // Data in flight arrives before the connections are cut.
    yield* Effect.sleep("100 millis")
    yield* proxy.cut
    const held = yield* onPostgres(url).inFlight
    yield* proxy.heal
    yield* service.restart
    if (answered) assert.strictEqual((yield* tenant.call("jobs/get", { job_id })).status, "completed")
    // Answered or not: the repeated completion is done once.
    yield* tenant.call("jobs/complete", json)
    yield* tenant.settled
    yield* assertDelivered(tenant, verifier.receipts, [job_id], ["/a"], [held])
  })

  // Seen failing on postgres in the same cases.
  /** Promise (Answered is stored): After kill -9 at random under load: nothing that was answered is lost. */
  it.live.each(Object.entries(places))("four times at random under load, on %s", function* ([name, place]) {
    const { environment } = yield* place
    const service = yield* makeRestartable(environment)
    const { through } = yield* makeWitness(service.current)
    const kills = Effect.gen(function* () {
      for (let n = 0; n < 4; n++) {
        yield* Effect.sleep(Math.random() * 500)
        yield* service.current().end("SIGKILL")
        yield* service.restart
      }
    })
    yield* through({ name: `killed, ${name}`, begin: kills, lasts: 0, end: Effect.void, mayBreak: true })
  })

  // Seen failing on the embedded database when it was created in place, instead of in another folder that is renamed:
  // it never started again. On PostgreSQL each migration is one transaction, and no fault was found that breaks it.
  /** Promise (Start, stop, upgrade): After kill -9 during the first start: the next start works. */
  it.live.each([
    ["embedded", Effect.map(freshFolder("empty"), (DATA_DIR) => ({ DATA_DIR }))],
    ["postgres", Effect.map(freshPostgres("empty"), (url) => onPostgres(url).environment)],
  ] as const)("at four moments of the first start, on %s: the next start succeeds", ([, place]) =>
    Effect.gen(function* () {
      const environment: Record<string, string> = yield* place
      // The moments are fractions of the measured time of a first start.
      const another = Effect.flatMap(place, (variables) => startService(variables))
      const whole = Duration.toMillis((yield* Effect.timed(Effect.scoped(another)))[0])
      for (const part of [0.4, 0.55, 0.7, 0.85]) {
        yield* Effect.promise(async () => {
          const env = { PATH: process.env.PATH, PORT: "0", ...environment }
          const child = spawn(process.execPath, [main], { env, stdio: "ignore" })
          await sleep(part * whole)
          child.kill("SIGKILL")
          await once(child, "exit")
        })
      }
      const service = yield* startService({ ...hurried, ...environment })
      assert.strictEqual((yield* service.send("GET", "/readyz")).status, 200)
      assert.strictEqual((yield* service.send("POST", "/api/v0/projects", { json: { name: "p" } })).status, 200)
    }),
  )
})

describe.concurrent("SIGTERM", () => {
  // Seen failing when the stop on request was reported as a failure.
  /**
   * Promise (Start, stop, upgrade): SIGTERM under load ends in 5 seconds with exit code 0, and nothing is delivered
   * twice.
   */
  it.live(
    "under load: accepted requests are answered, the stop takes seconds, and the next process continues",
    function* () {
      const { environment } = yield* places.postgres
      const service = yield* makeRestartable(environment)
      const { through } = yield* makeWitness(service.current)
      const took: Array<number> = []
      const stops = Effect.gen(function* () {
        for (let n = 0; n < 3; n++) {
          yield* Effect.sleep(Math.random() * 500)
          const end = yield* service.current().end("SIGTERM")
          assert.strictEqual(end.how, 0)
          took.push(end.took)
          yield* service.restart
        }
      })
      yield* through({ name: "SIGTERM", begin: stops, lasts: 0, end: Effect.void, mayBreak: true })
      assert.isBelow(Math.max(...took), 5_000)
      yield* Effect.log(`ended within ${Math.max(...took).toFixed(0)} ms`)
    },
  )
})
