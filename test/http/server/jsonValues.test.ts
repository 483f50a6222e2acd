import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { countNames, hasRepeatedName, parseJson, repeatedName, scanJson } from "#src/domain/exactJson.ts"

/**
 * Promise (Documented responses): JSON with the same member twice is a 400 that names it, at any depth and in any
 * spelling.
 */

/** The number of objects, arrays and values in a value. */
const count = (value: unknown): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce<number>((sum, inner) => sum + count(inner), 1)
    : 1

it.prop(
  "counts values and names as a parser does, to the last one",
  [Arbitrary.schema(Schema.Json)],
  ([value]) => {
    for (const json of [JSON.stringify(value), JSON.stringify(value, null, "\t")]) {
      const text = `[${json},"${'\\\\\\",[{:'.repeat(100)}",{"a":[]}]`
      const parsed: unknown = JSON.parse(text)
      const { names, values } = scanJson(text)
      assert.deepStrictEqual({ names, values }, { names: countNames(parsed), values: count(parsed) })
      assert.strictEqual(scanJson(text, values - 1).values, values)
    }
  },
  { arbitrary: { runs: 50 } },
)

it("reads invalid JSON once, to its end", () => {
  for (const text of ['"', "\\", '"\\', "{", "[[", "\u0000", '{"', "}", ",,", "-", "1e", "0."]) {
    assert.isAtLeast(scanJson(text.repeat(500_000)).values, 1)
  }
})

// Seen failing: JSON.parse takes the last member, a proxy that reads or adds a member may take the first.
it.each([
  ['{"a":1,"a":2}', "a"],
  ['{"a":1,"\\u0061":2}', "a"],
  ['[{"b":[{"c":{}, "c" :{}}]}]', "c"],
  ['{"__proto__":1,"__proto__":2}', "__proto__"],
  ['{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}', undefined],
  ['{"a":"\\"a\\":1,\\"a\\"","b":["a","a"]}', undefined],
  ['{"a":1,"A":2," a":3,"":4,"":5}', ""],
])("finds the member that %s has twice", (json, name) => {
  assert.strictEqual(repeatedName(json), name)
  assert.strictEqual(hasRepeatedName(json, JSON.parse(json)), name !== undefined)
})

it.prop("finds no member twice in what a serializer writes", [Arbitrary.schema(Schema.Json)], ([value]) => {
  for (const json of [JSON.stringify(value), JSON.stringify(value, null, "\t")]) {
    assert.isFalse(hasRepeatedName(json, JSON.parse(json)))
    assert.strictEqual(repeatedName(`[${json},{"a":${json},"a":1}]`), "a")
  }
})

describe("the text of numbers", () => {
  it.each(
    "9007199254740993 -9007199254740993 123456789.123456789012345 -0 -0.0 0.0 1.0 1.50 1e-400 1E5 1e5 1e+2 100000000000000000000 0.00000010 1e-7"
      .split(" ")
      .flatMap((number) => [number, `[${number}]`, `{"a":[{"b":${number},"c":"1.0"}]}`]),
  )("%s stays as it is", (text) => assert.strictEqual(JSON.stringify(parseJson(text)), text))

  it.prop("what JavaScript writes has no raw numbers", [Arbitrary.schema(Schema.Json)], ([value]) => {
    assert.isFalse(scanJson(JSON.stringify(value)).hasRawNumbers)
  })
})
