import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import { Counter } from "#src/domain/activity/ActivityRecorder.ts"
import { Publish } from "#src/domain/activity/LiveFeed.ts"
import type { CreateJob } from "#src/domain/jobs/Job.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import * as fakes from "../../fakes/webhooks.ts"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"
import { it } from "../../support/it.ts"
import { failureOf, unknownId } from "../support.ts"
import { as, literalHosts, makeOrg, refusedHosts, services } from "../webhooks/webhookSupport.ts"

const create = (input: Partial<typeof CreateJob.Type> = {}) =>
  Effect.map(
    Jobs.use((jobs) => jobs.create({ workflow: "w", ...input })),
    ({ jobId }) => jobId,
  )
const claim = (input: Parameters<Jobs["Service"]["claim"]>[0] = {}) => Jobs.use((jobs) => jobs.claim(input))
const get = (id: string) => Jobs.use((jobs) => jobs.get(id))
const after = (seconds: number) => DateTime.makeUnsafe(seconds * 1000)
const error = (code: string, sentence: string) => JSON.stringify({ error: sentence, code })

describe("Jobs", () => {
  it.effect("each change of a job is published, and its end is counted once", () => {
    const published: Array<string> = []
    const counted: Array<string> = []
    const listeners = Layer.mergeAll(
      Layer.succeed(Publish, (changes) => {
        for (const { data, orgId, topic } of changes()) published.push(`${orgId} ${topic} ${data["status"]}`)
      }),
      Layer.succeed(Counter, {
        attempt: () => {},
        count: (orgId, kind, outcome) => void counted.push(`${orgId} ${kind} ${outcome}`),
      }),
    )
    return Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const seen: Array<ReadonlyArray<string>> = []
      const note = <A, E, R>(change: Effect.Effect<A, E, R>) =>
        Effect.tap(change, () => Effect.sync(() => seen.push(published.splice(0).map((one) => one.split(" ").at(-1)!))))
      const job_id = yield* note(create())
      yield* note(claim())
      yield* note(jobs.heartbeat({ job_id }))
      yield* note(jobs.log({ job_id, attempt: 1, lines: [{ text: "half" }] }))
      yield* note(jobs.fail({ job_id, error: "late", retry: false }))
      yield* note(jobs.retry({ job_id }))
      yield* note(claim())
      yield* note(jobs.complete({ job_id }))
      yield* note(jobs.complete({ job_id }))
      const both = yield* note(jobs.createBatch({ jobs: [{ workflow: "w" }, { workflow: "w" }] }))
      yield* note(claim({ limit: 2 }))
      yield* note(jobs.completeBatch({ jobs: [{ job_id: both[0]! }, { job_id: unknownId }] }))
      yield* note(jobs.cancel({ job_id: both[1]! }))
      assert.deepStrictEqual(seen, [
        ["queued"],
        ["running"],
        [],
        ["running"],
        ["failed"],
        ["queued"],
        ["running"],
        ["completed"],
        [],
        ["queued", "queued"],
        ["running", "running"],
        ["completed"],
        ["canceled"],
      ])
      assert.deepStrictEqual(counted, ["o jobs failed", "o jobs completed", "o jobs completed", "o jobs canceled"])
    }).pipe(as("o"), Effect.provide(Layer.provideMerge(services(), listeners)))
  })

  it.effect("the secret of a callback is encrypted for the job, and is in no answer", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const id = yield* create({ callback_url: "https://example.com/cb", callback_secret: "pl4in" })
      const stored = (yield* WebhookWorld).jobs.get(id)!.secret!
      assert.deepStrictEqual(stored, { stored: JSON.stringify([id, "pl4in"]), owner: id })
      const shown = [yield* get(id), yield* jobs.list({ limit: 9 }), yield* claim()]
      assert.notInclude(JSON.stringify(shown), "pl4in")
      assert.notInclude(JSON.stringify(shown), "secret")
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect.each([true, false])("a callback's url must use https where that is required: %s", (httpsOnly) =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const refused = yield* failureOf(create({ callback_url: "ftp://example.com" }))
      const scheme = httpsOnly ? "https" : "http or https"
      assert.strictEqual(refused, error("invalid_request", `callback_url must be an absolute ${scheme} URL.`))
      const plain = create({ callback_url: "http://example.com" })
      if (httpsOnly) {
        assert.strictEqual(yield* failureOf(plain), error("invalid_request", "callback_url must be an https URL."))
      } else yield* plain
      yield* create({ callback_url: null, callback_secret: null })
    }).pipe(as("o"), Effect.provide(services({ httpsOnly }))),
  )

  // Seen failing when the job was created, and its callback failed later.
  it.effect.each([false, true])(
    "a callback's literal address must be one that may be called; private networks: %s",
    (allowed) =>
      Effect.gen(function* () {
        yield* makeOrg("o")
        const fault = "callback_url must not have a private, reserved or special address as its host."
        for (const host of Object.values(literalHosts).flat()) {
          const outcome = yield* Effect.result(create({ callback_url: `https://${host}/cb` }))
          const expected = refusedHosts(allowed).includes(host) ? fault : null
          assert.strictEqual(Result.isSuccess(outcome) ? null : outcome.failure.error, expected, host)
        }
      }).pipe(as("o"), Effect.provide(services({ allowPrivateNetworks: allowed }))),
  )

  it.effect("a claim takes one job for a minute by default, and a heartbeat starts the lease again", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const [first] = [yield* create(), yield* create()]
      const [job, ...others] = yield* claim()
      assert.deepStrictEqual([job?.job_id, job?.lease_expires_at, others], [first, after(60), []])
      const [second] = yield* claim({ limit: 5, lease_seconds: 7 })
      assert.deepStrictEqual(second!.lease_expires_at, after(7))
      yield* TestClock.adjust("5 seconds")
      yield* jobs.heartbeat({ job_id: first })
      yield* jobs.heartbeat({ job_id: second!.job_id, lease_seconds: 100 })
      assert.deepStrictEqual((yield* get(first)).lease_expires_at, after(65))
      assert.deepStrictEqual((yield* get(second!.job_id)).lease_expires_at, after(105))
      assert.deepStrictEqual(yield* claim(), [])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect(
    "an expired lease queues the job again, and the third one fails it with its event, unless it was finished",
    () =>
      Effect.gen(function* () {
        yield* makeOrg("o")
        const jobs = yield* Jobs
        const id = yield* create()
        for (const attempt of [1, 2, 3]) {
          yield* jobs.expireLeases
          assert.deepInclude((yield* claim())[0], { job_id: id, attempt })
          yield* TestClock.adjust("60 seconds")
        }
        yield* jobs.expireLeases
        assert.deepInclude(yield* get(id), { status: "failed", error: "lease expired", mapped_stack: null })
        const { events } = yield* WebhookWorld
        const [event] = [...events.values()].map(({ body }): unknown => JSON.parse(body))
        assert.deepInclude(event, { event: "job.failed", error: "lease expired", result: null })
        yield* jobs.expireLeases
        assert.strictEqual(events.size, 1)
        const refused = jobs.complete({ job_id: id })
        assert.strictEqual(
          yield* failureOf(refused),
          error("conflict", "The job has already finished with another outcome; the first outcome stays."),
        )
      }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("a job whose lease is extended in time does not fail", () => {
    // A heartbeat arrives between the read of the expired leases and the end of the job.
    const stale = Layer.effect(
      JobRepository,
      Effect.map(JobRepository, (repository) => ({
        ...repository,
        expireLeases: () =>
          Effect.map(repository.list("o", {}, { limit: 9 }), ({ items }) => ({
            queued: 0,
            exhausted: [...items.map(({ job_id }) => job_id), unknownId].map((jobId) => ({ orgId: "o", jobId })),
            next: null,
          })),
      })),
    ).pipe(Layer.provideMerge(fakes.layer))
    return Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const [queued, running] = [yield* create({ workflow: "x" }), yield* create({ max_attempts: 1 })]
      yield* claim({ workflow: "w" })
      yield* TestClock.adjust("59 seconds")
      yield* jobs.expireLeases
      assert.deepStrictEqual([(yield* get(queued)).status, (yield* get(running)).status], ["queued", "running"])
      yield* TestClock.adjust("1 second")
      yield* jobs.expireLeases
      assert.deepStrictEqual([(yield* get(queued)).status, (yield* get(running)).status], ["queued", "failed"])
    }).pipe(as("o"), Effect.provide(services({ repositories: stale })))
  })

  it.effect("each event has a nonce of its own, of 32 hex characters", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const [a, b] = [yield* create(), yield* create({ deployment_id: "d" })]
      yield* jobs.complete({ job_id: a })
      yield* jobs.fail({ job_id: b, error: "boom" })
      const bodies = [...(yield* WebhookWorld).events.values()].map(({ body }) => JSON.parse(body))
      const nonces = bodies.map(({ nonce }) => String(nonce))
      assert.isTrue(nonces.every((nonce) => /^[0-9a-f]{32}$/.test(nonce)) && new Set(nonces).size === 2)
      assert.deepInclude(bodies[0], { event: "job.completed", result: null, error: null })
      assert.deepInclude(bodies[1], { event: "job.failed", error: "boom", mapped_stack: null, deployment_id: "d" })
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("no org can read or change a job of another org", () =>
    Effect.gen(function* () {
      const jobs = yield* Jobs
      yield* makeOrg("a")
      yield* makeOrg("b")
      const id = yield* as("a")(create())
      for (const job_id of [id, unknownId]) {
        for (const attempt of [
          Effect.asVoid(jobs.get(job_id)),
          jobs.heartbeat({ job_id }),
          Effect.asVoid(jobs.complete({ job_id })),
          Effect.asVoid(jobs.fail({ job_id, error: "" })),
        ]) {
          assert.strictEqual(yield* failureOf(as("b")(attempt)), error("not_found", "There is no such job."))
        }
      }
      assert.deepStrictEqual([yield* as("b")(claim()), (yield* as("b")(jobs.list({ limit: 9 }))).jobs], [[], []])
      assert.strictEqual((yield* as("a")(get(id))).status, "queued")
    }).pipe(Effect.provide(services())),
  )

  it.effect("are listed in pages", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const jobs = yield* Jobs
      const ids = [yield* create(), yield* create(), yield* create()].toReversed()
      const first = yield* jobs.list({ limit: 2 })
      assert.deepStrictEqual([first.jobs.map((job) => job.job_id), first.next_cursor], [ids.slice(0, 2), ids[1]])
      const last = yield* jobs.list({ limit: 2, cursor: ids[1] })
      assert.deepStrictEqual([last.jobs.map((job) => job.job_id), last.next_cursor], [[ids[2]], null])
    }).pipe(as("o"), Effect.provide(services())),
  )
})
