import { assert, describe, it } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer, Queue, Redacted, Stream } from "effect"
import { TestClock } from "effect/testing"
import { isWellFormed, type RotateKey } from "#src/domain/keys/ApiKey.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { KeyRevocations, Revocation } from "#src/infrastructure/keys/KeyCache.ts"
import * as fakes from "../../fakes/repositories.ts"
import { World } from "../../fakes/World.ts"
import { asAdministrator, asAnonymous, failureOf, makeTenant, nowPlus, outcomeOf, services } from "../support.ts"
import { settle } from "../webhooks/webhookSupport.ts"

const rotate = (orgId: string, keyId: string, input: typeof RotateKey.Type = {}) =>
  ApiKeys.use((keys) => asAdministrator(keys.rotate(orgId, keyId, input)))
const validate = (key: string) => ApiKeys.use((keys) => asAnonymous(keys.validate(Redacted.make(key), "::1")))
const expiryOf = (keyId: string) => Effect.map(World, ({ keys }) => keys.get(keyId)!.row.expiresAt)

describe("rotating a key", () => {
  it.effect("gives a new one for the same, and leaves the old one good for a day", () =>
    Effect.gen(function* () {
      const { orgId, projectId, projectKey } = yield* makeTenant
      const next = yield* rotate(orgId, projectKey.id)
      assert.isTrue(isWellFormed(next.key))
      assert.deepStrictEqual(Object.keys(next), ["id", "name", "prefix", "key"])
      assert.deepStrictEqual([next.name, next.prefix], ["project", next.key.slice(0, 12)])
      assert.deepStrictEqual(yield* validate(next.key), { keyId: next.id, orgId, projectId })
      yield* TestClock.adjust("86399999 millis")
      assert.deepStrictEqual(yield* validate(projectKey.key), { keyId: projectKey.id, orgId, projectId })
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* outcomeOf(validate(projectKey.key)), "Unauthorized")
      assert.deepStrictEqual(yield* validate(next.key), { keyId: next.id, orgId, projectId })
    }).pipe(Effect.provide(services())),
  )

  it.effect("without an overlap ends the old one with the same breath", () =>
    Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const next = yield* rotate(orgId, orgKey.id, { overlapSeconds: 0 })
      assert.strictEqual(yield* outcomeOf(validate(orgKey.key)), "Unauthorized")
      assert.strictEqual(yield* outcomeOf(validate(next.key)), "ok")
    }).pipe(Effect.provide(services())),
  )

  it.effect("takes an expiresAt in the future, or none at all", () =>
    Effect.gen(function* () {
      const { orgId, orgKey, projectKey } = yield* makeTenant
      for (const milliseconds of [-1, 0]) {
        const body = yield* failureOf(rotate(orgId, orgKey.id, { expiresAt: yield* nowPlus(milliseconds) }))
        assert.match(body, /expiresAt must be a time in the future/)
      }
      const expiresAt = yield* nowPlus(1)
      const short = yield* rotate(orgId, orgKey.id, { expiresAt })
      assert.deepStrictEqual(yield* expiryOf(short.id), expiresAt)
      const forever = yield* rotate(orgId, projectKey.id, { expiresAt: null })
      assert.strictEqual(yield* expiryOf(forever.id), null)
    }).pipe(Effect.provide(services())),
  )

  it.effect("is refused once the key was rotated, its end included; the new one can be", () =>
    Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const next = yield* rotate(orgId, orgKey.id, { overlapSeconds: 60 })
      assert.include(yield* failureOf(rotate(orgId, orgKey.id)), "rotated before")
      yield* TestClock.adjust("1 minute")
      assert.include(yield* failureOf(rotate(orgId, orgKey.id)), "rotated before")
      const last = yield* rotate(orgId, next.id, { overlapSeconds: 60 })
      const { expiresAt } = (yield* World).keys.get(next.id)!.row
      assert.deepStrictEqual([last.name, expiresAt], [orgKey.name, yield* nowPlus(60_000)])
    }).pipe(Effect.provide(services())),
  )
})

describe("rotating a key that is held in memory", () => {
  /** Services that hear, so that they hold keys in memory; `slow` look-ups wait until they are let go. */
  const hearing = (gate?: Deferred.Deferred<void>) => {
    const slow = Layer.effect(
      ApiKeyRepository,
      ApiKeyRepository.use((repository) =>
        Effect.succeed({
          ...repository,
          findByHashes: (hashes: ReadonlyArray<string>) =>
            Effect.tap(repository.findByHashes(hashes), () =>
              gate === undefined ? Effect.void : Deferred.await(gate),
            ),
        }),
      ),
    ).pipe(Layer.provideMerge(fakes.layer))
    return services({ repositories: slow }).pipe(
      Layer.provide(
        Layer.effect(
          KeyRevocations,
          Effect.gen(function* () {
            const told = yield* Queue.unbounded<Revocation>()
            yield* Queue.offer(told, Revocation.Connected())
            return Stream.fromQueue(told)
          }),
        ),
      ),
    )
  }

  // Seen failing without the cache's forgetting: the old key stays good for ever.
  it.effect("ends it here without waiting for word of it", () =>
    Effect.gen(function* () {
      yield* settle
      const { orgId, orgKey } = yield* makeTenant
      yield* validate(orgKey.key)
      yield* rotate(orgId, orgKey.id, { overlapSeconds: 10 })
      yield* TestClock.adjust("9999 millis")
      assert.strictEqual(yield* outcomeOf(validate(orgKey.key)), "ok")
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* outcomeOf(validate(orgKey.key)), "Unauthorized")
    }).pipe(Effect.provide(hearing())),
  )

  it.effect("a validation under way meanwhile is answered, and what it looked up is not kept", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      yield* Effect.gen(function* () {
        yield* settle
        const { orgId, orgKey } = yield* makeTenant
        const asking = yield* Effect.forkChild(validate(orgKey.key))
        yield* settle
        yield* rotate(orgId, orgKey.id, { overlapSeconds: 0 })
        yield* Deferred.succeed(gate, undefined)
        assert.strictEqual((yield* Fiber.join(asking)).keyId, orgKey.id)
        assert.strictEqual(yield* outcomeOf(validate(orgKey.key)), "Unauthorized")
      }).pipe(Effect.provide(hearing(gate)))
    }),
  )
})

// What a rotation gives is in one answer and nowhere else.
it.effect("the new key is not among what is kept", () =>
  Effect.gen(function* () {
    const { orgId, orgKey } = yield* makeTenant
    const { key } = yield* rotate(orgId, orgKey.id)
    const { keys, audit } = yield* World
    const kept = JSON.stringify([...keys.values(), ...audit.values()], (_, value) =>
      DateTime.isDateTime(value) ? DateTime.formatIso(value) : value,
    )
    assert.include(kept, "key.rotate")
    assert.notInclude(kept, key.slice(12))
  }).pipe(Effect.provide(services())),
)
