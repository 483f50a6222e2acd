import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { crowd } from "./crowd.ts"
import { hurried, onPostgres } from "./support.ts"
import { makeWitness } from "./witness.ts"

/**
 * Promise (Overload): 500 clients that never finish their headers, and 500 that never finish their body, get 408
 * within 40 and 70 seconds and delay nobody.
 */

// Seen failing when headersTimeout and requestTimeout of the listener were 0: they stayed connected for ever.
it.live("clients that never finish their headers or bodies are disconnected, and delay nobody", function* () {
  const service = yield* startService({ ...hurried, ...onPostgres(yield* freshPostgres()).environment })
  const { acts, through } = yield* makeWitness(() => service)
  const head = "POST /api/v0/projects HTTP/1.1\r\nhost: 127.0.0.1\r\n"
  const headers = yield* crowd(service, 500, head, { drip: { text: "x: y\r\n", every: 2_000 } })
  const body = `${head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{`
  const bodies = yield* crowd(service, 500, body, { drip: { text: " ", every: 2_000 } })
  const since = performance.now()
  const gone: Record<string, number> = {}
  const ended = (name: string, { state }: typeof headers) =>
    Effect.repeat(Effect.delay(Effect.void, "100 millis"), { until: () => state.ended === 500 }).pipe(
      Effect.timeout("100 seconds"),
      Effect.map(() => (gone[name] = Math.round((performance.now() - since) / 1000))),
    )
  yield* through({
    name: "slow clients",
    begin: Effect.void,
    lasts: 0,
    end: Effect.all([ended("headers", headers), ended("bodies", bodies)], { concurrency: 2 }),
  })
  for (const answer of [...headers.state.answers, ...bodies.state.answers]) {
    assert.match(answer, /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/)
  }
  const slow = acts.filter(({ took }) => took > 5_000)
  assert.deepStrictEqual(slow.slice(0, 3), [])
  yield* Effect.log(`sent away: headers after ${gone["headers"]} s, bodies after ${gone["bodies"]} s`)
})
