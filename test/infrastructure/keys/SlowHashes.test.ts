import { expect } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { noRoom } from "#src/domain/keys/KeyChecks.ts"
import * as SlowHashes from "#src/infrastructure/keys/SlowHashes.ts"
import { it } from "../../support/it.ts"

/** Slow hashes whose computation ends when the test says so, in the order in which they were begun. */
const made = Effect.gen(function* () {
  const begun: Array<string> = []
  const mayEnd = yield* Deferred.make<void>()
  const slowHashes = yield* SlowHashes.make(({ key }) => {
    begun.push(key)
    return Effect.as(Deferred.await(mayEnd), true)
  })
  const ask = (orgId: string, network: string, key: string) =>
    Effect.forkChild(slowHashes.ask(orgId, network, { key, hash: "hash" }), {
      startImmediately: true,
    })
  return { ask, begun, end: Deferred.succeed(mayEnd, undefined) }
})

const keys = (name: string, count: number) => Array.from({ length: count }, (_, n) => `${name}${n + 1}`)

it.effect("orgs take turns, and in each org the networks", function* () {
  const { ask, begun, end } = yield* made
  const flood = yield* Effect.forEach(keys("flood", 4), (key) => ask("one", "a", key))
  const others = [yield* ask("one", "b", "neighbour"), yield* ask("two", "a", "other org")]
  yield* end
  yield* Fiber.joinAll([...flood, ...others])
  expect(begun).toEqual(["flood1", "other org", "neighbour", "flood2", "flood3", "flood4"])
})

it.effect("the same key and hash asked twice are computed once", function* () {
  const { ask, begun, end } = yield* made
  const both = [yield* ask("one", "a", "key"), yield* ask("one", "b", "key")]
  yield* end
  expect(yield* Fiber.joinAll(both)).toEqual([true, true])
  expect(begun).toEqual(["key"])
})

it.effect("a network, an org and all together have room for so many, and what finds none fails at once", function* () {
  const { ask } = yield* made
  // One is computed, and waits for nothing.
  yield* ask("first", "a", "computed")
  yield* Effect.yieldNow
  const refused = (orgId: string, network: string) =>
    Effect.map(
      Effect.flatMap(ask(orgId, network, `${orgId} ${network} more`), (fiber) => Effect.exit(Fiber.join(fiber))),
      (exit) => expect(exit).toEqual(Effect.runSyncExit(noRoom)),
    )
  const fill = (orgId: string, network: string) =>
    Effect.forEach(keys(`${orgId} ${network} `, 16), (key) => ask(orgId, network, key))
  yield* fill("one", "a")
  yield* refused("one", "a")
  for (const network of ["b", "c", "d"]) yield* fill("one", network)
  yield* refused("one", "e")
  for (const org of ["two", "three", "four", "five", "six", "seven", "eight"])
    for (const network of ["a", "b", "c", "d"])
      yield* Effect.forEach(keys(`${org} ${network} `, org === "eight" && network === "d" ? 15 : 16), (key) =>
        ask(org, network, key),
      )
  yield* refused("nine", "a")
})
