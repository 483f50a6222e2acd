import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { type Service, startService } from "../support/process.ts"
import { makeRestartable, makeTenant, onPostgres } from "./support.ts"

const [jobs, keys, concurrency, perKey] = [400, 40, 25, 2]

interface Seen {
  readonly all: number
  readonly ofKey: number
  readonly ended: number
}

interface Answer {
  readonly jobs?: ReadonlyArray<{ readonly job_id: string; readonly attempt: number }>
}

describe("limits of a workflow under kill -9", () => {
  it.live(
    "never more run than the limits while replicas are killed and leases are lost, and all jobs end",
    function* () {
      const url = yield* freshPostgres()
      const { environment } = onPostgres(url)
      const [one, other] = [yield* makeRestartable(environment), yield* startService(environment)]
      const tenant = yield* makeTenant(() => other)
      yield* tenant.call("workflows/set", { workflow: "w", concurrency, concurrency_per_key: perKey })
      const some = Array.from({ length: jobs }, (_, n) => ({
        workflow: "w",
        concurrency_key: `key ${n % keys}`,
        max_attempts: 20,
      }))
      yield* tenant.call("jobs/create-batch", { jobs: some })

      const sql = yield* adminClient(url)
      const seen = { most: 0, mostOfKey: 0, ended: 0 }
      const watch = Effect.gen(function* () {
        const [row] = yield* sql<Seen>`
          SELECT coalesce(sum(n), 0)::int AS all, coalesce(max(n), 0)::int AS "ofKey",
            (SELECT count(*)::int FROM finished_jobs) AS ended
          FROM (SELECT count(*) AS n FROM jobs WHERE status = 'running' GROUP BY concurrency_key) AS running`
        seen.most = Math.max(seen.most, row!.all)
        seen.mostOfKey = Math.max(seen.mostOfKey, row!.ofKey)
        seen.ended = row!.ended
      }).pipe(Effect.delay("5 millis"), Effect.forever)

      /** Sends a request; a service that was killed gives no answer. */
      const send = (service: Service, path: string, json: object): Effect.Effect<Answer> =>
        service.send("POST", `/v1/${path}`, { json, headers: { "x-api-key": tenant.key } }).pipe(
          Effect.map((answer) => answer.json as Answer),
          Effect.catchCause(() => Effect.succeed({})),
        )
      // A worker that loses one claim in five: its process was killed, and its lease of a second runs out.
      let claims = 0
      const work = (n: number) =>
        Effect.gen(function* () {
          while (seen.ended < jobs) {
            const service = n % 2 === 0 ? one.current() : other
            const ask = (path: string, json: object) => send(service, path, json)
            const claimed = yield* ask("jobs/claim", { workflow: "w", limit: 1 + (n % 4), lease_seconds: 1 })
            for (const { attempt, job_id } of claimed.jobs ?? []) {
              if (claims++ % 5 === 0) continue
              yield* ask("jobs/complete", { job_id, attempt })
            }
            if ((claimed.jobs ?? []).length === 0) yield* Effect.sleep("20 millis")
          }
        })
      const kills = Effect.gen(function* () {
        for (let n = 0; n < 3; n++) {
          yield* Effect.sleep("1 second")
          yield* Effect.suspend(() => one.current().end("SIGKILL"))
          yield* one.restart
        }
      })
      yield* Effect.race(
        watch,
        Effect.all([kills, ...Array.from({ length: 12 }, (_, n) => work(n))], { concurrency: "unbounded" }),
      ).pipe(Effect.timeout("100 seconds"))
      assert.isAtMost(seen.most, concurrency)
      assert.isAtMost(seen.mostOfKey, perKey)
      // The limits were reached.
      assert.isAbove(seen.most, concurrency / 2)
      const [left] = yield* sql<{ unfinished: number; completed: number }>`
        SELECT (SELECT count(*)::int FROM jobs) AS unfinished,
          (SELECT count(*)::int FROM finished_jobs WHERE status = 'completed') AS completed`
      assert.deepStrictEqual(left, { unfinished: 0, completed: jobs })
    },
  )
})
