import { assert } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger } from "effect"
import { RequestOrg } from "#src/domain/Principal.ts"
import * as Batches from "#src/infrastructure/database/Batches.ts"
import { orAlone } from "#src/infrastructure/database/Batches.ts"
import { it } from "../../support/it.ts"

/** Look-ups that record the size of each query; every even key has a value. */
const makeWorld = Effect.gen(function* () {
  const sizes: Array<number> = []
  const lookUp = yield* Batches.make((keys: ReadonlyArray<string>) => {
    sizes.push(keys.length)
    return Effect.succeed(new Map(keys.filter((key) => Number(key) % 2 === 0).map((key) => [key, `value of ${key}`])))
  }, 256)
  const find = (key: string) => Effect.callback<string | undefined>((resume) => void lookUp(key, resume))
  return { find, lookUp, sizes }
})

it.effect("look-ups of one turn are one query, with each key once", function* () {
  const { find, sizes } = yield* makeWorld
  const found = yield* Effect.forEach(["2", "3", "2", "4"], find, { concurrency: "unbounded" })
  assert.deepStrictEqual(found, ["value of 2", undefined, "value of 2", "value of 4"])
  assert.deepStrictEqual(sizes, [3])
})

it.effect("more keys than a query holds are several queries, without losing one", function* () {
  const { find, sizes } = yield* makeWorld
  const keys = Array.from({ length: 600 }, (_, n) => String(n))
  const found = yield* Effect.forEach(keys, find, { concurrency: "unbounded" })
  assert.deepStrictEqual(
    found,
    keys.map((key) => (Number(key) % 2 === 0 ? `value of ${key}` : undefined)),
  )
  assert.deepStrictEqual(sizes, [256, 256, 88])
})

// Seen failing when the query was sent although nobody waited for it.
it.effect("an interrupted look-up is not sent", function* () {
  const { find, lookUp, sizes } = yield* makeWorld
  const taken = ["2", "4"].map((question) => lookUp(question, () => assert.fail("It was canceled")))
  for (const cancel of taken) cancel()
  yield* Effect.yieldNow
  yield* Effect.yieldNow
  assert.deepStrictEqual(sizes, [])
  const cancel = lookUp("6", () => assert.fail("It was canceled"))
  const found = find("8")
  cancel()
  assert.strictEqual(yield* found, "value of 8")
  assert.deepStrictEqual(sizes, [1])
})

// Seen failing when the other look-up was never answered, and after two throws no look-up was.
it.effect("a callback that throws affects no other answer and frees its slot", () =>
  Effect.gen(function* () {
    const { find, lookUp } = yield* makeWorld
    for (let n = 0; n < 3; n++) {
      lookUp("2", () => {
        throw new Error("of the test")
      })
      assert.strictEqual(yield* find("4"), "value of 4")
    }
    assert.strictEqual(yield* find("6"), "value of 6")
  }).pipe(Effect.provide(Logger.layer([]))),
)

// Seen failing when it was never answered, and after two throws no look-up was.
it.effect("a query that throws instead of failing frees its slot", function* () {
  const lookUp = yield* Batches.make((keys: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, string>> => {
    if (keys.includes("bad")) throw new Error("of the test")
    return Effect.succeed(new Map([["good", "value"]]))
  }, 256)
  const find = (key: string) => Effect.callback<string | undefined>((resume) => void lookUp(key, resume))
  for (let n = 0; n < 3; n++) assert.isTrue(Exit.hasDies(yield* Effect.exit(find("bad"))))
  assert.strictEqual(yield* find("good"), "value")
})

it.effect("a hanging statement of one org does not delay other orgs, and runs as its org", function* () {
  const asked: Array<string> = []
  const [begun, stuck] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  const batchOf = yield* Batches.makeByOrg(
    (orgId, keys: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        asked.push(`${orgId} as ${yield* RequestOrg}: ${keys.join()}`)
        if (orgId === "slow") yield* Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(stuck))
        return new Map(keys.map((key) => [key, `${orgId} ${key}`]))
      }),
    256,
  )
  const find = (orgId: string, key: string) =>
    Effect.callback<string | undefined>((resume) => void batchOf(orgId)(key, resume))
  const slow = yield* Effect.forkChild(
    Effect.forEach(["1", "2", "3"], (key) => find("slow", key), { concurrency: "unbounded" }),
  )
  yield* Deferred.await(begun)
  const fast = yield* Effect.forEach(["1", "2"], (key) => find("fast", key), { concurrency: "unbounded" })
  assert.deepStrictEqual(fast, ["fast 1", "fast 2"])
  assert.deepStrictEqual(asked.toSorted(), ["fast as fast: 1,2", "slow as slow: 1,2,3"])
  assert.isUndefined(slow.pollUnsafe())
  yield* Deferred.succeed(stuck, undefined)
  assert.deepStrictEqual(yield* Fiber.join(slow), ["slow 1", "slow 2", "slow 3"])
})

it.effect("changes that share a failing statement are repeated one by one, and only the bad one fails", function* () {
  const sizes: Array<number> = []
  const run = orAlone((all: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      sizes.push(all.length)
      if (all.includes("bad")) return Effect.die(new Error("no such column"))
      return Effect.succeed(new Map(all.filter((one) => one !== "none").map((one) => [one, one.length])))
    }),
  )
  const outcomes = yield* run(["good", "bad", "none"])
  assert.deepStrictEqual(outcomes.get("good"), Exit.succeed(4))
  assert.deepStrictEqual(outcomes.get("none"), Exit.succeed(undefined))
  assert.isTrue(Exit.hasDies(outcomes.get("bad")!))
  assert.deepStrictEqual(sizes, [3, 1, 1, 1])
  assert.deepStrictEqual((yield* run(["good"])).get("good"), Exit.succeed(4))
})
