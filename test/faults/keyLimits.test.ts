import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { type Service, startService } from "../support/process.ts"
import { encryptionKey } from "../support/server.ts"
import { restartablePostgres } from "./postgres.ts"

const rateLimit = { limit: 200, window: 4 }
const credits = { remaining: 4_000 }
const windowMillis = rateLimit.window * 1000

interface Answer {
  readonly key: string
  readonly sentAt: number
  readonly endedAt: number
  /** 0 means that no answer came. */
  readonly status: number
}

interface Keys {
  readonly path: string
  readonly limited: ReadonlyArray<string>
  readonly withCredits: ReadonlyArray<string>
}

const makeKeys = Effect.fnUntraced(function* ({ send }: Service, count: number) {
  const { orgId } = (yield* send("POST", "/api/v0/orgs", { json: { name: "o" } })).json as { orgId: string }
  const path = `/api/v0/orgs/${orgId}/keys`
  const make = (settings: object) =>
    Effect.forEach(
      Array.from({ length: count }, () => settings),
      (json) =>
        Effect.map(send("POST", path, { json: { name: "k", ...json } }), (made) => made.json as { key: string }),
      { concurrency: 8 },
    ).pipe(Effect.map((made) => made.map(({ key }) => key)))
  return { path, limited: yield* make({ rateLimit }), withCredits: yield* make({ rateLimit, credits }) }
})

/** Validates all keys in turn at all replicas for some seconds, with more clients than the limits allow. */
const callers = Effect.fnUntraced(function* (replicas: () => ReadonlyArray<Service>, keys: Keys, seconds: number) {
  const answers: Array<Answer> = []
  const all = [...keys.limited, ...keys.withCredits]
  const end = performance.now() + seconds * 1000
  let turn = 0
  const call = Effect.gen(function* () {
    const key = all[turn++ % all.length]!
    const alive = replicas()
    const { send } = alive[turn % alive.length]!
    const sentAt = performance.now()
    const status = yield* send("POST", "/api/v0/keys/validate", { json: { key } }).pipe(
      Effect.map((answer) => answer.status),
      Effect.catchCause(() => Effect.succeed(0)),
    )
    answers.push({ key, sentAt, endedAt: performance.now(), status })
  })
  const caller = Effect.repeat(call, { until: () => performance.now() > end })
  yield* Effect.replicateEffect(caller, 24, { concurrency: "unbounded", discard: true })
  return answers
})

/**
 * Asserts that no window has twice the limit, and that the whole time has no more than the limit allows. Returns the
 * number of valid uses.
 */
const assertWithinLimit = (answers: ReadonlyArray<Answer>) => {
  const valid = answers.filter(({ status }) => status === 200).sort((a, b) => a.sentAt - b.sentAt)
  for (const [from, { sentAt }] of valid.entries()) {
    // A use that was sent and answered within the window certainly happened in it.
    const within = valid.slice(from).filter(({ endedAt }) => endedAt < sentAt + windowMillis)
    assert.isBelow(within.length, 2 * rateLimit.limit)
  }
  const [first, last] = [Math.min(...valid.map((_) => _.sentAt)), Math.max(...valid.map((_) => _.endedAt))]
  const allowed = rateLimit.limit * (1 + (last - first) / windowMillis)
  assert.isAtMost(valid.length, allowed)
  return { valid: valid.length, allowed }
}

const check = (answers: ReadonlyArray<Answer>, keys: Keys) => {
  const byKey = Map.groupBy(answers, ({ key }) => key)
  const statuses = [...new Set(answers.map(({ status }) => status))].sort()
  const limited = keys.limited.map((key) => assertWithinLimit(byKey.get(key)!))
  for (const key of keys.withCredits) {
    const { valid } = assertWithinLimit(byKey.get(key)!)
    assert.isAtMost(valid, credits.remaining)
  }
  const allowed = limited.reduce((sum, one) => sum + one.allowed, 0)
  const asked = keys.limited.reduce((sum, key) => sum + byKey.get(key)!.length, 0)
  const share = limited.reduce((sum, one) => sum + one.valid, 0) / allowed
  // A machine that is too busy to ask for twice what is allowed reaches a smaller share.
  const demand = Math.min(1, asked / allowed / 2)
  return { statuses, share, demand, most: Math.max(...limited.map(({ valid }) => valid)) }
}

const threeReplicas = (environment: Readonly<Record<string, string>>) =>
  Effect.replicateEffect(startService(environment), 3, { concurrency: 3 })

describe("limits of keys over three replicas", () => {
  // Fails if leased units drain at once, or if leased quotas are used past their lifetime.
  /**
   * Promise (Limits of keys): Limits of keys over three replicas: never more than allowed, and 95 % of burst and flow
   * are given.
   */
  it.live("never allow more than the limit, and at least 95 % of it", function* () {
    const environment = { DATABASE_URL: yield* freshPostgres(), ENCRYPTION_KEY: encryptionKey }
    const replicas = yield* threeReplicas(environment)
    const keys = yield* makeKeys(replicas[0]!, 2)
    const answers = yield* callers(() => replicas, keys, 20)
    const { demand, share, statuses } = check(answers, keys)
    yield* Effect.log(`${(share * 100).toFixed(1)} % of ${answers.length} validations' limits were given`)
    assert.isTrue(statuses.every((status) => [200, 429].includes(status)))
    assert.isAtLeast(share, 0.95 * demand)
  })

  // Fails if a leased quota is kept after its lease failed.
  /**
   * Promise (Limits of keys): They hold across kill -9 of a replica and a restart of PostgreSQL; at most 1 % of the
   * credits are lost.
   */
  it.live(
    "hold after kill -9 of a replica and a restart of PostgreSQL, and lose at most 1 % of the credits",
    function* () {
      const postgres = yield* restartablePostgres
      const replicas = yield* threeReplicas({ DATABASE_URL: postgres.url, ENCRYPTION_KEY: encryptionKey })
      let alive: ReadonlyArray<Service> = replicas
      const keys = yield* makeKeys(replicas[0]!, 2)
      const faults = Effect.gen(function* () {
        yield* Effect.sleep("4 seconds")
        const [dead, ...others] = replicas
        yield* dead!.end("SIGKILL")
        alive = others
        yield* Effect.sleep("2 seconds")
        yield* postgres.stop
        yield* Effect.sleep("1 second")
        yield* postgres.start
      })
      const [answers] = yield* Effect.all([callers(() => alive, keys, 14), faults], { concurrency: 2 })
      const { demand, share, statuses } = check(answers, keys)
      yield* Effect.log(`${(share * 100).toFixed(1)} % of the limits were given across the faults`)
      assert.isTrue(statuses.every((status) => [0, 200, 429, 503].includes(status)))
      // Less the pause of the database, and the units that died with the replica.
      assert.isAtLeast(share, 0.6 * demand)

      // Both replicas return their leased quotas.
      for (const one of alive) yield* one.end("SIGTERM")
      const last = yield* startService({ DATABASE_URL: postgres.url, ENCRYPTION_KEY: encryptionKey })
      const listed = (yield* last.send("GET", `${keys.path}?limit=100`)).json as {
        keys: ReadonlyArray<{ prefix: string; credits: { remaining: number } | null }>
      }
      const byKey = Map.groupBy(answers, ({ key }) => key)
      for (const key of keys.withCredits) {
        const own = byKey.get(key)!
        const valid = own.filter(({ status }) => status === 200).length
        // These uses may or may not have taken units.
        const unknown = own.filter(({ status }) => status === 0 || status === 503).length
        const left = listed.keys.find(({ prefix }) => key.startsWith(prefix))!.credits!.remaining
        assert.isAtMost(valid + left, credits.remaining)
        assert.isAtLeast(valid + left + unknown, credits.remaining * 0.97)
      }
    },
  )
})
