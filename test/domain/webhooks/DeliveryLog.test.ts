import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { DeliveryLog } from "#src/domain/webhooks/DeliveryLog.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { WebhookEndpoints } from "#src/domain/webhooks/WebhookEndpoints.ts"
import { it } from "../../support/it.ts"
import { failureOf, unknownId } from "../support.ts"
import { as, makeOrg, services, settle } from "./webhookSupport.ts"

/** An org with an endpoint and a number of events for it. */
const makeReceiver = Effect.fnUntraced(
  function* (orgId: string, events: number) {
    yield* makeOrg(orgId)
    const [endpoints, jobs] = [yield* WebhookEndpoints, yield* Jobs]
    const { webhook_endpoint_id: id } = yield* endpoints.create({ url: "https://example.com", signing_secret: "s" })
    for (let n = 0; n < events; n++) {
      yield* jobs.complete({ job_id: (yield* jobs.create({ workflow: "w" })).jobId })
      yield* TestClock.adjust("1 second")
    }
    return id
  },
  (effect, orgId) => as(orgId)(effect),
)
const log = DeliveryLog.use(Effect.succeed)
/** Whether the effect wakes the delivery worker, or the sweeps. */
const wakes = Effect.fnUntraced(function* <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  which: "onDeliveries" | "onSweeps" = "onDeliveries",
) {
  const wakeups = yield* Wakeups
  const woken = yield* Effect.forkChild(Stream.runHead<void, never, never>(wakeups[which]))
  yield* settle
  yield* effect
  yield* settle
  const isWoken = woken.pollUnsafe() !== undefined
  yield* Fiber.interrupt(woken)
  return isWoken
})

describe("DeliveryLog", () => {
  it.effect("lists in pages, newest first, and returns each with its payload and attempts", () =>
    Effect.gen(function* () {
      yield* makeReceiver("o", 3)
      const { list, get } = yield* log
      const first = yield* list({ limit: 2 })
      assert.deepStrictEqual([first.deliveries.length, first.next_cursor], [2, first.deliveries[1]!.delivery_id])
      const last = yield* list({ limit: 2, cursor: first.next_cursor! })
      assert.deepStrictEqual([last.deliveries.length, last.next_cursor], [1, null])
      assert.deepStrictEqual((yield* list({ limit: 9, state: "failed" })).deliveries, [])
      const [delivery] = last.deliveries
      const detail = yield* get(delivery!.delivery_id)
      assert.deepInclude(detail, delivery!)
      assert.strictEqual(JSON.parse(detail.payload).job_id, delivery!.job_id)
      assert.deepStrictEqual(detail.attempt_log, [])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("retry makes a delivery due now, and wakes the worker; recover starts a resend, and wakes the sweeps", () =>
    Effect.gen(function* () {
      const endpoint = yield* makeReceiver("o", 3)
      const [endpoints, { list, get, retry, recover }] = [yield* WebhookEndpoints, yield* log]
      yield* endpoints.update({ id: endpoint, active: false })
      yield* endpoints.update({ id: endpoint, active: true })
      const [newest] = (yield* list({ limit: 1 })).deliveries
      yield* TestClock.adjust("1 hour")
      const now = yield* DateTime.now
      assert.isTrue(yield* wakes(retry(newest!.delivery_id)))
      assert.deepInclude(yield* get(newest!.delivery_id), { state: "pending", next_attempt_at: now })
      // Recovers one of the two others: the one that was created a second after the first.
      const recovery = recover({ webhook_endpoint_id: endpoint, since: DateTime.makeUnsafe(1000) })
      const recovered = Effect.map(recovery, ({ count }) => assert.strictEqual(count, 1))
      assert.isTrue(yield* wakes(recovered, "onSweeps"))
      const states = (yield* list({ limit: 9 })).deliveries.map(({ state }) => state)
      assert.deepStrictEqual(states, ["pending", "pending", "canceled"])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("finishing a job wakes the worker", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const { jobId: job_id } = yield* jobs.create({ workflow: "w" })
      assert.isTrue(yield* wakes(jobs.fail({ job_id, error: "" })))
      assert.isFalse(yield* wakes(jobs.create({ workflow: "w" })))
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("no org can read or resend a delivery of another org", () =>
    Effect.gen(function* () {
      const endpoint = yield* makeReceiver("a", 1)
      yield* makeOrg("b")
      const { list, get, retry, recover } = yield* log
      const [delivery] = (yield* as("a")(list({ limit: 1 }))).deliveries
      const missing = (what: string) => JSON.stringify({ error: `There is no such ${what}.`, code: "not_found" })
      for (const id of [delivery!.delivery_id, unknownId]) {
        for (const attempt of [Effect.asVoid(get(id)), retry(id)]) {
          assert.strictEqual(yield* failureOf(as("b")(attempt)), missing("delivery"))
        }
      }
      for (const id of [endpoint, unknownId]) {
        const recovered = recover({ webhook_endpoint_id: id, since: DateTime.makeUnsafe(0) })
        assert.strictEqual(yield* failureOf(as("b")(recovered)), missing("webhook endpoint"))
        assert.deepStrictEqual((yield* as("b")(list({ limit: 9, webhook_endpoint_id: id }))).deliveries, [])
      }
    }).pipe(Effect.provide(services())),
  )
})
