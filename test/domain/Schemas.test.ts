import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, DateTime, Option, Schema } from "effect"
import { NonEmptyText, Text, Timestamp } from "#src/domain/Schemas.ts"

const isText = Schema.is(Text)
const isNonEmptyText = Schema.is(NonEmptyText)
const decode = Schema.decodeUnknownOption(Timestamp)
const encode = Schema.encodeSync(Timestamp)

describe("Text", () => {
  it.each(["", "a", "😀", "\u{10ffff}", "e\u0301", "\u200b", "\n\t", "x".repeat(10_000)])("accepts %j", (text) => {
    assert.isTrue(isText(text))
    assert.strictEqual(isNonEmptyText(text), text !== "")
  })

  it.each(["\0", "a\0b", "\ud800", "\udc00", "a\ud83d", "\ude00\ud83d", null, 1, undefined, ["a"]])(
    "refuses %j",
    (text) => {
      assert.isFalse(isText(text))
      assert.isFalse(isNonEmptyText(text))
    },
  )

  const CodeUnits = Arbitrary.array(
    Arbitrary.schema(Schema.Literals([0, 0x41, 0xd83d, 0xde00, 0xd800, 0xdfff, 0xffff, 0x20ac])),
    { maxLength: 8 },
  )
  it.prop("accepts exactly the text that UTF-8 preserves and PostgreSQL stores", [CodeUnits], ([units]) => {
    const text = String.fromCharCode(...units)
    const survives = Buffer.from(text, "utf8").toString("utf8") === text
    assert.strictEqual(isText(text), survives && !text.includes("\0"))
  })
})

describe("Timestamp", () => {
  const first = Date.parse("0000-01-01T00:00:00.000Z")
  const last = Date.parse("9999-12-31T23:59:59.999Z")
  const Millis = Schema.Int.check(Schema.isBetween({ minimum: first, maximum: last }))
  const Offset = Schema.Int.check(Schema.isBetween({ minimum: -14 * 60, maximum: 14 * 60 }))

  it.prop("is encoded as it was decoded", [Millis], ([millis]) => {
    const text = new Date(millis).toISOString()
    const time = Option.getOrThrow(decode(text))
    assert.strictEqual(DateTime.toEpochMillis(time), millis)
    assert.strictEqual(encode(time), text)
  })

  it.prop("reads a zone as an offset from UTC, and can decode what it encodes", [Millis, Offset], (input) => {
    const [millis, offset] = input
    const digits = (n: number) => String(Math.floor(Math.abs(n))).padStart(2, "0")
    const zone = `${offset < 0 ? "-" : "+"}${digits(offset / 60)}:${digits(Math.abs(offset) % 60)}`
    const time = decode(new Date(millis).toISOString().replace("Z", zone))
    const utc = millis - offset * 60_000
    assert.deepStrictEqual(
      Option.map(time, DateTime.toEpochMillis),
      utc >= first && utc <= last ? Option.some(utc) : Option.none(),
    )
    if (Option.isSome(time)) assert.isTrue(Option.isSome(decode(encode(time.value))))
  })

  it.each([
    ["2026-11-20T17:00Z", "2026-11-20T17:00:00.000Z"],
    ["2026-11-20T17:00:01Z", "2026-11-20T17:00:01.000Z"],
    ["2026-11-20T17:00:01.2Z", "2026-11-20T17:00:01.200Z"],
    ["2026-11-20T17:00:01.123999Z", "2026-11-20T17:00:01.123Z"],
    ["2026-11-20T17:00:00+01:00", "2026-11-20T16:00:00.000Z"],
    ["2026-11-20T17:00:00-0130", "2026-11-20T18:30:00.000Z"],
    ["2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z"],
  ])("reads %s as %s", (text, utc) => assert.strictEqual(encode(Option.getOrThrow(decode(text))), utc))

  it.each([
    "2026-11-20T17:00:00",
    "2026-11-20",
    "2026-11-20 17:00:00Z",
    "2026-11-20T17:00:00z",
    "2026-11-20T17:00:00.Z",
    "2026-11-20T17Z",
    "2026-13-01T00:00:00Z",
    "2026-02-29T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-11-00T00:00:00Z",
    "2026-11-20T25:00:00Z",
    "2026-11-20T23:60:00Z",
    "2026-11-20T23:59:60Z",
    "2026-11-20T17:00:00+24:00",
    "2026-11-20T17:00:00+01:60",
    "+010000-01-01T00:00:00Z",
    // Valid in form, but in UTC outside the years of four digits.
    "9999-12-31T23:59:59-14:00",
    "0000-01-01T00:00:00+14:00",
    "20261120T170000Z",
    "Fri, 20 Nov 2026 17:00:00 GMT",
    "2026-11-20T17:00:00Z\n",
    " 2026-11-20T17:00:00Z",
    "tomorrow",
    "",
    "1795194000000",
    1_795_194_000_000,
    null,
  ])("refuses %j", (text) => assert.isTrue(Option.isNone(decode(text))))

  it("does not repeat the refused value in its error", () => {
    const result = Schema.decodeUnknownResult(Timestamp)("secret")
    assert.isTrue(result._tag === "Failure" && !String(result.failure).includes("secret"))
  })
})
