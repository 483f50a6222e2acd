import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { EventPatterns, EventType, isServiceEvent, receives, topicsOf } from "#src/domain/webhooks/EventPatterns.ts"
import { serviceEventTypes } from "#src/domain/ServiceEvent.ts"

const isType = Schema.is(EventType)
const isPattern = (pattern: string) => Schema.is(EventPatterns)([pattern])
/** The meaning of a pattern, by its definition. */
const matches = (pattern: string, type: string) =>
  pattern === "*"
    ? !isServiceEvent(type)
    : pattern.endsWith(".*")
      ? type.startsWith(pattern.slice(0, -1))
      : pattern === type

/** Every text of one to `most` segments. */
const texts = (most: number): ReadonlyArray<string> =>
  most === 0 ? [] : ["a", "b-_1", "key"].flatMap((one) => [one, ...texts(most - 1).map((rest) => `${one}.${rest}`)])

describe("event types", () => {
  it("your own type has segments of letters, digits, _ and -, and does not begin with a word of the service", () => {
    const all = ["invoice.paid", "a.b", "a-b_c.1.2", "user_created", "Invoice.Paid", `a.${"b".repeat(126)}`]
    for (const good of all) assert.isTrue(isType(good), good)
    const bad = ["", ".", "a.", ".a", "a..b", "a b", "a.b ", "a.*", "a.ü", "*", `a.${"b".repeat(127)}`]
    for (const one of [...bad, "job", "key", "job.completed", "job.mine", ...serviceEventTypes, "key.mine"]) {
      assert.isFalse(isType(one), one)
    }
    // Only the first segment is reserved.
    for (const good of ["jobs.done", "my.key.created", "invoice.job", "job_done"]) assert.isTrue(isType(good), good)
  })

  it("a pattern is a type, segments and a last *, or *; for the service's own events a type, or a word and *", () => {
    const good = [
      "*",
      "invoice",
      "Invoice.*",
      "invoice.*",
      "invoice.a.*",
      "invoice.paid",
      "job.*",
      "job.failed",
      "key.*",
      ...serviceEventTypes,
    ]
    for (const one of good) assert.isTrue(isPattern(one), one)
    for (const one of [
      "",
      "**",
      "*.paid",
      "invoice.*.a",
      "inv*",
      "invoice.",
      "key",
      "key.mine",
      "key.a.*",
      "job",
      "job.mine",
    ]) {
      assert.isFalse(isPattern(one), one)
    }
    assert.isFalse(Schema.is(EventPatterns)([]))
    assert.isTrue(Schema.is(EventPatterns)(Array(50).fill("a.*")))
    assert.isFalse(Schema.is(EventPatterns)(Array(51).fill("a.*")))
  })

  it("an endpoint with channels receives what was published to one of them, one without receives all", () => {
    for (const [channels, published, expected] of [
      [null, [], true],
      [null, ["a"], true],
      [["a", "b"], ["c", "b"], true],
      [["a"], ["b"], false],
      [["a"], ["A"], false],
      [["a"], [], false],
    ] as const) {
      assert.strictEqual(receives(["x.*"], topicsOf("x.y"), channels, published), expected)
      assert.isFalse(receives(["z.*"], topicsOf("x.y"), channels, published))
    }
  })

  it("invoice.* matches invoice.a.b, not invoice", () => {
    assert.deepStrictEqual(topicsOf("invoice.a.b"), ["invoice.a.b", "invoice.a.*", "invoice.*", "*"])
    assert.isTrue(receives(["invoice.*"], topicsOf("invoice.a.b")))
    assert.isFalse(receives(["invoice.*"], topicsOf("invoices.a")))
    assert.isFalse(receives(["invoice.a"], topicsOf("invoice.a.b")))
  })

  it("* and no patterns match every event but the service's own", () => {
    for (const patterns of [null, ["*"]]) {
      for (const one of ["invoice.paid", "job.completed", "job.failed"])
        assert.isTrue(receives(patterns, topicsOf(one)))
      for (const one of serviceEventTypes) assert.isFalse(receives(patterns, topicsOf(one)), one)
    }
    for (const one of serviceEventTypes) {
      assert.isTrue(receives([one], topicsOf(one)))
      assert.isTrue(receives([`${one.split(".")[0]!}.*`], topicsOf(one)))
    }
  })

  it("an endpoint receives an event if and only if a pattern matches its type", () => {
    const types = texts(4).filter((one) => one.includes("."))
    const patterns = ["*", ...texts(3), ...texts(3).map((one) => `${one}.*`)]
    for (const one of types) {
      for (const pattern of patterns) {
        assert.strictEqual(receives([pattern], topicsOf(one)), matches(pattern, one), `${pattern} ${one}`)
      }
    }
  })

  it("a type of 128 characters has at most 65 topics", () => {
    assert.strictEqual(topicsOf(Array(64).fill("a").join(".")).length, 65)
  })
})
