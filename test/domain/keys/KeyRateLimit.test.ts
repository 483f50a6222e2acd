import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { TestClock } from "effect/testing"
import type { RateLimit } from "#src/domain/keys/ApiKey.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import * as KeyRateLimit from "#src/domain/keys/KeyRateLimit.ts"
import { asAdministrator, asAnonymous, failureOf, makeTenant, outcomeOf, services } from "../support.ts"

const refusedFor = (retryAfterSeconds: number) =>
  JSON.stringify({
    error: "The key is used more often than its rate limit allows; wait.",
    code: "too_many_requests",
    retryAfterSeconds,
  })

/** How many of so many uses in a row are within the limit. */
const within = (limit: ReturnType<typeof KeyRateLimit.make>, rateLimit: RateLimit, now: number, uses: number) =>
  Array.from({ length: uses }, () => limit.take("key", rateLimit, now)).filter((wait) => wait === 0).length

describe("the limit of a key", () => {
  it("lets a rested key be used so often at once, and evenly from then on", () => {
    const limit = KeyRateLimit.make()
    const rate = { limit: 10, window: 60 }
    assert.strictEqual(within(limit, rate, 0, 15), 10)
    assert.strictEqual(limit.take("key", rate, 0), 6_000)
    assert.strictEqual(limit.take("key", rate, 5_999), 1)
    assert.strictEqual(within(limit, rate, 6_000, 3), 1)
    assert.strictEqual(within(limit, rate, 30_000, 9), 4)
    // However long it rests, it gathers no more than the limit.
    assert.strictEqual(within(limit, rate, 86_400_000, 20), 10)
  })

  it("never lets through more than its even flow and one burst, whatever comes", () => {
    const limit = KeyRateLimit.make()
    const rate = { limit: 7, window: 3 }
    let taken = 0
    for (let now = 0; now <= 60_000; now += 13) {
      taken += within(limit, rate, now, 1 + (now % 5))
      assert.isAtMost(taken, 7 + (now * 7) / 3000 + 1e-6)
    }
    assert.isAtLeast(taken, 7 + (60_000 * 7) / 3000 - 2)
  })

  it("is exact at its ends", () => {
    const limit = KeyRateLimit.make()
    const most = { limit: 1_000_000, window: 1 }
    assert.strictEqual(within(limit, most, 5, 1_000_001), 1_000_000)
    const least = { limit: 1, window: 86_400 }
    assert.strictEqual(limit.take("slow", least, 10_000), 0)
    assert.strictEqual(limit.take("slow", least, 10_000), 86_400_000)
    assert.strictEqual(limit.take("slow", least, 10_000 + 86_399_999), 1)
    assert.strictEqual(limit.take("slow", least, 10_000 + 86_400_000), 0)
  })

  it("counts 100,000 keys at most, and forgets the one that was not used for the longest time", () => {
    const limit = KeyRateLimit.make()
    const rate = { limit: 1, window: 60 }
    for (let n = 0; n < 100_000; n++) limit.take(`key ${n}`, rate, 0)
    assert.strictEqual(limit.take("key 0", rate, 0), 60_000)
    limit.take("new", rate, 0)
    assert.strictEqual(limit.take("key 0", rate, 0), 60_000)
    assert.strictEqual(limit.take("key 1", rate, 0), 0)
  })
})

describe("validating a key with a rate limit", () => {
  const rateLimit = { limit: 3, window: 10 }
  const validate = (key: string, by = asAnonymous) =>
    ApiKeys.use((keys) => by(keys.validate(Redacted.make(key), "::1")))

  it.effect("answers as ever within it, and says how long to wait beyond it, whoever asks", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey } = yield* makeTenant
      const keys = yield* ApiKeys
      const limited = yield* asAdministrator(keys.createForProject({ name: "limited", projectId, rateLimit }))
      const other = yield* asAdministrator(keys.createForOrg(orgId, { name: "other", rateLimit }))
      for (let n = 0; n < 3; n++) {
        assert.deepStrictEqual(yield* validate(limited.key), { keyId: limited.id, orgId, projectId })
      }
      assert.strictEqual(yield* failureOf(validate(limited.key)), refusedFor(4))
      assert.strictEqual(yield* failureOf(validate(limited.key, asAdministrator)), refusedFor(4))
      assert.strictEqual(yield* outcomeOf(validate(other.key)), "ok")
      for (let n = 0; n < 10; n++) yield* validate(orgKey.key)
      yield* TestClock.adjust("2500 millis")
      assert.strictEqual(yield* failureOf(validate(limited.key)), refusedFor(1))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* outcomeOf(validate(limited.key)), "ok")
      // As a credential of this service it is not counted.
      for (let n = 0; n < 10; n++) yield* keys.authenticate(Redacted.make(limited.key))
    }).pipe(Effect.provide(services())),
  )

  // Seen failing: counted by the wall clock, a key at its limit was shut out until the clock was there again.
  it.effect("gives back what has passed, also when the wall clock is set back an hour", () =>
    Effect.gen(function* () {
      const { orgId } = yield* makeTenant
      const { key } = yield* asAdministrator(
        ApiKeys.use((keys) => keys.createForOrg(orgId, { name: "limited", rateLimit })),
      )
      yield* TestClock.setTime(7_200_000)
      for (let n = 0; n < 3; n++) assert.strictEqual(yield* outcomeOf(validate(key)), "ok")
      yield* TestClock.setTime(3_600_000)
      assert.strictEqual(yield* failureOf(validate(key)), refusedFor(4))
      yield* TestClock.adjust("4 seconds")
      assert.strictEqual(yield* outcomeOf(validate(key)), "ok")
    }).pipe(Effect.provide(services())),
  )

  it.effect("is no failure of the caller: strangers keep their 600 bad keys", () =>
    Effect.gen(function* () {
      const { orgId } = yield* makeTenant
      const keys = yield* ApiKeys
      const { key } = yield* asAdministrator(keys.createForOrg(orgId, { name: "limited", rateLimit }))
      for (let n = 0; n < 700; n++) yield* outcomeOf(validate(key))
      assert.strictEqual(yield* outcomeOf(validate("svc_wrong")), "Unauthorized")
    }).pipe(Effect.provide(services())),
  )
})
