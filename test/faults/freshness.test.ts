import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { type Service, startService } from "../support/process.ts"
import { proxied } from "../support/proxy.ts"
import { onPostgres, until } from "./support.ts"
import { slowness } from "../support/slowness.ts"

/** The bound that docs/keys.md states, in milliseconds. */
const boundMillis = 3_000
const rounds = 30
/** Replicas that are paused or cut off at the same time; each goes through its share of the rounds. */
const replicaCount = 5

/** An answer of a replica to a request that was sent after the key was revoked. */
interface Answer {
  readonly what: "validation" | "sign-in"
  /** Milliseconds after the answer that the key was revoked. */
  readonly sentAt: number
  readonly status: number
}

/** Revokes keys at a replica that runs, in three ways. */
const makeKeys = Effect.fnUntraced(function* ({ send }: Service) {
  const { orgId } = (yield* send("POST", "/api/v0/orgs", { json: { name: "o" } })).json as { orgId: string }
  return Effect.fnUntraced(function* (round: number) {
    const isOwnOrg = round % 3 === 2
    const own = (yield* send("POST", "/api/v0/orgs", { json: { name: "o" } })).json as { orgId: string }
    const org = isOwnOrg ? own.orgId : orgId
    const made = yield* send("POST", `/api/v0/orgs/${org}/keys`, { json: { name: "k" } })
    const { id, key } = made.json as { id: string; key: string }
    const path = `/api/v0/orgs/${org}/keys/${id}`
    const revoke =
      round % 3 === 0
        ? send("DELETE", path)
        : round % 3 === 1
          ? send("PATCH", path, { json: { enabled: false } })
          : send("DELETE", `/api/v0/orgs/${org}`)
    return { key, revoke: Effect.map(revoke, ({ status }) => assert.strictEqual(status, 200)) }
  })
})

const validate = ({ send }: Service, key: string) =>
  Effect.map(send("POST", "/api/v0/keys/validate", { json: { key } }), ({ status }) => status)
const signIn = ({ send }: Service, key: string) =>
  Effect.map(send("POST", "/api/v0/sessions", { as: key, json: {} }), ({ status }) => status)

/** Waits until the replica answers validations of the key from memory. */
const untilCached = (replica: Service, key: string) =>
  Effect.gen(function* () {
    const fromMemory = Effect.map(replica.send("GET", "/metrics"), ({ text }) =>
      Number(/^gatehouse_key_validations_total\{outcome="valid",source="memory"\} (\d+)/m.exec(text)?.[1]),
    )
    const isCached = Effect.gen(function* () {
      const before = yield* fromMemory
      assert.strictEqual(yield* validate(replica, key), 200)
      return (yield* fromMemory) > before
    })
    yield* Effect.repeat(isCached, { until: (is) => is })
  }).pipe(Effect.timeout("30 seconds"))

/**
 * Revokes a key while a replica is in trouble, and sends requests to the replica until a while after the bound. Returns
 * the answers.
 */
const round = Effect.fnUntraced(function* (
  replica: Service,
  { key, revoke }: { readonly key: string; readonly revoke: Effect.Effect<void, Error> },
  trouble: {
    readonly begin: Effect.Effect<void>
    readonly end: Effect.Effect<void>
    readonly lastsMillis: number
  },
) {
  yield* untilCached(replica, key)
  yield* trouble.begin
  yield* revoke
  const revokedAt = performance.now()
  const since = () => performance.now() - revokedAt
  const answers: Array<Answer> = []
  let waiting = 0
  const ask = (what: Answer["what"], request: Effect.Effect<number, Error>) =>
    Effect.suspend(() => {
      const sentAt = since()
      waiting++
      return request.pipe(
        Effect.map((status) => answers.push({ what, sentAt, status })),
        Effect.ensuring(Effect.sync(() => waiting--)),
      )
    }).pipe(Effect.forkScoped)
  const askBoth = Effect.andThen(ask("validation", validate(replica, key)), ask("sign-in", signIn(replica, key)))
  const asking = Effect.repeat(Effect.andThen(askBoth, Effect.sleep("100 millis")), {
    until: () => since() > Math.max(trouble.lastsMillis, boundMillis) + 600,
  })
  const ending = Effect.andThen(Effect.sleep(trouble.lastsMillis), trouble.end)
  yield* Effect.all([asking, ending], { concurrency: 2 })
  yield* until(() => waiting === 0)
  return answers
})

/**
 * Goes through all rounds, each replica through its share of them. Asserts that nothing was accepted later than the
 * bound.
 */
const goThrough = Effect.fnUntraced(function* <A, E, R>(
  replicas: ReadonlyArray<A>,
  roundOf: (replica: A, number: number) => Effect.Effect<ReadonlyArray<Answer>, E, R>,
) {
  const turns = Array.from({ length: rounds / replicaCount }, (_, turn) => turn)
  const all = yield* Effect.forEach(
    replicas,
    (replica, n) => Effect.forEach(turns, (turn) => Effect.scoped(roundOf(replica, turn * replicaCount + n))),
    { concurrency: "unbounded" },
  )
  const answers = all.flat(2)
  assert.isAbove(answers.filter(({ sentAt }) => sentAt > boundMillis).length, rounds)
  const accepted = answers.filter(({ status }) => status === 200)
  const late = accepted.filter(({ sentAt }) => sentAt > boundMillis)
  assert.deepStrictEqual(late, [])
  const latest = Math.round(Math.max(0, ...accepted.map(({ sentAt }) => sentAt)))
  yield* Effect.log(
    `${accepted.length} of ${answers.length} requests were accepted, the last one sent ${latest} ms after the revocation`,
  )
})

const options = { timeout: 300_000 * slowness, retry: 0 }

describe("a key that is revoked while a replica", () => {
  // Seen failing with a memory that answers while it is connected.
  /**
   * Promise (Deleted keys): A replica that is paused (SIGSTOP), or cut off with open connections, accepts no deleted
   * or disabled key, no key of a deleted org, and no sign-in with one, later than three seconds after the response.
   */
  it.live(
    "is paused (SIGSTOP) is refused there later than three seconds afterwards",
    function* () {
      const { environment } = onPostgres(yield* freshPostgres())
      const newKey = yield* makeKeys(yield* startService(environment))
      const replicas = yield* Effect.replicateEffect(startService(environment), replicaCount, { concurrency: 2 })
      yield* goThrough(
        replicas,
        Effect.fnUntraced(function* (replica, number) {
          const isShort = number % 2 === 0
          const answers = yield* round(replica, yield* newKey(number), {
            begin: Effect.sync(() => replica.signal("SIGSTOP")),
            end: Effect.sync(() => replica.signal("SIGCONT")),
            lastsMillis: isShort ? 1_500 : boundMillis + 100,
          })
          // After a pause that is longer than the bound, also what was sent during the pause is refused.
          if (!isShort) assert.notInclude([...new Set(answers.map(({ status }) => status))], 200)
          return answers
        }),
      )
    },
    options,
  )

  // Seen failing with a memory that answers until four seconds without an answer have ended the connection.
  /** Promise (Deleted keys) */
  it.live(
    "is cut off, its connections open and silent, is refused there later than three seconds afterwards",
    function* () {
      const url = yield* freshPostgres()
      const newKey = yield* makeKeys(yield* startService(onPostgres(url).environment))
      const replicas = yield* Effect.replicateEffect(
        Effect.gen(function* () {
          const proxy = yield* proxied(url)
          return { proxy, replica: yield* startService(onPostgres(proxy.url).environment) }
        }),
        replicaCount,
        { concurrency: 2 },
      )
      yield* goThrough(
        replicas,
        Effect.fnUntraced(function* ({ proxy, replica }, number) {
          const isPaused = number % 2 === 0
          return yield* round(replica, yield* newKey(number), {
            // Only the connection that listens, or all of them while the process is paused.
            begin: isPaused
              ? Effect.andThen(
                  Effect.sync(() => replica.signal("SIGSTOP")),
                  proxy.silence,
                )
              : proxy.mute("gatehouse notifications"),
            end: isPaused
              ? Effect.andThen(
                  Effect.sync(() => replica.signal("SIGCONT")),
                  Effect.delay(proxy.heal, "2 seconds"),
                )
              : Effect.void,
            lastsMillis: isPaused ? 2_000 : boundMillis,
          })
        }),
      )
    },
    options,
  )
})
