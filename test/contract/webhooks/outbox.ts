import { assert } from "@effect/vitest"
import { DateTime } from "effect"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { toStoredJson } from "../../fakes/storedJson.ts"
import { eventsOf } from "./events.ts"
import { awkwardJson } from "../jobs/jobs.ts"
import { awkwardTexts, failureOf, insertOrg, newId } from "../support.ts"
import type { It } from "./webhookSupport.ts"
import {
  completed,
  deliveriesOf,
  epoch,
  failed,
  findDelivery,
  findJob,
  failExpired,
  finish,
  insertEndpoint,
  insertJob,
  nonce,
  noSuchJob,
  otherOutcome,
  plus,
} from "./webhookSupport.ts"

const callback = { callbackUrl: "https://example.com/cb", callbackSecret: "stored secret" }

/** The contract of the end of a job in every JobRepository: the outbox. */
export const outbox = (it: It) => {
  it.effect(
    "outbox: a finished job has its outcome, one event, and a delivery to each endpoint that is due at once",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const endpoints = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId, { active: false })]
      const cases = [
        [completed({ rows: 3 }), { result: { rows: 3 }, error: null, mapped_stack: null }],
        [failed("boom", [1]), { result: null, error: "boom", mapped_stack: [1] }],
      ] as const
      for (const [outcome, fields] of cases) {
        const { status } = outcome
        const jobId = yield* insertJob(orgId, { deploymentId: "d" })
        yield* JobRepository.use((jobs) =>
          jobs.claim(orgId, { workflows: undefined, limit: 1, now, leaseUntil: plus(now, 60) }),
        )
        yield* finish(orgId, jobId, outcome, plus(now, 9))
        const { lease_expires_at, updated_at, finished_at, attempt, ...job } = yield* findJob(orgId, jobId)
        assert.deepStrictEqual(
          [lease_expires_at, updated_at, finished_at, attempt],
          [null, plus(now, 9), plus(now, 9), 1],
        )
        assert.deepInclude(job, {
          ...fields,
          status,
          result: toStoredJson(fields.result),
          mapped_stack: toStoredJson(fields.mapped_stack),
        })
        const expected = {
          event: `job.${status}`,
          job_id: jobId,
          nonce,
          workflow: "report",
          deployment_id: "d",
          status,
        }
        const body = JSON.stringify({ ...expected, ...fields })
        assert.deepStrictEqual(yield* eventsOf(jobId), [body])

        const deliveries = (yield* deliveriesOf(orgId, { job_id: jobId })).toReversed()
        const [{ event_id }, { delivery_id: last }] = deliveries as [(typeof deliveries)[0], (typeof deliveries)[0]]
        for (const [n, { delivery_id, ...delivery }] of deliveries.entries()) {
          assert.deepStrictEqual(delivery, {
            event_id,
            job_id: jobId,
            webhook_endpoint_id: endpoints[n]!,
            event: `job.${status}`,
            state: n === 0 ? "pending" : "skipped",
            attempts: 0,
            next_attempt_at: n === 0 ? plus(now, 9) : null,
            last_status: null,
            last_failure: null,
            last_duration_ms: null,
            created_at: plus(now, 9),
            updated_at: plus(now, 9),
          })
          assert.strictEqual((yield* findDelivery(orgId, delivery_id)).payload, body)
        }
        assert.strictEqual(last, deliveries.at(-1)!.delivery_id)
      }
    },
  )

  it.effect("outbox: the same outcome again changes nothing, and the other outcome is refused", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertEndpoint(orgId)
    for (const [first, again, other] of [
      [completed(1), completed(2), failed()],
      [failed("a"), failed("b"), completed()],
    ] as const) {
      const jobId = yield* insertJob(orgId)
      yield* finish(orgId, jobId, first, now)
      const before = [yield* findJob(orgId, jobId), yield* eventsOf(jobId), yield* deliveriesOf(orgId)]
      yield* finish(orgId, jobId, again, plus(now, 1), { nonce: "f".repeat(32) })
      const refused = finish(orgId, jobId, other, plus(now, 1))
      assert.strictEqual(yield* failureOf(refused), otherOutcome)
      const expired = failExpired(orgId, jobId, plus(now, 1))
      if (first.status === "failed") yield* expired
      else assert.strictEqual(yield* failureOf(expired), otherOutcome)
      assert.deepStrictEqual([yield* findJob(orgId, jobId), yield* eventsOf(jobId), yield* deliveriesOf(orgId)], before)
    }
  })

  it.effect(
    "outbox: a job of another org is not found, and the endpoints of an org get no events of others",
    function* () {
      const { orgId } = yield* insertOrg()
      const { orgId: foreign } = yield* insertOrg()
      const now = epoch()
      yield* insertEndpoint(foreign)
      const jobId = yield* insertJob(foreign)
      for (const id of [jobId, yield* newId]) {
        assert.strictEqual(yield* failureOf(finish(orgId, id, completed(), now)), noSuchJob)
      }
      assert.strictEqual((yield* findJob(foreign, jobId)).status, "queued")
      yield* finish(orgId, yield* insertJob(orgId), completed(), now)
      assert.deepStrictEqual([yield* deliveriesOf(foreign), yield* deliveriesOf(orgId)], [[], []])
    },
  )

  it.effect(
    "outbox: the rules decide in their order who receives an event, and the event is always written",
    function* () {
      const { orgId } = yield* insertOrg()
      const now = epoch()
      const active = yield* insertEndpoint(orgId)
      const inactive = yield* insertEndpoint(orgId, { active: false })
      const toEndpoints = [
        [active, "pending"],
        [inactive, "skipped"],
      ]
      const url = { callbackUrl: callback.callbackUrl }
      const cases = [
        [{}, toEndpoints],
        [callback, [[null, "pending"]]],
        [url, toEndpoints],
        [{ callbackSecret: "stored secret" }, toEndpoints],
        [{ skipCallbacks: true }, []],
        [{ ...callback, skipCallbacks: true }, []],
        [{ ...url, skipCallbacks: true }, []],
      ] as const
      for (const [job, expected] of cases) {
        const jobId = yield* insertJob(orgId, job)
        yield* finish(orgId, jobId, completed(), now)
        const deliveries = (yield* deliveriesOf(orgId, { job_id: jobId })).toReversed()
        assert.deepStrictEqual(
          deliveries.map(({ webhook_endpoint_id, state }) => [webhook_endpoint_id, state]),
          expected as typeof toEndpoints,
        )
        assert.strictEqual((yield* eventsOf(jobId)).length, 1)
      }
    },
  )

  it.effect("outbox: any outcome is one text, the same for all receivers", function* () {
    const { orgId } = yield* insertOrg()
    const now: DateTime.Utc = epoch()
    for (let n = 0; n < 3; n++) yield* insertEndpoint(orgId)
    for (const json of [...awkwardJson, ...awkwardTexts]) {
      const jobId = yield* insertJob(orgId)
      yield* finish(orgId, jobId, completed(json), now)
      const [body] = yield* eventsOf(jobId)
      const [{ result }, encoded] = [JSON.parse(body!), new TextEncoder().encode(body)]
      assert.strictEqual(JSON.stringify(result), JSON.stringify(json))
      assert.strictEqual(new TextDecoder("utf-8", { fatal: true }).decode(encoded), body)
      for (const { delivery_id } of yield* deliveriesOf(orgId, { job_id: jobId })) {
        assert.strictEqual((yield* findDelivery(orgId, delivery_id)).payload, body)
      }
    }
  })
}
