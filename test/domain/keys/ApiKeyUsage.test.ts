import { assert, describe } from "@effect/vitest"
import { Clock, DateTime, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import * as KeyUsage from "#src/infrastructure/keys/keyUsageSql.ts"
import * as fakes from "../../fakes/repositories.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, failureOf, makeTenant, nowPlus, services } from "../support.ts"

/** Services that record their writes of key usage. `control.before` delays a write or makes it fail. */
const watched = () => {
  const writes: Array<Record<string, number>> = []
  const control: { before: Effect.Effect<void, Unavailable> } = { before: Effect.void }
  const watchedTouch = Layer.effect(
    ApiKeyRepository,
    ApiKeyRepository.use((repository) =>
      Effect.succeed({
        ...repository,
        touch: (usage) =>
          Effect.suspend(() => {
            writes.push(Object.fromEntries([...usage].map(([id, time]) => [id, DateTime.toEpochMillis(time)])))
            return Effect.andThen(control.before, repository.touch(usage))
          }),
      }),
    ),
  ).pipe(Layer.provideMerge(fakes.layer))
  return { writes, control, layer: services({ repositories: watchedTouch }) }
}

const use = ({ key }: { readonly key: string }) =>
  ApiKeys.use((keys) => keys.authenticate(Redacted.make(key), "127.0.0.1"))
const flush = ApiKeys.use((keys) => keys.flushUsage)
const lastUse = (id: string) =>
  World.use(({ keys }) =>
    Effect.sync(() => {
      const time = keys.get(id)?.row.lastUsedAt
      return time == null ? time : DateTime.toEpochMillis(time)
    }),
  )
const down = Effect.fail(new Unavailable({ error: "down" }))

describe("the times of last use", () => {
  it.effect("are written in the background, all in one batch, the newest of each key", () => {
    const { layer, writes } = watched()
    return Effect.gen(function* () {
      const { orgKey: a, projectKey: b } = yield* makeTenant
      yield* use(a)
      yield* TestClock.adjust(5)
      yield* use(b)
      yield* use(a)
      assert.deepStrictEqual([writes.length, yield* lastUse(a.id)], [0, null])
      yield* flush
      assert.deepStrictEqual(writes, [{ [a.id]: 5, [b.id]: 5 }])
      assert.strictEqual(yield* lastUse(a.id), 5)
      yield* flush
      assert.strictEqual(writes.length, 1)
    }).pipe(Effect.provide(layer))
  })

  it.effect("are only of keys that were valid", () => {
    const { layer, writes } = watched()
    return Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const keys = yield* ApiKeys
      const world = yield* World
      const stored = world.keys.get(orgKey.id)!
      world.keys.set(orgKey.id, { ...stored, row: { ...stored.row, expiresAt: yield* nowPlus(0) } })
      for (const key of [orgKey.key, `${orgKey.key}x`, "svc_"]) yield* failureOf(use({ key }))
      yield* keys.flushUsage
      assert.deepStrictEqual([writes, orgId], [[], stored.orgId])
    }).pipe(Effect.provide(layer))
  })

  it.effect("are kept when a write fails, and the newest is written the next time", () => {
    const { layer, writes, control } = watched()
    return Effect.gen(function* () {
      const { orgKey: a, projectKey: b } = yield* makeTenant
      yield* use(a)
      yield* use(b)
      control.before = down
      assert.include(yield* failureOf(flush), "unavailable")
      assert.include(yield* failureOf(flush), "unavailable")
      yield* TestClock.adjust(7)
      yield* use(a)
      control.before = Effect.void
      yield* flush
      assert.deepStrictEqual(writes.at(-1), { [a.id]: 7, [b.id]: 0 })
      yield* flush
      assert.strictEqual(writes.length, 3)
    }).pipe(Effect.provide(layer))
  })

  it.effect("are written next time when they come during a write, also when that write fails", () => {
    const { layer, writes, control } = watched()
    return Effect.gen(function* () {
      const { orgKey: a, projectKey: b } = yield* makeTenant
      for (const after of [Effect.void, down]) {
        const go = yield* Deferred.make<void>()
        control.before = Effect.andThen(Deferred.await(go), after)
        const start = yield* Clock.currentTimeMillis
        yield* use(a)
        yield* use(b)
        const flushing = yield* Effect.forkChild(Effect.exit(flush), { startImmediately: true })
        yield* TestClock.adjust(3)
        yield* use(a)
        yield* Deferred.succeed(go, undefined)
        yield* Fiber.join(flushing)
        control.before = Effect.void
        yield* flush
        const rest = after === down ? { [b.id]: start } : {}
        assert.deepStrictEqual(writes.at(-1), { [a.id]: start + 3, ...rest })
      }
    }).pipe(Effect.provide(layer))
  })

  it.effect("are kept when a write is interrupted, as at shutdown", () => {
    const { layer, control } = watched()
    return Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      yield* TestClock.adjust(4)
      yield* use(orgKey)
      for (const cut of [Effect.never, Effect.die("fault")]) {
        control.before = cut
        const flushing = yield* Effect.forkChild(flush, { startImmediately: true })
        yield* Fiber.interrupt(flushing)
      }
      control.before = Effect.void
      yield* flush
      assert.strictEqual(yield* lastUse(orgKey.id), 4)
    }).pipe(Effect.provide(layer))
  })

  it.effect("are written every five seconds, also after a failure, and once more at the end", () => {
    const { layer, control } = watched()
    return Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      const useAfter = (seconds: number) => Effect.andThen(TestClock.adjust(`${seconds} seconds`), use(orgKey))
      yield* Effect.gen(function* () {
        control.before = Effect.die("fault")
        yield* useAfter(4)
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(yield* lastUse(orgKey.id), null)
        control.before = Effect.void
        yield* TestClock.adjust("4 seconds")
        assert.strictEqual(yield* lastUse(orgKey.id), 4_000)
        yield* useAfter(1)
      }).pipe(Effect.provide(KeyUsage.usageWorker))
      assert.strictEqual(yield* lastUse(orgKey.id), 11_000)
    }).pipe(Effect.provide(layer))
  })

  // Seen failing with one statement for all keys.
  it.effect("are written a thousand keys at a time, and a failure does not repeat earlier writes", () => {
    const { control, layer, writes } = watched()
    return Effect.gen(function* () {
      const { orgId } = yield* makeTenant
      const { createForOrg } = yield* ApiKeys
      for (let n = 0; n < 1_001; n++) yield* use(yield* asAdministrator(createForOrg(orgId, { name: "k" })))
      control.before = Effect.suspend(() => (writes.length === 2 ? down : Effect.void))
      yield* Effect.flip(flush)
      yield* flush
      assert.deepStrictEqual(
        writes.map((write) => Object.keys(write).length),
        [1_000, 1, 1],
      )
      assert.deepStrictEqual(writes[1], writes[2])
    }).pipe(Effect.provide(layer))
  })
})
