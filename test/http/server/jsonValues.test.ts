import { assert, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { hasTooManyValues, maxValues } from "#src/http/server/jsonValues.ts"

/** Objects, arrays and what is in them. */
const count = (value: unknown): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce<number>((sum, inner) => sum + count(inner), 1)
    : 1

/** JSON of so many values more, long enough to be looked at. */
const withMore = (json: string, more: number) =>
  Buffer.from(`[${json},"${'\\\\\\",[{'.repeat(40_000)}"${',{"a":[]}'.repeat(more / 2)}${",1".repeat(more % 2)}]`)

it.prop(
  "values are counted as a parser has them, to the last one",
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

it("bytes that are no JSON are looked at once, to their end", () => {
  for (const text of ['"', "\\", '"\\', "{", "[[", "\u0000", '{"', "}", ",,"]) {
    assert.isBoolean(hasTooManyValues(Buffer.from(text.repeat(500_000))))
  }
})
