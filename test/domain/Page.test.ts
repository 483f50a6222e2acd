import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { cutRows, nextCursor, nextCursorIfMore, pageQuery } from "#src/domain/Page.ts"

describe("a page", () => {
  it.each([
    [[], 1, [], null],
    [["a"], 1, ["a"], null],
    [["a", "b"], 1, ["a"], "a"],
    [["a", "b"], 2, ["a", "b"], null],
    [["a", "b", "c"], 2, ["a", "b"], "b"],
    [["a"], 100, ["a"], null],
  ] as const)("%j in pages of %i: %j, then %s", (rows, limit, items, next) => {
    const page = cutRows<string>(rows, limit)
    assert.deepStrictEqual(page.items, items)
    assert.strictEqual(
      nextCursor(page, (row) => row),
      next,
    )
    const field = nextCursorIfMore(page, (row) => row)
    assert.deepStrictEqual(field, next === null ? {} : { next_cursor: next })
  })
})

describe("pageQuery", () => {
  const decode = Schema.decodeUnknownOption(Schema.Struct(pageQuery))
  const ulid = "01KAZ3V5E0000000000000000Z"

  it.each([
    [{}, { limit: 50 }],
    [{ limit: 1 }, { limit: 1 }],
    [
      { limit: 100, cursor: ulid },
      { limit: 100, cursor: ulid },
    ],
  ])("accepts %j", (query, page) => assert.deepStrictEqual(decode(query), decode(page)))

  it.each([
    ...[0, 101, -1, 1.5, Number.NaN, Infinity, "5", null].map((limit) => ({ limit })),
    ...["", "x", ulid.toLowerCase(), `${ulid}0`, `8${ulid.slice(1)}`, `${ulid.slice(0, 25)}U`, `${ulid}\n`, null].map(
      (cursor) => ({ cursor }),
    ),
  ])("refuses %j", (query) => assert.strictEqual(decode(query)._tag, "None"))
})
