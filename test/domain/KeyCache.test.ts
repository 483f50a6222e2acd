import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Queue, Stream } from "effect"
import type { KeyGrant } from "../../src/domain/ApiKeys.ts"
import * as KeyCache from "../../src/domain/KeyCache.ts"

const grant: KeyGrant = { keyId: "key", orgId: "org", projectId: "", expiresAt: null, rateLimit: null }

/** A cache whose replica hears what is told, and a look-up that counts. */
const makeWorld = Effect.gen(function* () {
  const told = yield* Queue.unbounded<KeyCache.Revocation>()
  const cache = yield* KeyCache.make.pipe(Effect.provideService(KeyCache.KeyRevocations, Stream.fromQueue(told)))
  let lookUps = 0
  const lookUp = Effect.sync(() => {
    lookUps++
    return Option.some(grant)
  })
  return {
    cache,
    tell: (...words: ReadonlyArray<KeyCache.Revocation>) =>
      Effect.forEach(words, (word) => Effect.andThen(Queue.offer(told, word), settle)),
    /** How many look-ups `n` questions for the key come to. */
    ask: Effect.fnUntraced(function* (n: number) {
      const before = lookUps
      for (let i = 0; i < n; i++) assert.deepStrictEqual(yield* cache.through("hash", lookUp), Option.some(grant))
      return lookUps - before
    }),
  }
})

/** Lets the fiber that hears run. */
const settle = Effect.repeat(Effect.yieldNow, { times: 20 })

const { Hearing, Deaf, Revoked } = KeyCache.Revocation

it.effect("asks every time until it hears, and once from then on", () =>
  Effect.gen(function* () {
    const { ask, tell } = yield* makeWorld
    assert.strictEqual(yield* ask(3), 3)
    yield* tell(Hearing())
    assert.strictEqual(yield* ask(3), 1)
  }),
)

it.effect("asks every time while it is deaf, and forgets what it held", () =>
  Effect.gen(function* () {
    const { ask, tell } = yield* makeWorld
    yield* tell(Hearing())
    yield* ask(1)
    yield* tell(Deaf())
    assert.strictEqual(yield* ask(2), 2)
    yield* tell(Hearing())
    assert.strictEqual(yield* ask(2), 1)
  }),
)

it.effect("forgets a key that was deleted, here or elsewhere, and no other", () =>
  Effect.gen(function* () {
    const { ask, cache, tell } = yield* makeWorld
    yield* tell(Hearing())
    yield* ask(1)
    yield* tell(Revoked({ keyId: "another" }))
    assert.strictEqual(yield* ask(1), 0)
    yield* tell(Revoked({ keyId: "key" }))
    assert.strictEqual(yield* ask(2), 1)
    yield* cache.forget("key")
    assert.strictEqual(yield* ask(2), 1)
  }),
)

// Each word makes the look-up's result too old to keep: seen failing without the epoch.
for (const word of [Revoked({ keyId: "key" }), Deaf(), Hearing()]) {
  it.effect(`does not keep what was looked up while it was told ${word._tag}`, () =>
    Effect.gen(function* () {
      const { ask, cache, tell } = yield* makeWorld
      yield* tell(Hearing())
      const answer = yield* Deferred.make<Option.Option<KeyGrant>>()
      const asking = yield* Effect.forkChild(cache.through("hash", Deferred.await(answer)))
      yield* settle
      yield* tell(word, Hearing())
      yield* Deferred.succeed(answer, Option.some(grant))
      assert.deepStrictEqual(yield* Fiber.join(asking), Option.some(grant))
      assert.strictEqual(yield* ask(1), 1)
    }),
  )
}

it.effect("does not keep that a key is unknown", () =>
  Effect.gen(function* () {
    const { ask, cache, tell } = yield* makeWorld
    yield* tell(Hearing())
    assert.deepStrictEqual(yield* cache.through("hash", Effect.succeedNone), Option.none())
    assert.strictEqual(yield* ask(1), 1)
  }),
)

it.effect("holds a bounded number of keys, the latest", () =>
  Effect.gen(function* () {
    const { cache, tell } = yield* makeWorld
    yield* tell(Hearing())
    const known = (n: number) => cache.through(`hash ${n}`, Effect.succeedSome({ ...grant, keyId: `key ${n}` }))
    yield* Effect.forEach(
      Array.from({ length: 100_001 }, (_, n) => n),
      known,
      { discard: true },
    )
    const unknown = Effect.succeedNone
    assert.deepStrictEqual(yield* cache.through("hash 0", unknown), Option.none())
    assert.isTrue(Option.isSome(yield* cache.through("hash 1", unknown)))
    assert.isTrue(Option.isSome(yield* cache.through("hash 100000", unknown)))
  }),
)
