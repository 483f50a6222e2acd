import { assert, describe } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import type { CreateJob } from "#src/domain/jobs/Job.ts"
import { distribute, nextToServe } from "#src/domain/jobs/WaitingClaims.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import * as fakes from "../../fakes/webhooks.ts"
import { it } from "../../support/it.ts"
import { as, makeOrg, services, settle } from "../webhooks/webhookSupport.ts"

const create = (input: Partial<typeof CreateJob.Type> = {}) =>
  Effect.map(
    Jobs.use((jobs) => jobs.create({ workflow: "w", ...input })),
    ({ jobId }) => jobId,
  )
const claim = (input: Parameters<Jobs["Service"]["claim"]>[0] = {}) => Jobs.use((jobs) => jobs.claim(input))
/** A claim that waits. */
const waiting = (...input: Parameters<typeof claim>) => Effect.tap(Effect.forkChild(claim(...input)), () => settle)
/** A job as the service stores it. */
const queued = {
  orgId: "o",
  workflow: "w",
  input: null,
  deploymentId: null,
  callbackUrl: null,
  callbackSecret: null,
  skipCallbacks: false,
  concurrencyKey: null,
  expiresInSeconds: null,
  priority: 0,
  maxAttempts: 3,
  retryDelaySeconds: 10,
  idempotencyKey: null,
  unique: null,
  runAt: null,
  now: DateTime.makeUnsafe(0),
}

describe("a claim that waits", () => {
  it.effect("is answered at once when a job exists, and as soon as one is created", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const there = yield* create()
      assert.strictEqual((yield* claim({ wait_seconds: 30 }))[0]!.job_id, there)
      const claiming = yield* waiting({ wait_seconds: 30, limit: 2 })
      const made = yield* create()
      assert.strictEqual((yield* Fiber.join(claiming))[0]!.job_id, made)
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("ignores jobs of other workflows and orgs, and ends after its time", () =>
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

  it.effect("finds a job that another replica created within a second", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const claiming = yield* waiting({ wait_seconds: 30 })
      // Stores a job without a notification in this process.
      yield* JobRepository.use((jobs) => jobs.insert([{ ...queued, jobId: "made" }]))
      yield* TestClock.adjust("999 millis")
      assert.isUndefined(claiming.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual((yield* Fiber.join(claiming))[0]!.job_id, "made")
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("never shares a job with another waiting claim", () =>
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

  it.effect("returns the jobs that it claimed, even when its time ends meanwhile", () => {
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

  it.effect("shares one poll with a thousand others; jobs go to the first, up to the limit of each", () => {
    const claims: Array<number> = []
    const counted = Layer.effect(
      JobRepository,
      Effect.map(JobRepository, (repository) => ({
        ...repository,
        claim: (orgId, claim) => {
          claims.push(claim.limit)
          return repository.claim(orgId, claim)
        },
      })),
    ).pipe(Layer.provideMerge(fakes.layer))
    return Effect.gen(function* () {
      yield* makeOrg("o")
      const first = yield* waiting({ wait_seconds: 30, limit: 2 })
      const all = yield* Effect.replicateEffect(Effect.forkChild(claim({ wait_seconds: 30 })), 999)
      yield* settle
      claims.length = 0
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(
        claims,
        Array.from({ length: 10 }, () => 100),
      )
      for (const jobId of ["a", "b", "c"]) yield* JobRepository.use((jobs) => jobs.insert([{ ...queued, jobId }]))
      yield* TestClock.adjust("1 second")
      const got = [...(yield* Fiber.join(first)), ...(yield* Fiber.join(all[0]!))]
      assert.deepStrictEqual(
        got.map((job) => job.job_id),
        ["a", "b", "c"],
      )
      yield* settle
      assert.isUndefined(all[1]!.pollUnsafe())
      claims.length = 0
      yield* create()
      yield* settle
      assert.lengthOf(yield* Fiber.join(all[1]!), 1)
      assert.lengthOf(claims, 1)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual((yield* Fiber.joinAll(all.slice(2))).flat(), [])
    }).pipe(as("o"), Effect.provide(services({ repositories: counted })))
  })

  it.effect("jobs claimed for a claim that has gone go to the next one, else back to the queue", () => {
    const gate = Deferred.makeUnsafe<void>()
    const slow = Layer.effect(
      JobRepository,
      Effect.map(JobRepository, (repository) => ({
        ...repository,
        claim: (...args) =>
          Effect.tap(repository.claim(...args), (jobs) => (jobs.length > 0 ? Deferred.await(gate) : Effect.void)),
      })),
    ).pipe(Layer.provideMerge(fakes.layer))
    return Effect.gen(function* () {
      yield* makeOrg("o")
      const made = [yield* create(), yield* create()]
      const gone = yield* waiting({ wait_seconds: 30, limit: 3 })
      const next = yield* waiting({ wait_seconds: 30 })
      yield* Fiber.interrupt(gone)
      yield* Deferred.succeed(gate, undefined)
      const [one] = yield* Fiber.join(next)
      yield* settle
      const [other] = yield* claim()
      assert.deepStrictEqual([one!.attempt, other!.attempt], [1, 1])
      assert.deepStrictEqual([one!.job_id, other!.job_id].sort(), made)
    }).pipe(as("o"), Effect.provide(services({ repositories: slow })))
  })

  it.effect("claims with different leases do not share: each gets the lease that it asked for", () =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const short = yield* waiting({ wait_seconds: 30, lease_seconds: 5 })
      const long = yield* waiting({ wait_seconds: 30, lease_seconds: 500 })
      yield* create()
      yield* create()
      const leases = (yield* Fiber.joinAll([short, long])).map(([job]) => job!.lease_expires_at.epochMilliseconds)
      assert.deepStrictEqual(leases, [5_000, 500_000])
    }).pipe(as("o"), Effect.provide(services())),
  )

  it.effect("all waiting claims fail when the database is unavailable", () => {
    const away = Layer.effect(
      JobRepository,
      Effect.map(JobRepository, (repository) => ({
        ...repository,
        claim: () => Effect.fail(new Unavailable({ error: "away" })),
      })),
    ).pipe(Layer.provideMerge(fakes.layer))
    return Effect.gen(function* () {
      const both = [claim({ wait_seconds: 30 }), claim({ wait_seconds: 5 })]
      const errors = yield* Effect.all(both.map(Effect.flip), { concurrency: 2 })
      assert.deepStrictEqual(
        errors.map(({ error }) => error),
        ["away", "away"],
      )
    }).pipe(as("o"), Effect.provide(services({ repositories: away })))
  })
})

describe("the distribution of jobs", () => {
  it("a statement claims for the first waiting claims, a hundred jobs at most", () => {
    const waiters = [{ limit: 60 }, { limit: 30 }, { limit: 30 }, { limit: 1 }]
    assert.deepStrictEqual(nextToServe(waiters), { served: waiters.slice(0, 3), limit: 100 })
    assert.deepStrictEqual(nextToServe(waiters.slice(3)), { served: waiters.slice(3), limit: 1 })
  })

  it("each claim in turn gets jobs up to its limit, and the rest is returned", () => {
    const [two, one] = [{ limit: 2 }, { limit: 1 }]
    assert.deepStrictEqual(distribute([two, one], [1]), { shares: [[two, [1]]], left: [] })
    assert.deepStrictEqual(distribute([two, one], [1, 2, 3, 4]), {
      shares: [
        [two, [1, 2]],
        [one, [3]],
      ],
      left: [4],
    })
    assert.deepStrictEqual(distribute([], [1]), { shares: [], left: [1] })
  })
})
