import { assert, describe } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, asAnonymous, failureOf, makeTenant, outcomeOf, services } from "../support.ts"

const refusedFor = (retryAfterSeconds: number) =>
  JSON.stringify({
    error: "The rate limit of the key is reached; try again after the seconds in Retry-After.",
    code: "too_many_requests",
    retryAfterSeconds,
  })

describe("validating a key with a rate limit", () => {
  const rateLimit = { limit: 3, window: 10 }
  const validate = (key: string, by = asAnonymous) =>
    ApiKeys.use((keys) => by(keys.validate(Redacted.make(key), "::1")))

  it.effect("answers normally within the limit, and tells anyone beyond it how long to wait", () =>
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
      // The use of a key as a credential of this service does not count.
      for (let n = 0; n < 10; n++) yield* keys.authenticate(Redacted.make(limited.key), "127.0.0.1")
    }).pipe(Effect.provide(services())),
  )

  // Seen failing with the wall clock: a key at its limit was refused until the clock had caught up.
  it.effect("frees units as time passes, even when the wall clock steps back an hour", () =>
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

  it.effect("a refusal for the limit is no failure: the address keeps its 600 failures", () =>
    Effect.gen(function* () {
      const { orgId } = yield* makeTenant
      const keys = yield* ApiKeys
      const { key } = yield* asAdministrator(keys.createForOrg(orgId, { name: "limited", rateLimit }))
      for (let n = 0; n < 700; n++) yield* outcomeOf(validate(key))
      assert.strictEqual(yield* outcomeOf(validate("svc_wrong")), "Unauthorized")
    }).pipe(Effect.provide(services())),
  )
})
