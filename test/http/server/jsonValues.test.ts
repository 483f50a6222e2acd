import { assert, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { hasTooManyValues, maxValues, repeatedMember } from "#src/http/server/requestBody.ts"

/** The number of objects, arrays and values in a value. */
const count = (value: unknown): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce<number>((sum, inner) => sum + count(inner), 1)
    : 1

/** JSON with this many additional values, long enough to be counted. */
const withMore = (json: string, more: number) =>
  Buffer.from(`[${json},"${'\\\\\\",[{'.repeat(40_000)}"${',{"a":[]}'.repeat(more / 2)}${",1".repeat(more % 2)}]`)

it.prop(
  "counts values as a parser does, to the last one",
  [Arbitrary.schema(Schema.Json)],
  ([value]) => {
    for (const json of [JSON.stringify(value), JSON.stringify(value, null, "\t")]) {
      const most = maxValues - 2 - count(value)
      assert.strictEqual(count(JSON.parse(withMore(json, most).toString())), maxValues)
      assert.isFalse(hasTooManyValues(withMore(json, most)))
      assert.isTrue(hasTooManyValues(withMore(json, most + 1)))
    }
  },
  { arbitrary: { runs: 20 } },
)

it("reads invalid JSON once, to its end", () => {
  for (const text of ['"', "\\", '"\\', "{", "[[", "\u0000", '{"', "}", ",,"]) {
    const bytes = Buffer.from(text.repeat(500_000))
    assert.isBoolean(hasTooManyValues(bytes))
    repeatedMember(bytes)
  }
})

// Seen failing: JSON.parse takes the last member, a proxy that reads or adds a member may take the first.
it.each([
  ['{"a":1,"a":2}', "a"],
  ['{"a":1,"\\u0061":2}', "a"],
  ['[{"b":[{"c":{}, "c" :{}}]}]', "c"],
  ['{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}', undefined],
  ['{"a":"\\"a\\":1,\\"a\\"","b":["a","a"]}', undefined],
  ['{"a":1,"A":2," a":3,"":4,"":5}', ""],
])("finds the member that %s has twice", (json, name) => assert.strictEqual(repeatedMember(Buffer.from(json)), name))

it.prop("finds no member twice in what a serializer writes", [Arbitrary.schema(Schema.Json)], ([value]) => {
  for (const json of [JSON.stringify(value), JSON.stringify(value, null, "\t")]) {
    assert.isUndefined(repeatedMember(Buffer.from(json)))
    assert.strictEqual(repeatedMember(Buffer.from(`[${json},{"a":${json},"a":1}]`)), "a")
  }
})
