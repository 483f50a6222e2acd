import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { outcomeOf } from "../../domain/support.ts"
import { toStoredJson } from "../../fakes/storedJson.ts"
import { eventsOf } from "./events.ts"
import { insertOrg } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  completed,
  deliveriesOf,
  endpointsOf,
  epoch,
  failed,
  findJob,
  finish,
  insertEndpoint,
  insertJob,
  insertReceiver,
  makeEvent,
  plus,
  removeEndpoint,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

const atOnce = { concurrency: "unbounded" } as const

/** The contract of every backend when other writes happen while a job ends. */
export const outboxRaces = (it: It) => {
  it.effect("races: twenty completions at once create one event, and all succeed", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertEndpoint(orgId)
    const jobId = yield* insertJob(orgId)
    yield* Effect.forEach(
      Array.from({ length: 20 }, (_, n) => n),
      (n) => finish(orgId, jobId, completed(n), now),
      { ...atOnce, discard: true },
    )
    const [event, ...others] = yield* eventsOf(jobId)
    assert.deepStrictEqual(others, [])
    assert.deepStrictEqual(toStoredJson(JSON.parse(event!).result), (yield* findJob(orgId, jobId)).result)
    assert.strictEqual((yield* deliveriesOf(orgId)).length, 1)
  })

  it.effect("races: of a completion and a failure at once, one wins", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertEndpoint(orgId)
    for (let n = 0; n < 10; n++) {
      const jobId = yield* insertJob(orgId)
      const outcomes = yield* Effect.forEach(
        n % 2 === 0 ? [completed(), failed()] : [failed(), completed()],
        (outcome) => Effect.map(outcomeOf(finish(orgId, jobId, outcome, now)), (_) => [outcome.status, _] as const),
        atOnce,
      )
      const [won, ...others] = outcomes.filter(([, outcome]) => outcome === "ok")
      assert.deepStrictEqual(others, [])
      assert.isTrue(outcomes.some(([, outcome]) => outcome === "Conflict"))
      const { status } = yield* findJob(orgId, jobId)
      assert.strictEqual(status, won![0])
      const [event, ...more] = yield* eventsOf(jobId)
      assert.deepStrictEqual([JSON.parse(event!).status, more], [status, []])
      assert.strictEqual((yield* deliveriesOf(orgId, { job_id: jobId })).length, 1)
    }
  })

  it.effect("races: an endpoint that ends while jobs finish has no pending deliveries", function* () {
    const now = epoch()
    for (let n = 0; n < 10; n++) {
      const { orgId, endpoint } = yield* insertReceiver(now, 1)
      const other = yield* insertEndpoint(orgId)
      const jobs = yield* Effect.replicateEffect(insertJob(orgId), 6)
      const end =
        n % 2 === 0
          ? removeEndpoint(orgId, endpoint, plus(now, 1))
          : updateEndpoint(orgId, endpoint, plus(now, 1), { active: false })
      const finishing = jobs.map((jobId) => finish(orgId, jobId, completed(), now))
      yield* Effect.all([...finishing.slice(0, 3), end, ...finishing.slice(3)], { ...atOnce, discard: true })
      const states = yield* statesOf(orgId, { webhook_endpoint_id: endpoint })
      assert.notInclude(states, "pending")
      // Events from before the end have deliveries, and so do those that an inactive endpoint missed.
      assert.isTrue(n % 2 === 0 ? states.length >= 1 : states.length === 7, states.join())
      assert.deepStrictEqual(yield* statesOf(orgId, { webhook_endpoint_id: other }), Array(6).fill("pending"))
    }
  })

  it.effect("races: an endpoint that is activated while jobs finish loses no delivery", function* () {
    const now = epoch()
    const { orgId } = yield* insertOrg()
    const endpoint = yield* insertEndpoint(orgId, { active: false })
    const events = Array.from({ length: 6 }, () => makeEvent(orgId, now))
    const on = updateEndpoint(orgId, endpoint, now, { active: true })
    yield* Effect.all([...events.slice(0, 3), on, ...events.slice(3)], { ...atOnce, discard: true })
    const states = yield* statesOf(orgId)
    assert.strictEqual(states.length, 6)
    assert.isTrue(states.every((state) => state === "pending" || state === "skipped"))
    assert.isTrue((yield* endpointsOf(orgId))[0]!.active)
  })
}
