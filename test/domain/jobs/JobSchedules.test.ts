import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Fiber, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { Cipher } from "#src/domain/Cipher.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { JobSchedules } from "#src/domain/jobs/JobSchedules.ts"
import { toStoredJson } from "../../fakes/storedJson.ts"
import { it } from "../../support/it.ts"
import { failureOf, unknownId } from "../support.ts"
import { as, makeOrg, services, settle } from "../webhooks/webhookSupport.ts"

const create = (input: Parameters<JobSchedules["Service"]["create"]>[0]) =>
  JobSchedules.use((schedules) => schedules.create(input))
const listed = JobSchedules.use((schedules) => Effect.map(schedules.list(), (page) => page.schedules))
const runDue = JobSchedules.use((schedules) => schedules.runDue)
const refusal = (error: string) => JSON.stringify({ error, code: "invalid_request" })

describe("JobSchedules", () => {
  it.effect("a schedule is in UTC and has no input by default, and its next run follows the clock", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const schedule_id = yield* create({ workflow: "w", cron: "0 4 * * *" })
      assert.deepStrictEqual(yield* listed, [
        {
          schedule_id,
          workflow: "w",
          cron: "0 4 * * *",
          timezone: "UTC",
          input: null,
          deployment_id: null,
          callback_url: null,
          skip_callbacks: false,
          concurrency_key: null,
          expires_in_seconds: null,
          priority: 0,
          max_attempts: 3,
          retry_delay_seconds: 10,
          overlap: "allow",
          active: true,
          next_at: DateTime.makeUnsafe("1970-01-01T04:00:00Z"),
          created_at: DateTime.makeUnsafe(0),
        },
      ])
      const berlin = yield* create({ workflow: "w", cron: "0 4 * * *", timezone: "Europe/Berlin" })
      const found = (yield* listed).find((one) => one.schedule_id === berlin)!
      assert.deepStrictEqual(found.next_at, DateTime.makeUnsafe("1970-01-01T03:00:00Z"))
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("an invalid cron, zone or callback is refused by name, and nothing is stored", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const valid = { workflow: "w", cron: "* * * * *" }
      for (const [input, sentence] of [
        [{ cron: "0 0 30 2 *" }, "cron names dates that never come."],
        [{ cron: "nonsense" }, "cron must have five fields, or six with seconds first; it has 1."],
        [
          { timezone: "Mars/Base" },
          "timezone must be an IANA time zone, as in Europe/Berlin, or an offset of at most 14 hours, as in +05:30.",
        ],
        [{ callback_url: "http://example.com" }, "callback_url must be an https URL."],
        [
          { callback_url: "https://0x7f000001" },
          "callback_url must not have a private, reserved or special address as its host.",
        ],
      ] as const) {
        assert.strictEqual(yield* failureOf(create({ ...valid, ...input })), refusal(sentence))
      }
      assert.deepStrictEqual(yield* listed, [])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect(
    "a run creates a job and wakes a waiting claim, and its callback's secret is encrypted for the schedule",
    () =>
      Effect.gen(function* () {
        yield* makeOrg("o")
        const jobs = yield* Jobs
        const callback = { callback_url: "https://example.com/cb", callback_secret: "plain" }
        yield* create({ workflow: "w", cron: "* * * * *", input: { n: 1 }, deployment_id: "d", ...callback })
        yield* TestClock.adjust("59 seconds")
        yield* runDue
        const claiming = yield* Effect.forkChild(jobs.claim({ wait_seconds: 30 }))
        yield* settle
        assert.isUndefined(claiming.pollUnsafe())
        yield* TestClock.adjust("1 second")
        yield* runDue
        const [job] = yield* Fiber.join(claiming)
        assert.deepInclude(job, { workflow: "w", input: toStoredJson({ n: 1 }), deployment_id: "d" })
        yield* runDue
        assert.strictEqual((yield* jobs.list({ limit: 10 })).jobs.length, 1)

        yield* jobs.complete({ job_id: job!.job_id })
        const now = yield* DateTime.now
        const { claim } = yield* DeliveryQueue
        const shares = {
          laneCap: 1,
          lanes: new Map(),
          free: { count: 9, bytes: 1_000 },
          reserve: 1,
          minBacklog: 1,
          orgs: new Map(),
        }
        const { deliveries } = yield* claim({ claimId: "c", now, leaseUntil: now, limit: 1, ...shares })
        const [delivery] = deliveries
        const { stored, owner } = delivery!.secrets[0]!
        assert.strictEqual(Redacted.value(yield* (yield* Cipher).decrypt(stored, owner)), "plain")
      }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("no org can read or delete a schedule of another org", () =>
    Effect.gen(function* () {
      const schedules = yield* JobSchedules
      yield* makeOrg("a")
      yield* makeOrg("b")
      const id = yield* as("a")(create({ workflow: "w", cron: "* * * * *" }))
      const missing = JSON.stringify({ error: "There is no such schedule.", code: "not_found" })
      for (const unknown of [id, unknownId]) {
        assert.strictEqual(yield* failureOf(as("b")(schedules.remove(unknown))), missing)
      }
      assert.deepStrictEqual([yield* as("b")(listed), (yield* as("a")(listed)).length], [[], 1])
      yield* as("a")(schedules.remove(id))
      assert.deepStrictEqual(yield* as("a")(listed), [])
    }).pipe(Effect.provide(services())),
  )
})
