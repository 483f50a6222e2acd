import { assert, describe } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { makeOidcProvider } from "../support/oidc.ts"
import { startService } from "../support/process.ts"
import { hurried, onPostgres } from "./support.ts"
import { makeWitness } from "./witness.ts"

const hour = 3_600_000
const isoIn = (milliseconds: number) =>
  Effect.map(Clock.currentTimeMillis, (now) => new Date(now + milliseconds).toISOString())

const begin = Effect.gen(function* () {
  const provider = yield* makeOidcProvider()
  const oidc = { GITHUB_OIDC_ISSUER: provider.issuer, OIDC_AUDIENCE: provider.audience }
  const { environment } = onPostgres(yield* freshPostgres())
  // The timeout leaves time for an attempt on a busy machine: a failed attempt would wait for its retry.
  const variables = { ...environment, ...hurried, ...oidc, WEBHOOK_TIMEOUT: "30s" }
  const service = yield* startService(variables, { preloaded: true })
  const witness = yield* makeWitness(() => service)
  const { call, key, orgId } = witness.tenant
  const status = (path: string, json: object, headers: Record<string, string> = {}) =>
    Effect.map(service.send("POST", path, { json, headers }), (answer) => answer.status)
  return {
    witness,
    call,
    /** Steps the service's wall clock by this number of hours. */
    step: (hours: number) => service.ask({ stepClock: hours * hour }),
    jobs: (workflow: string) =>
      Effect.map(call("jobs/list", { workflow, limit: 100 }), ({ jobs }) => jobs.map(({ status }) => status)),
    register: Effect.flatMap(provider.sign(), (token) =>
      status("/api/v0/register-deployment", {}, { authorization: `Bearer ${token}` }),
    ),
    validate: (key: string) => status("/api/v0/keys/validate", { key }, { "x-api-key": witness.tenant.key }),
    /** Validates a wrong key without a credential; such failures have a limit. Returns the status and Retry-After. */
    guess: Effect.map(
      service.send("POST", "/api/v0/keys/validate", { json: { key: `${key}x` } }),
      ({ headers, status }) => ({ status, wait: Number(headers["retry-after"] ?? 0) }),
    ),
    expiring: (milliseconds: number) =>
      Effect.flatMap(isoIn(milliseconds), (expiresAt) =>
        Effect.map(
          service.send("POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k", expiresAt } }),
          ({ json }) => (json as { key: string }).key,
        ),
      ),
  }
})

describe.concurrent("steps of the wall clock", () => {
  // Seen failing with keys that are accepted with any `expiresAt`.
  /**
   * Promise (The clock): The clock steps an hour forward: keys and tokens expire, leases expire, and missed runs come
   * as one. It steps back: nothing runs twice.
   */
  it.live(
    "an hour ahead: keys and leases expire, missed runs create one job together, and everything else continues",
    function* () {
      const { call, expiring, jobs, register, step, validate, witness } = yield* begin
      const key = yield* expiring(hour / 2)
      yield* call("schedules/create", { workflow: "scheduled", cron: "0 * * * *" })
      yield* call("jobs/create", { workflow: "leased" })
      yield* call("jobs/claim", { workflow: "leased", lease_seconds: 600 })
      assert.deepStrictEqual([yield* validate(key), yield* register, yield* jobs("leased")], [200, 200, ["running"]])
      yield* witness.through({
        name: "an hour ahead",
        begin: step(1),
        lasts: "4 seconds",
        end: Effect.void,
        ready: 200,
      })
      assert.deepStrictEqual(
        [yield* validate(key), yield* register, yield* jobs("leased"), yield* jobs("scheduled")],
        [401, 401, ["queued"], ["queued"]],
      )
      // After the step back the key and the tokens are valid again, and nothing runs twice.
      yield* step(-1)
      yield* Effect.sleep("2 seconds")
      assert.deepStrictEqual([yield* validate(key), yield* register, yield* jobs("scheduled")], [200, 200, ["queued"]])
    },
  )

  // Seen failing when failures without a credential were counted by the wall clock: clients were locked out for an
  // hour. Also when deliveries that were due before the step and not claimed waited until the clock had caught up.
  /**
   * Promise (The clock): The clock steps an hour back while deliveries are in flight, prefetched and queued: no lease
   * expires, nothing runs twice, finished jobs are delivered immediately, and rate-limited clients wait a minute
   * instead of an hour.
   */
  it.live(
    "an hour back: no lease expires, nothing runs twice, events are sent at once, and no client is locked out",
    function* () {
      const { call, expiring, guess, jobs, register, step, validate, witness } = yield* begin
      const key = yield* expiring(hour / 2)
      yield* call("schedules/create", { workflow: "scheduled", cron: "0 * * * *" })
      yield* call("jobs/create", { workflow: "leased" })
      yield* call("jobs/claim", { workflow: "leased", lease_seconds: 600 })
      assert.deepStrictEqual([yield* validate(key), yield* register], [200, 200])
      yield* Effect.forEach(Array.from({ length: 600 }), () => guess, { concurrency: 20, discard: true })
      assert.strictEqual((yield* guess).status, 429)
      const { arrived, behaviour, receipts } = witness.verifier
      const stepped = Promise.withResolvers<number>()
      // The receiver delays its answers, so that at the step deliveries are in flight, prefetched, and in the queue.
      const busy = Effect.sync(() => (behaviour.answer = () => stepped.promise)).pipe(
        Effect.andThen(Effect.suspend(() => arrived(receipts.length + 10))),
        Effect.andThen(witness.tenant.finishMany(30)),
      )
      yield* witness.through({
        name: "an hour back",
        begin: busy.pipe(Effect.andThen(step(-1)), Effect.andThen(Effect.sync(() => stepped.resolve(200)))),
        lasts: "4 seconds",
        end: Effect.void,
        ready: 200,
      })
      const { status, wait } = yield* guess
      assert.deepStrictEqual([status, wait <= 60], [429, true])
      assert.deepStrictEqual(
        [yield* validate(key), yield* register, yield* jobs("leased"), yield* jobs("scheduled")],
        // A token from the future is invalid.
        [200, 401, ["running"], []],
      )
    },
  )
})
