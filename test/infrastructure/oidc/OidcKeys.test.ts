import { NodeHttpClient } from "@effect/platform-node"
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { generateKeyPairSync, sign } from "node:crypto"
import { Unauthorized, Unavailable } from "#src/domain/Errors.ts"
import { it } from "../../support/it.ts"
import { type Behaviour, ecKey, rs256, rsaKey, type SigningKey } from "../../support/oidc.ts"
import { oidcWorld } from "../../support/oidcWorld.ts"

/** A world with functions that assert that a token of a key is accepted or refused. */
const keyWorld = Effect.fnUntraced(function* (...args: Parameters<typeof oidcWorld>) {
  const world = yield* oidcWorld(...args)
  const signedBy = (kid: string) => world.verifySigned({}, { kid }, rs256(rsaKey(kid)))
  return {
    ...world,
    accepts: signedBy,
    refuses: (kid: string) =>
      Effect.map(Effect.flip(signedBy(kid)), (error) => {
        assert.instanceOf(error, Unauthorized)
        assert.include(error.error, "provider does not publish")
      }),
    unavailable: (kid: string) =>
      Effect.map(Effect.flip(signedBy(kid)), (error) => assert.instanceOf(error, Unavailable)),
    fetches: () => world.provider.requests.length,
  }
})

describe("OidcKeys", () => {
  it.effect("fetches once, from the well-known path, without tracing headers", function* () {
    const { accepts, provider } = yield* keyWorld()
    yield* accepts("key-1").pipe(Effect.withSpan("request"))
    yield* accepts("key-1")
    assert.deepStrictEqual(
      provider.requests.map(({ path }) => path),
      ["/.well-known/jwks"],
    )
    assert.doesNotHaveAnyKeys(provider.requests[0]!.headers, ["traceparent", "b3"])
  })

  it.effect("fetches once for many tokens that arrive first together", function* () {
    const { accepts, fetches } = yield* keyWorld()
    yield* Effect.all(
      Array.from({ length: 50 }, () => accepts("key-1")),
      { concurrency: "unbounded" },
    )
    assert.strictEqual(fetches(), 1)
  })

  it.effect("continues to fetch when the first request ends", function* () {
    const { provider, accepts, fetches } = yield* keyWorld()
    provider.behave("slow")
    const first = yield* Effect.forkChild(accepts("key-1"))
    yield* provider.received(1)
    yield* Fiber.interrupt(first)
    provider.behave("normal")
    yield* accepts("key-1")
    assert.strictEqual(fetches(), 1)
  })

  it.effect("accepts a new key, and keeps an old one that is still published", function* () {
    const { provider, accepts, fetches } = yield* keyWorld()
    yield* accepts("key-1")
    provider.publish(rsaKey("key-1"), rsaKey("key-2"))
    yield* TestClock.adjust("31 seconds")
    yield* accepts("key-2")
    yield* accepts("key-1")
    assert.strictEqual(fetches(), 2)
  })

  it.effect("fetches for unknown kids at most once in 30 s, however many arrive", function* () {
    const { refuses, accepts, fetches } = yield* keyWorld()
    const flood = Effect.all(
      Array.from({ length: 20 }, () => refuses("key-2")),
      { concurrency: "unbounded" },
    )
    yield* accepts("key-1")
    yield* flood
    assert.strictEqual(fetches(), 1)
    yield* TestClock.adjust("29 seconds")
    yield* flood
    assert.strictEqual(fetches(), 1)
    yield* TestClock.adjust("1 second")
    yield* flood
    yield* flood
    assert.strictEqual(fetches(), 2)
  })

  it.effect("drops a withdrawn key within 10 minutes, or at the first token when idle", function* () {
    const { provider, accepts, refuses, fetches } = yield* keyWorld()
    yield* accepts("key-1")
    provider.publish(rsaKey("key-2"))
    yield* TestClock.adjust("9 minutes")
    yield* accepts("key-1")
    assert.strictEqual(fetches(), 1)
    yield* TestClock.adjust("1 minute")
    yield* refuses("key-1")
    yield* accepts("key-2")
  })

  it.effect("drops every key when the published set is empty", function* () {
    const { provider, accepts, refuses } = yield* keyWorld()
    yield* accepts("key-1")
    provider.publish()
    yield* TestClock.adjust("10 minutes")
    yield* refuses("key-1")
  })

  it.effect("keeps its keys while the provider is unavailable, and answers an unknown kid with a retry", function* () {
    const { provider, accepts, unavailable, fetches } = yield* keyWorld()
    yield* accepts("key-1")
    provider.behave("down")
    yield* TestClock.adjust("2 hours")
    yield* accepts("key-1")
    yield* accepts("key-1")
    yield* unavailable("key-2")
    assert.strictEqual(fetches(), 2)
    provider.behave("normal")
    provider.publish(rsaKey("key-2"))
    yield* TestClock.adjust("30 seconds")
    yield* accepts("key-2")
  })

  const faults: ReadonlyArray<Behaviour> = ["down", "error", "redirect", "oversized", "garbage", "no-key-set"]
  const clients = { undici: NodeHttpClient.layerUndici, fetch: NodeHttpClient.layerFetch }
  for (const [name, client] of Object.entries(clients)) {
    it.effect.each(faults)(`is unavailable without keys: %s (${name})`, function* (fault) {
      const { provider, accepts, unavailable } = yield* keyWorld({}, client)
      provider.behave(fault)
      yield* unavailable("key-1")
      provider.behave("normal")
      yield* unavailable("key-1")
      assert.deepStrictEqual(
        provider.requests.map(({ path }) => path),
        ["/.well-known/jwks"],
      )
      yield* TestClock.adjust("5 seconds")
      yield* accepts("key-1")
    })
  }

  it.effect.each(["slow", "trickle"] as const)(
    "has a deadline of five seconds for a provider: %s",
    function* (behaviour) {
      const { provider, unavailable, fetches } = yield* keyWorld()
      provider.behave(behaviour)
      const waiting = yield* Effect.forkChild(Effect.all([unavailable("key-1"), unavailable("key-1")]))
      yield* provider.received(1)
      yield* TestClock.adjust("4999 millis")
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(waiting)
      assert.strictEqual(fetches(), 1)
    },
  )

  it.effect("ignores members of the set that are no RSA signing key with a kid", function* () {
    const { provider, accepts, refuses } = yield* keyWorld()
    const { jwk } = rsaKey("key-2")
    const { kid: _, ...anonymous } = jwk
    const unusable = [
      { ...jwk, use: "enc" },
      { ...jwk, alg: "RS512" },
      { ...jwk, kty: "EC" },
      { ...jwk, kid: 2 },
    ]
    for (const member of [...unusable, anonymous, ecKey("key-2"), { ...jwk, e: 3 }, {}, null, "key-2"]) {
      provider.publish(member as SigningKey, rsaKey("key-1"))
      yield* accepts("key-1")
      yield* refuses("key-2")
      yield* TestClock.adjust("30 seconds")
    }
  })

  it.effect("accepts a key without use and alg, and only the public half of a private one", function* () {
    const { provider, accepts } = yield* keyWorld()
    const { use: _, alg: __, ...bare } = rsaKey("key-1").jwk
    provider.publish(bare, { ...rsaKey("key-2").privateKey.export({ format: "jwk" }), kid: "key-2" })
    yield* accepts("key-1")
    yield* accepts("key-2")
  })

  it.effect("tries each key of a kid that the set has twice", function* () {
    const { provider, verifySigned } = yield* keyWorld()
    const kid = "same"
    provider.publish(...["key-1", "key-2"].map((name) => ({ ...rsaKey(name).jwk, kid })))
    for (const name of ["key-1", "key-2"]) yield* verifySigned({}, { kid }, rs256(rsaKey(name)))
    const error = yield* Effect.flip(verifySigned({}, { kid }, rs256(rsaKey("key-3"))))
    assert.include(error.error, "signature is not the provider's")
    const expired = yield* Effect.flip(verifySigned({ exp: 1 }, { kid }, rs256(rsaKey("key-1"))))
    assert.include(expired.error, "has expired")
  })

  it.effect("accepts Ed25519 by its new name, with a key that has the old one", function* () {
    const { provider, verifySigned } = yield* keyWorld({ algorithms: ["Ed25519"] })
    const { privateKey, publicKey } = generateKeyPairSync("ed25519")
    const jwk = publicKey.export({ format: "jwk" })
    provider.publish({ ...jwk, kid: "old", alg: "EdDSA" }, { ...jwk, kid: "new", alg: "Ed25519" })
    const signer = (input: string) => sign(null, Buffer.from(input), privateKey)
    for (const kid of ["old", "new"]) yield* verifySigned({}, { kid, alg: "Ed25519" }, signer)
    yield* Effect.flip(verifySigned({}, { kid: "old", alg: "EdDSA" }, signer))
  })

  it.effect("finds the keys of an issuer that ends in a slash", function* () {
    const { provider } = yield* oidcWorld()
    const issuer = `${provider.issuer}/`
    const world = yield* oidcWorld({ issuer })
    yield* world.verify(yield* provider.sign({ iss: issuer }))
    assert.strictEqual(provider.requests[0]?.path, "/.well-known/jwks")
  })
})
