import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Batches from "#src/domain/Batches.ts"

/** Look-ups that write down how much is asked at once; there is a value under every key but the odd ones. */
const makeWorld = Effect.gen(function* () {
  const sizes: Array<number> = []
  const lookUp = yield* Batches.make((keys: ReadonlyArray<string>) => {
    sizes.push(keys.length)
    return Effect.succeed(new Map(keys.filter((key) => Number(key) % 2 === 0).map((key) => [key, `value of ${key}`])))
  }, 256)
  const find = (key: string) => Effect.callback<string | undefined>((resume) => lookUp(key, resume))
  return { find, sizes }
})

it.effect("what is asked in one turn is one question, and each key is in it once", () =>
  Effect.gen(function* () {
    const { find, sizes } = yield* makeWorld
    const found = yield* Effect.forEach(["2", "3", "2", "4"], find, { concurrency: "unbounded" })
    assert.deepStrictEqual(found, ["value of 2", undefined, "value of 2", "value of 4"])
    assert.deepStrictEqual(sizes, [3])
  }),
)

it.effect("more than a question holds are several, and none is left out", () =>
  Effect.gen(function* () {
    const { find, sizes } = yield* makeWorld
    const keys = Array.from({ length: 600 }, (_, n) => String(n))
    const found = yield* Effect.forEach(keys, find, { concurrency: "unbounded" })
    assert.deepStrictEqual(
      found,
      keys.map((key) => (Number(key) % 2 === 0 ? `value of ${key}` : undefined)),
    )
    assert.deepStrictEqual(sizes, [256, 256, 88])
  }),
)
