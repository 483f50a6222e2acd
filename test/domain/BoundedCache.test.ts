import { describe, expect } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import * as BoundedCache from "#src/domain/BoundedCache.ts"
import { it } from "../support/it.ts"

const always = () => true

describe("a bounded cache", () => {
  it.effect("keeps the most recently used values, up to its bytes", function* () {
    const cache = yield* BoundedCache.make<string, never>(100)
    const made: Array<string> = []
    const get = (key: string, bytes = 40) =>
      cache.get("owner", key, always, () => Effect.sync(() => (made.push(key), { value: key.toUpperCase(), bytes })))
    expect([yield* get("a"), yield* get("b"), yield* get("a")]).toEqual(["A", "B", "A"])
    expect([made, cache.bytes()]).toEqual([["a", "b"], 80])
    yield* get("c")
    expect(cache.bytes()).toBe(80)
    yield* get("a")
    expect(made).toEqual(["a", "b", "c"])
    yield* get("b")
    expect(made).toEqual(["a", "b", "c", "b"])
    // Larger than the whole cache: returned, not cached, and nothing is evicted for it.
    expect(yield* get("huge", 101)).toBe("HUGE")
    yield* get("huge", 101)
    expect([made.slice(4), cache.bytes()]).toEqual([["huge", "huge"], 80])
    for (let n = 0; n < 1_000; n++) yield* get(`key ${n}`, 10)
    expect(cache.bytes()).toBe(100)
  })

  it.effect("an owner with more than half of the bytes replaces its own values", function* () {
    const cache = yield* BoundedCache.make<string, never>(100)
    const made: Array<string> = []
    const get = (key: string) =>
      cache.get(key[0]!, key, always, () => Effect.sync(() => (made.push(key), { value: key, bytes: 20 })))
    yield* Effect.forEach(["b1", "a1", "a2", "a3", "a4"], get)
    yield* Effect.forEach(["a5", "a6", "a7"], get)
    made.length = 0
    yield* get("b1")
    expect(made).toEqual([])
    yield* Effect.forEach(["b2", "b3"], get)
    // When no other owner has more than half, the oldest value is evicted.
    yield* get("a7")
    yield* get("a4")
    expect(made).toEqual(["b2", "b3", "a4"])
  })

  it.effect("refreshes a stale value from the previous one", function* () {
    const cache = yield* BoundedCache.make<number, never>(100)
    const next = (fresh: boolean) =>
      cache.get(
        "owner",
        "a",
        () => fresh,
        (previous = 0) => Effect.succeed({ value: previous + 1, bytes: 10 }),
      )
    expect([yield* next(true), yield* next(true), yield* next(false), yield* next(true)]).toEqual([1, 1, 2, 2])
    expect(cache.bytes()).toBe(10)
  })

  it.effect("creates a value once for concurrent reads, even when the first reader leaves", function* () {
    const cache = yield* BoundedCache.make<string, never>(100)
    const gate = yield* Deferred.make<void>()
    let made = 0
    const get = cache.get("owner", "a", always, () =>
      Effect.andThen(
        Effect.sync(() => void made++),
        Effect.as(Deferred.await(gate), { value: "A", bytes: 1 }),
      ),
    )
    const first = yield* Effect.forkChild(get, { startImmediately: true })
    const second = yield* Effect.forkChild(get, { startImmediately: true })
    yield* Fiber.interrupt(first)
    yield* Deferred.succeed(gate, undefined)
    expect([yield* Fiber.join(second), yield* get, made]).toEqual(["A", "A", 1])
  })

  it.effect("does not keep a failure: all waiting readers get it, and the next read tries again", function* () {
    const cache = yield* BoundedCache.make<string, string>(100)
    let fails = true
    const get = cache.get("owner", "a", always, () =>
      fails ? Effect.fail("no") : Effect.succeed({ value: "A", bytes: 1 }),
    )
    const exits = yield* Effect.all([Effect.exit(get), Effect.exit(get)], { concurrency: 2 })
    expect(exits.map(Exit.isFailure)).toEqual([true, true])
    const defect = yield* Effect.exit(cache.get("owner", "b", always, () => Effect.die("oh")))
    expect(Exit.hasDies(defect)).toBe(true)
    fails = false
    expect(yield* get).toBe("A")
  })
})
