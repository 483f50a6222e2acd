import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { EventFilter, filterPath } from "#src/domain/webhooks/EventFilter.ts"

/**
 * Promise (What an endpoint asks for): An endpoint with a filter receives exactly the events whose body has its
 * values, published or of jobs, also when a sweep queues them; nothing else is stored or counted for it. A filter
 * costs a few look-ups, whatever the event: it has no regular expression, and walks through no list.
 */

const decode = Schema.decodeUnknownResult(EventFilter)
const faultOf = (filter: unknown) =>
  Result.match(decode(filter), { onFailure: (error) => error.message, onSuccess: () => "" })
const text = (length: number) => "x".repeat(length)
const deep = (levels: number): Record<string, unknown> => (levels === 0 ? { a: 1 } : { not: deep(levels - 1) })

describe("the filter of an endpoint", () => {
  it("says which part of it is wrong", () => {
    for (const [filter, fault] of [
      [{}, "must be an object with at least one field"],
      [{ any: [] }, "must have a list of filters in any"],
      [{ any: { a: 1 } }, "must have a list of filters in any"],
      [{ any: [{ a: 1 }, 5] }, "must be an object with at least one field"],
      [{ not: 5 }, "must be an object with at least one field"],
      [{ "a..b": 1 }, 'must have paths in place of "a..b"'],
      [{ "$.a": 1 }, 'in place of "$.a"'],
      [{ "a b": 1 }, 'in place of "a b"'],
      [{ [Array.from({ length: 11 }, () => "a").join(".")]: 1 }, "must have paths"],
      [{ a: [] }, "must give a a text of at most 200 characters, a number, true, false, null, or a list of 1 to 50"],
      [{ a: [[1]] }, "or a list of 1 to 50 of these"],
      [{ a: text(201) }, "a text of at most 200 characters"],
      [{ a: "\0" }, "a text of at most 200 characters"],
      [{ a: {} }, "must give a an operator: gt, gte, lt, lte, not, starts_with, exists"],
      [
        { a: { regex: ".*" } },
        'must give a one of the operators gt, gte, lt, lte, not, starts_with, exists, not "regex"',
      ],
      [{ a: { constructor: 1 } }, 'not "constructor"'],
      [{ a: { gt: true } }, "must give gt of a a number, or a text"],
      [{ a: { exists: 1 } }, "must give exists of a true or false"],
      [{ a: { starts_with: 1 } }, "must give starts_with of a a text"],
      [{ a: { not: {} } }, "must give not of a a text"],
      [deep(4), "must have any and not at most 3 deep"],
      [Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`a${n}`, 1])), "at most 20 conditions"],
      [Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`a${n}`, text(200)])), "at most 4 KiB"],
      [5, "object"],
    ] as const) {
      assert.include(faultOf(filter), fault, JSON.stringify(filter).slice(0, 80))
    }
  })

  it("has bounds that a filter may reach", () => {
    const conditions = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`a.b-${n}_c`, n]))
    for (const good of [
      { a: null },
      { a: Array.from({ length: 50 }, (_, n) => n) },
      { a: text(200) },
      conditions,
      deep(3),
    ]) {
      assert.strictEqual(faultOf(good), "")
      assert.match(filterPath(good), /^strict \(/)
    }
  })

  it("cannot leave its texts and names", () => {
    assert.strictEqual(
      filterPath({ "a.b": `x" || true || $.c == "` }),
      String.raw`strict ((($."a"."b" == "x\" || true || $.c == \"") && !(($."a"."b" == "x\" || true || $.c == \"") is unknown)))`,
    )
  })
})
