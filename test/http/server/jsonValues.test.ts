import { assert, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { hasTooManyValues, maxValues } from "#src/http/server/requestBody.ts"

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
    assert.isBoolean(hasTooManyValues(Buffer.from(text.repeat(500_000))))
  }
})
