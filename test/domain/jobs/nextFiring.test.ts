import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Cron, DateTime, Result, Schema } from "effect"
import { nextFiring } from "#src/domain/jobs/firings.ts"

const next = (cron: string, timezone: string, after: string) =>
  Result.match(nextFiring(cron, timezone, DateTime.makeUnsafe(after)), {
    onSuccess: DateTime.formatIso,
    onFailure: (sentence) => sentence,
  })

/** The next firings, without their date when it is the same as that of the first. */
const firings = (count: number, cron: string, timezone: string, after: string) => {
  const all: Array<string> = []
  for (let at = after; all.length < count; all.push(at)) at = next(cron, timezone, at)
  return all.map((time) => time.replace(after.slice(0, 10), "").replace(":00.000Z", "Z"))
}

describe("the next firing", () => {
  it.each([
    ["*/5 * * * *", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-20T17:05:00.000Z"],
    ["*/5 * * * *", "UTC", "2026-11-20T16:59:59.999Z", "2026-11-20T17:00:00.000Z"],
    ["*/10 * * * * *", "UTC", "2026-11-20T17:00:00.001Z", "2026-11-20T17:00:10.000Z"],
    ["30 15 4 * * *", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-21T04:15:30.000Z"],
    ["0 4 * * *", "Europe/Berlin", "2026-11-20T17:00:00.000Z", "2026-11-21T03:00:00.000Z"],
    ["0 4 * * *", "Europe/Berlin", "2026-07-20T17:00:00.000Z", "2026-07-21T02:00:00.000Z"],
    ["0 4 * * *", "America/New_York", "2026-11-20T17:00:00.000Z", "2026-11-21T09:00:00.000Z"],
    ["0 4 * * *", "Asia/Kathmandu", "2026-11-20T17:00:00.000Z", "2026-11-20T22:15:00.000Z"],
    ["0 9 * * mon-fri", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-23T09:00:00.000Z"],
    ["0 9 * * 7", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-22T09:00:00.000Z"],
    ["0 0 1 jan *", "UTC", "2026-11-20T17:00:00.000Z", "2027-01-01T00:00:00.000Z"],
    // Day of the month or day of the week, as in cron, when both are set.
    ["0 0 13 * 5", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-27T00:00:00.000Z"],
    ["0 0 31 * *", "UTC", "2026-11-20T17:00:00.000Z", "2026-12-31T00:00:00.000Z"],
    ["0 0 29 2 *", "UTC", "2026-11-20T17:00:00.000Z", "2028-02-29T00:00:00.000Z"],
    ["0 0 29 2 *", "UTC", "2096-02-29T00:00:00.000Z", "2104-02-29T00:00:00.000Z"],
    [" 0  9 * * * ", "UTC", "2026-11-20T17:00:00.000Z", "2026-11-21T09:00:00.000Z"],
  ])("of %j in %s after %s is %s", (cron, timezone, after, expected) => {
    assert.strictEqual(next(cron, timezone, after), expected)
  })

  it.each([
    // Berlin has no 02:00 to 02:59 on 29 March, New York none on 8 March.
    ["30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00.000Z", "2026-03-29T01:30Z", "2026-03-30T00:30Z"],
    ["30 2 * * *", "America/New_York", "2026-03-07T12:00:00.000Z", "2026-03-08T07:30Z", "2026-03-09T06:30Z"],
    ["30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00.000Z", "2026-03-29T01:30Z", "2026-03-30T00:30Z"],
    ["0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00.000Z", "2026-03-29T01:00Z", "2026-03-30T01:00Z"],
    // Berlin has 02:00 to 02:59 twice on 25 October, New York 01:00 to 01:59 on 1 November.
    ["30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00.000Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"],
    ["30 1 * * *", "America/New_York", "2026-10-31T12:00:00.000Z", "2026-11-01T05:30Z", "2026-11-02T06:30Z"],
    ["0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00.000Z", "2026-10-25T02:00Z", "2026-10-26T02:00Z"],
  ])("of %j in %s is once a day, also when the clock changes", (cron, timezone, after, ...expected) => {
    assert.deepStrictEqual(firings(2, cron, timezone, after), expected)
  })

  it.each([
    [
      "0 * * * *",
      "Europe/Berlin",
      "2026-03-28T23:30:00.000Z",
      ["2026-03-29T00:00Z", "2026-03-29T01:00Z", "2026-03-29T02:00Z"],
    ],
    [
      "0 * * * *",
      "Europe/Berlin",
      "2026-10-24T23:30:00.000Z",
      ["2026-10-25T00:00Z", "2026-10-25T01:00Z", "2026-10-25T02:00Z"],
    ],
    ["0 * * * *", "America/New_York", "2026-11-01T04:30:00.000Z", ["T05:00Z", "T06:00Z", "T07:00Z"]],
    ["*/30 * * * *", "America/New_York", "2026-11-01T05:00:00.000Z", ["T05:30Z", "T06:00Z", "T06:30Z", "T07:00Z"]],
    ["0 */20 * * * *", "Australia/Lord_Howe", "2026-04-04T14:30:00.000Z", ["T14:40Z", "T15:10Z", "T15:30Z", "T15:50Z"]],
  ])("of %j in %s continues every hour when the clock changes", (cron, timezone, after, expected) => {
    assert.deepStrictEqual(firings(expected.length, cron, timezone, after), expected)
  })

  const Moment = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 4e12 })))
  it.prop("is always in the future; with five fields, on a whole minute", [Moment], ([millis]) => {
    for (const timezone of ["Europe/Berlin", "America/New_York", "Pacific/Apia"]) {
      for (const cron of ["*/7 * * * *", "30 2 * * *"]) {
        const found = DateTime.toEpochMillis(Result.getOrThrow(nextFiring(cron, timezone, DateTime.makeUnsafe(millis))))
        assert.isTrue(found > millis && found % 60_000 === 0)
      }
    }
  })

  it.each(["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30 feb *"])("of %j never comes", (cron) => {
    for (const timezone of ["UTC", "Europe/Berlin"]) {
      assert.strictEqual(next(cron, timezone, "2026-11-20T17:00:00.000Z"), "cron names dates that never come")
    }
  })

  // Seen failing (by time) with `Cron.next`, which tries 10,000 dates: a second of CPU in some zones.
  it("a date that never comes, or not within ten years, is refused without a search, in every zone", () => {
    for (const cron of ["0 0 30 2 *", "0 * 30 2 *", "59 59 23 31 2,4 *", "0 0 30 2 */2"]) {
      for (const timezone of Intl.supportedValuesOf("timeZone")) {
        assert.strictEqual(next(cron, timezone, "2026-11-20T17:00:00.000Z"), "cron names dates that never come")
      }
    }
    // 29 February is a Sunday in 2032, and then not before 2060.
    assert.strictEqual(next("0 0 29 2 */7", "UTC", "2032-02-28T17:00:00.000Z"), "2032-02-29T00:00:00.000Z")
    for (const timezone of Intl.supportedValuesOf("timeZone")) {
      assert.strictEqual(next("0 0 29 2 */7", timezone, "2032-03-01T17:00:00.000Z"), "cron names dates that never come")
    }
  })

  const field = (values: string) => Arbitrary.schema(Schema.Literals(values.split(" ")))
  const Expression = Arbitrary.all([
    field("0 30 */7 59"),
    field("0 2 3 * 23"),
    field("* 1 13 29 31 */10"),
    field("* 1 2 4,6 12 */3"),
    field("* 0 5 1-5 */2"),
  ]).pipe(Arbitrary.map((fields) => fields.join(" ")))
  const Zone = Arbitrary.schema(
    Schema.Literals([
      "UTC",
      "Europe/Berlin",
      "Australia/Lord_Howe",
      "Pacific/Kiritimati",
      "America/Santiago",
      "America/Nuuk",
    ]),
  )
  const Future = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 1.7e12, maximum: 4e12 })))
  it.prop("is the same as a search of all dates finds", [Expression, Zone, Future], ([cron, timezone, millis]) => {
    const searched = Result.try(() => {
      const onDstOverlap = cron.split(" ")[1]!.startsWith("*") ? "both" : "earlier"
      const parsed = Result.getOrThrow(Cron.parse(cron, timezone, { onDstOverlap }))
      return Cron.next(parsed, DateTime.makeUnsafe(millis)).getTime()
    })
    const found = Result.map(nextFiring(cron, timezone, DateTime.makeUnsafe(millis)), DateTime.toEpochMillis)
    const tenYears = 3_652 * 86_400_000
    if (Result.isSuccess(searched) && searched.success < millis + tenYears)
      assert.strictEqual(Result.getOrThrow(found), searched.success)
    else assert.isTrue(Result.isFailure(found))
  })

  it.each([
    ["", "Invalid number of segments in cron expression"],
    ["* * * *", "Invalid number of segments in cron expression"],
    ["* * * * * * *", "Invalid number of segments in cron expression"],
    ["@daily", "Invalid number of segments in cron expression"],
    ["61 * * * *", "Expected a value between 0 and 59"],
    ["* 24 * * *", "Expected a value between 0 and 23"],
    ["* * 0 * *", "Expected a value between 1 and 31"],
    ["* * * 13 *", "Expected a value between 1 and 12"],
    ["* * * * 8", "Expected a value between 0 and 7"],
    ["5-1 * * * *", "Invalid value range"],
  ])("refuses %j with the reason", (cron, why) => {
    assert.strictEqual(next(cron, "UTC", "2026-11-20T17:00:00.000Z"), `cron is not a cron expression: ${why}`)
  })

  it.each(["", "Berlin", "Europe/Nowhere", "CEST!", " UTC"])("refuses the unknown time zone %j", (timezone) => {
    assert.strictEqual(
      next("* * * * *", timezone, "2026-11-20T17:00:00.000Z"),
      "timezone must be an IANA time zone, as in Europe/Berlin",
    )
  })
})
