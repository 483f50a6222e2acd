import { assert, describe } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { onPostgres } from "./support.ts"

/** 100 ms; more on a machine so busy that its validations take long. */
const within100 = (requests: Array<number>) => {
  requests.sort((a, b) => a - b)
  return Math.max(100, 10 * requests[Math.floor(requests.length * 0.98)]!)
}

describe("replicas", () => {
  // Seen failing with four replicas, without the unique index on the default org.
  /**
   * Promise (Start, stop, upgrade): Two or four replicas start together on an empty database: one migrates it, all
   * serve, and there is one default org.
   */
  it.live.each([2, 4])("%i that start at once on an empty database: one migrates it, and all serve", function* (count) {
    const { environment } = onPostgres(yield* freshPostgres("empty"))
    const starts = Array.from({ length: count }, () => startService(environment))
    const replicas = yield* Effect.all(starts, { concurrency: "unbounded" })
    const migrations = replicas.map((replica) => replica.log().match(/Migration 1 applied/g)?.length ?? 0)
    assert.deepStrictEqual(
      migrations.filter((n) => n > 0),
      [1],
    )
    assert.deepStrictEqual(
      replicas.flatMap((replica) => replica.log().match(/"level":"(WARN|ERROR|FATAL)".*/g) ?? []),
      [],
    )
    // All replicas share the default org, which the first project creates.
    const made = yield* Effect.forEach(
      [...replicas, ...replicas],
      (replica) => replica.send("POST", "/api/v0/projects", { json: { name: "p" } }),
      { concurrency: "unbounded" },
    )
    assert.deepStrictEqual(
      made.map(({ status }) => status),
      made.map(() => 200),
    )
    assert.strictEqual(new Set(made.map(({ json }) => (json as { orgId: string }).orgId)).size, 1)
    const ready = yield* Effect.forEach(replicas, (replica) => replica.send("GET", "/readyz"))
    assert.deepStrictEqual(
      ready.map(({ status }) => status),
      replicas.map(() => 200),
    )
  })

  // Seen failing without the notification of the deletion.
  /** Promise (Deleted keys) */
  it.live("the keys of 200 orgs deleted at one replica are refused by the other, p99 within 100 ms", function* () {
    const { environment } = onPostgres(yield* freshPostgres())
    const [one, other] = yield* Effect.all([startService(environment), startService(environment)], {
      concurrency: 2,
    })
    yield* Effect.sleep("2 seconds")
    const [waits, requests]: [Array<number>, Array<number>] = [[], []]
    for (let n = 0; n < 200; n++) {
      const { json } = yield* one.send("POST", "/api/v0/orgs", { json: { name: "o" } })
      const path = `/api/v0/orgs/${(json as { readonly orgId: string }).orgId}`
      const made = yield* one.send("POST", `${path}/keys`, { json: { name: "k" } })
      const { key } = made.json as { readonly key: string }
      const validate = Effect.map(
        other.send("POST", "/api/v0/keys/validate", { json: { key } }),
        ({ status }) => status,
      )
      const [asked, first] = yield* Effect.timed(validate)
      assert.deepStrictEqual([first, yield* validate], [200, 200])
      requests.push(Duration.toMillis(asked))
      yield* one.send("DELETE", path)
      const deleted = performance.now()
      yield* validate.pipe(Effect.repeat({ until: (status) => status !== 200 }), Effect.timeout("5 seconds"))
      waits.push(performance.now() - deleted)
    }
    waits.sort((a, b) => a - b)
    yield* Effect.log(
      `seen by the other replica after ${waits[99]!.toFixed(1)} ms (p50), ${waits[197]!.toFixed(1)} ms (p99)`,
    )
    assert.isBelow(waits[197]!, within100(requests))
  })

  // Seen failing without the notification of the deletion.
  /** Promise (Deleted keys): Another replica refuses a deleted or disabled key: p99 within 100 ms for 200 keys. */
  it.live.each(["deleted", "disabled"])(
    "200 keys %s at one replica are refused by the other, p99 within 100 ms",
    function* (how) {
      const { environment } = onPostgres(yield* freshPostgres())
      const [one, other] = yield* Effect.all([startService(environment), startService(environment)], {
        concurrency: 2,
      })
      const { orgId } = (yield* one.send("POST", "/api/v0/orgs", { json: { name: "o" } })).json as { orgId: string }
      const path = `/api/v0/orgs/${orgId}/keys`
      yield* Effect.sleep("2 seconds")
      const [waits, requests]: [Array<number>, Array<number>] = [[], []]
      for (let n = 0; n < 200; n++) {
        const made = yield* one.send("POST", path, { json: { name: "k" } })
        const { id, key } = made.json as { id: string; key: string }
        const validate = Effect.map(
          other.send("POST", "/api/v0/keys/validate", { json: { key } }),
          ({ status }) => status,
        )
        const [asked, first] = yield* Effect.timed(validate)
        assert.deepStrictEqual([first, yield* validate], [200, 200])
        requests.push(Duration.toMillis(asked))
        yield* how === "deleted"
          ? one.send("DELETE", `${path}/${id}`)
          : one.send("PATCH", `${path}/${id}`, { json: { enabled: false } })
        const deleted = performance.now()
        yield* validate.pipe(Effect.repeat({ until: (status) => status !== 200 }), Effect.timeout("5 seconds"))
        waits.push(performance.now() - deleted)
      }
      waits.sort((a, b) => a - b)
      const [p50, p99, worst] = [waits[99]!, waits[197]!, waits[199]!]
      yield* Effect.log(
        `seen by the other replica after ${p50.toFixed(1)} ms (p50), ${p99.toFixed(1)} ms (p99), ${worst.toFixed(1)} ms (worst)`,
      )
      assert.isBelow(p99, within100(requests))
    },
  )
})
