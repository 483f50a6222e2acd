import { assert, describe, it } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import type { CreateJob } from "#src/domain/Job.ts"
import { JobRepository, Jobs } from "#src/domain/Jobs.ts"
import * as fakes from "../fakes/webhooks.ts"
import { as, makeOrg, services, settle } from "./webhookSupport.ts"

const create = (input: Partial<typeof CreateJob.Type> = {}) =>
  Jobs.use((jobs) => jobs.create({ workflow: "w", ...input }))
const claim = (input: Parameters<Jobs["Service"]["claim"]>[0] = {}) => Jobs.use((jobs) => jobs.claim(input))
/** A claim that is waiting. */
const waiting = (...input: Parameters<typeof claim>) => Effect.tap(Effect.forkChild(claim(...input)), () => settle)
/** A job as a repository is given it. */
const queued = {
  orgId: "o",
  workflow: "w",
  input: null,
  deploymentId: null,
  callbackUrl: null,
  callbackSecret: null,
  skipCallbacks: false,
  idempotencyKey: null,
  now: DateTime.makeUnsafe(0),
}

describe("a claim that waits", () => {
  it.effect("is answered at once when there is a job, and when one is created", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const there = yield* create()
      assert.strictEqual((yield* claim({ wait_seconds: 30 }))[0]!.job_id, there)
      const claiming = yield* waiting({ wait_seconds: 30, limit: 2 })
      const made = yield* create()
      assert.strictEqual((yield* Fiber.join(claiming))[0]!.job_id, made)
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("goes on when the job is of another workflow or org, and gives up in its time", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      yield* as("other")(Effect.andThen(makeOrg("other"), create()))
      const claiming = yield* waiting({ wait_seconds: 30, workflow: "x" })
      yield* create({ workflow: "y" })
      yield* as("other")(create({ workflow: "x" }))
      yield* TestClock.adjust("29999 millis")
      assert.isUndefined(claiming.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(yield* Fiber.join(claiming), [])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("finds what another replica made within a second", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const claiming = yield* waiting({ wait_seconds: 30 })
      // Kept without a word to anybody here.
      yield* JobRepository.use((jobs) => jobs.insert({ ...queued, jobId: "made" }))
      yield* TestClock.adjust("999 millis")
      assert.isUndefined(claiming.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual((yield* Fiber.join(claiming))[0]!.job_id, "made")
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("of many that wait, each job is one's", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const claiming = yield* Effect.replicateEffect(waiting({ wait_seconds: 30 }), 5)
      const made = [yield* create(), yield* create(), yield* create()]
      yield* TestClock.adjust("30 seconds")
      const got = yield* Fiber.joinAll(claiming)
      assert.deepStrictEqual(
        got
          .flat()
          .map((job) => job.job_id)
          .sort(),
        made,
      )
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("answers what it has claimed, also when the time runs out meanwhile", () => {
    const slow = Layer.effect(
      JobRepository,
      Effect.map(JobRepository, (repository) => ({
        ...repository,
        claim: (...args) =>
          Effect.tap(repository.claim(...args), (jobs) => (jobs.length > 0 ? Deferred.await(gate) : Effect.void)),
      })),
    ).pipe(Layer.provideMerge(fakes.layer))
    const gate = Deferred.makeUnsafe<void>()
    return Effect.gen(function* () {
      yield* makeOrg("o")
      const claiming = yield* waiting({ wait_seconds: 5 })
      const id = yield* create()
      yield* TestClock.adjust("6 seconds")
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(
        (yield* Fiber.join(claiming)).map((job) => job.job_id),
        [id],
      )
    }).pipe(as("o"), Effect.provide(services({ repositories: slow })))
  })
})
