import { assert, describe } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { Principal } from "#src/domain/Principal.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import { limitWrongCredentials } from "#src/domain/wrongCredentials.ts"
import * as fakes from "../../fakes/repositories.ts"
import { it } from "../../support/it.ts"
import { as, failureOf, makeTenant, outcomeOf, services } from "../support.ts"

const wrong = "svc_wrong"
const anonymous = Principal.Anonymous()

const validate = (key: string, address: string, caller: Principal = anonymous, open = false) =>
  ApiKeys.use((keys) => as(caller, open)(keys.validate(Redacted.make(key), address)))

/** The outcomes of many wrong keys in a row: each distinct outcome once, in order. */
const outcomes = (times: number, ...args: [address: string, caller?: Principal, open?: boolean]) =>
  Effect.map(
    Effect.forEach(Array.from({ length: times }), () => outcomeOf(validate(wrong, ...args))),
    (all) => [...new Set(all)],
  )

const refusedFor = (seconds: number) =>
  JSON.stringify({
    error:
      "Too many validations from this address failed. Try again after the seconds in Retry-After, or send an org key as the credential.",
    code: "too_many_requests",
    retryAfterSeconds: seconds,
  })

describe("failures of requests without a credential", () => {
  it.effect.each([{ open: false }, { open: true }])(
    "are limited to 600 a minute per address, open: $open",
    ({ open }) =>
      Effect.gen(function* () {
        const { orgKey } = yield* makeTenant
        assert.deepStrictEqual(yield* outcomes(600, "a", anonymous, open), ["Unauthorized"])
        assert.strictEqual(yield* failureOf(validate(wrong, "a", anonymous, open)), refusedFor(60))
        // Failures of others refuse no valid key.
        yield* validate(orgKey.key, "a", anonymous, open)
        yield* TestClock.adjust("20500 millis")
        assert.strictEqual(yield* failureOf(validate(wrong, "a", anonymous, open)), refusedFor(40))
        yield* TestClock.adjust("39499 millis")
        assert.strictEqual(yield* failureOf(validate(wrong, "a", anonymous, open)), refusedFor(1))
        // After the minute the next 600 are allowed, however many were refused.
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(yield* outcomes(600, "a", anonymous, open), ["Unauthorized"])
        assert.strictEqual(yield* failureOf(validate(wrong, "a", anonymous, open)), refusedFor(60))
      }).pipe(Effect.provide(services())),
  )

  it.effect("count in a minute that starts with the first", () =>
    Effect.gen(function* () {
      yield* outcomes(1, "a")
      yield* TestClock.adjust("59 seconds")
      yield* outcomes(599, "a")
      assert.strictEqual(yield* failureOf(validate(wrong, "a")), refusedFor(1))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* outcomes(1, "a"), ["Unauthorized"])
    }).pipe(Effect.provide(services())),
  )

  it.effect("do not limit other addresses, or requests with a credential from the same address", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      assert.deepStrictEqual(yield* outcomes(601, "a"), ["Unauthorized", "TooManyRequests"])
      yield* validate(orgKey.key, "b")
      assert.deepStrictEqual(yield* outcomes(600, "b"), ["Unauthorized"])
      const credentials = [
        Principal.Administrator(),
        Principal.OrgKey({ keyId: orgKey.id, orgId }),
        Principal.ProjectKey({ keyId: projectKey.id, orgId, projectId }),
      ]
      for (const caller of credentials) {
        assert.deepStrictEqual(yield* outcomes(700, "a", caller), ["Unauthorized"])
        yield* validate(orgKey.key, "a", caller)
        // Nor do they use up the failures of requests without a credential from the same address.
        assert.deepStrictEqual(yield* outcomes(601, "c", caller), ["Unauthorized"])
      }
      assert.deepStrictEqual(yield* outcomes(600, "c"), ["Unauthorized"])
    }).pipe(Effect.provide(services())),
  )

  it.effect("count at each door by itself", () =>
    Effect.gen(function* () {
      const keys = yield* ApiKeys
      const at = (door: "authorize" | "token") =>
        Effect.map(
          Effect.forEach(Array.from({ length: 601 }), () =>
            outcomeOf(keys.authorize(Redacted.make(wrong), "a", {}, door)),
          ),
          (all) => [...new Set(all)],
        )
      for (const all of [outcomes(601, "a"), at("authorize"), at("token")]) {
        assert.deepStrictEqual(yield* all, ["Unauthorized", "TooManyRequests"])
      }
    }).pipe(Effect.provide(services())),
  )

  it.effect("are the only thing that counts: successes do not", () =>
    Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      yield* outcomes(599, "a")
      for (let i = 0; i < 700; i++) yield* validate(orgKey.key, "a")
      assert.deepStrictEqual(yield* outcomes(2, "a"), ["Unauthorized", "TooManyRequests"])
    }).pipe(Effect.provide(services())),
  )

  const outage = Layer.effect(
    ApiKeyRepository,
    ApiKeyRepository.use((repository) =>
      Effect.succeed({ ...repository, findByHashes: () => Effect.fail(new Unavailable({ error: "down" })) }),
    ),
  ).pipe(Layer.provideMerge(fakes.layer))

  it.effect("an unavailable database is no failure of the client", () =>
    Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      for (let i = 0; i < 601; i++) assert.strictEqual(yield* outcomeOf(validate(orgKey.key, "a")), "Unavailable")
    }).pipe(Effect.provide(services({ repositories: outage }))),
  )
})

describe("FailureLimit", () => {
  it.effect("remembers at most 10,000 addresses, and forgets the oldest first", function* () {
    const limit = limitWrongCredentials("Too many.", 1)
    const isLimited = (n: number) => Effect.map(outcomeOf(limit.take(`address ${n}`)), (tag) => tag !== "ok")
    for (let n = 0; n < 10_000; n++) yield* limit.take(`address ${n}`)
    assert.deepStrictEqual([yield* isLimited(0), yield* isLimited(9_999)], [true, true])
    yield* limit.take("address 10000")
    assert.deepStrictEqual([yield* isLimited(1), yield* isLimited(10_000), yield* isLimited(0)], [true, true, false])
  })

  const isRefused = (limit: ReturnType<typeof limitWrongCredentials>, address: string) =>
    Effect.map(outcomeOf(limit.take(address)), (tag) => tag === "TooManyRequests")

  // Seen failing when the address with the most failures was evicted, and could continue.
  it.effect("a flood of addresses evicts those with the fewest failures, not the most", function* () {
    const limit = limitWrongCredentials("Too many.", 3)
    for (let n = 0; n < 3; n++) yield* limit.take("203.0.113.1")
    for (let n = 0; n < 2; n++) yield* limit.take("203.0.113.2")
    for (let n = 0; n < 30_000; n++) yield* limit.take(`10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`)
    assert.isTrue(yield* isRefused(limit, "203.0.113.1"))
    yield* limit.take("203.0.113.2")
    assert.isTrue(yield* isRefused(limit, "203.0.113.2"))
  })

  it.effect("evicts ended windows first, however many failures they have", function* () {
    const limit = limitWrongCredentials("Too many.", 2)
    for (const _ of [1, 2]) for (let n = 0; n < 10_000; n++) yield* limit.take(`address ${n}`)
    yield* TestClock.adjust("1 minute")
    yield* limit.take("a")
    for (let n = 0; n < 100; n++) yield* limit.take(`new ${n}`)
    yield* limit.take("a")
    assert.isTrue(yield* isRefused(limit, "a"))
  })

  // Seen failing when each address of a network could fail 600 times: a network has 2 to the 64 of them.
  it.effect("counts a /64 network of IPv6 as one address, and an IPv4-mapped address as its IPv4", function* () {
    const limit = limitWrongCredentials("Too many.", 4)
    for (const address of ["2001:db8:1:2::1", "2001:DB8:1:2:ffff::", "2001:0db8:0001:0002:0:0:0:9", "2001:db8:1:2::"]) {
      assert.isFalse(yield* isRefused(limit, address))
    }
    assert.isTrue(yield* isRefused(limit, "2001:db8:1:2:3:4:5:6"))
    assert.isTrue(yield* isRefused(limit, "2001:db8:1:2::7%eth0"))
    assert.isFalse(yield* isRefused(limit, "2001:db8:1:3::1"))
    for (const address of ["192.0.2.1", "::ffff:192.0.2.1", "::FFFF:c000:201", "0:0:0:0:0:ffff:192.0.2.1"]) {
      assert.isFalse(yield* isRefused(limit, address))
    }
    for (const address of ["192.0.2.1", "::ffff:192.0.2.1"]) assert.isTrue(yield* isRefused(limit, address))
    for (const address of ["192.0.2.2", "::ffff:192.0.2.2", "::1", "unknown"]) {
      assert.isFalse(yield* isRefused(limit, address))
    }
  })

  it.effect("an address that returns after a minute counts as the newest", function* () {
    const limit = limitWrongCredentials("Too many.", 1)
    for (let n = 0; n < 10_000; n++) yield* limit.take(`address ${n}`)
    yield* TestClock.adjust("1 minute")
    yield* limit.take("address 0")
    yield* limit.take("new")
    assert.strictEqual(yield* outcomeOf(limit.take("address 0")), "TooManyRequests")
  })
})
