import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Cron, DateTime, Result, Schema } from "effect"
import { nextRun, nextRuns } from "#src/domain/jobs/cronTimes.ts"

/**
 * Promise (Schedules): Around every change of every zone's clock in ten years, a schedule has exactly the runs that
 * trying each minute finds: none of a gap is lost, and no fixed time runs twice.
 */

const next = (cron: string, timezone: string, after: string) =>
  Result.match(nextRun(cron, timezone, DateTime.makeUnsafe(after)), {
    onSuccess: DateTime.formatIso,
    onFailure: (sentence) => sentence,
  })

/** The next runs, without their date when it is the same as that of the first. */
const runs = (count: number, cron: string, timezone: string, after: string) => {
  const all: Array<string> = []
  for (let at = after; all.length < count; all.push(at)) at = next(cron, timezone, at)
  return all.map((time) => time.replace(after.slice(0, 10), "").replace(":00.000Z", "Z"))
}

interface ClockChange {
  readonly zone: string
  readonly at: number
  /** Milliseconds that local time is ahead of UTC. */
  readonly before: number
  readonly later: number
}

/** The changes of every zone's offset, as `Intl` has them. Looks at each zone every five days. */
const clockChanges = (from: number, to: number): ReadonlyArray<ClockChange> =>
  Intl.supportedValuesOf("timeZone").flatMap((zone) => {
    const format = new Intl.DateTimeFormat("en-US", { timeZone: zone, timeZoneName: "longOffset", year: "numeric" })
    const offsetAt = (time: number) => {
      const [, sign, hours, minutes = "0"] = /GMT(?:([+-])(\d+):(\d+))?$/.exec(format.format(time))!
      return (sign === "-" ? -1 : 1) * (Number(hours ?? 0) * 60 + Number(minutes)) * 60_000
    }
    const changes: Array<ClockChange> = []
    let before = offsetAt(from)
    for (let end = from; end < to;) {
      const start = end
      end += 5 * 86_400_000
      const later = offsetAt(end)
      if (later === before) continue
      let [last, first] = [start, end]
      while (first - last > 1_000) {
        const middle = Math.floor((last + first) / 2_000) * 1_000
        if (offsetAt(middle) === before) last = middle
        else first = middle
      }
      changes.push({ zone, at: first, before, later })
      before = later
    }
    return changes
  })

/** How far from the change of a clock the runs are compared, in milliseconds. */
const margin = 5 * 3_600_000

/** The runs around a change, found by trying each minute; only `*`, steps and lists of numbers, and every date. */
const referenceFirings = (cron: string, { at, before, later }: ClockChange): ReadonlyArray<number> => {
  const fields = cron.split(" ")
  const [minutes, hours] = fields.slice(-5, -3).map((field) => {
    const [, step] = field.split("/")
    return (value: number) =>
      field.startsWith("*") ? value % Number(step ?? 1) === 0 : field.split(",").map(Number).includes(value)
  })
  const second = fields.length === 6 ? Number(fields[0]) * 1_000 : 0
  const times = new Set<number>()
  for (let minute = at - 2 * margin; minute <= at + 2 * margin; minute += 60_000) {
    const local = (minute + before) / 60_000
    if (!minutes!(local % 60) || !hours!(Math.floor(local / 60) % 24)) continue
    const early = minute + second
    const late = early + before - later
    // The clock before the change shows it, the clock after the change shows it, or neither does.
    const shown = [...(early < at ? [early] : []), ...(late >= at ? [late] : [])]
    if (shown.length < 2) times.add(shown[0] ?? early)
    else for (const time of fields.at(-4)!.startsWith("*") ? shown : [early]) times.add(time)
  }
  return [...times].filter((time) => Math.abs(time - at) <= margin).toSorted((a, b) => a - b)
}

describe("the next run", () => {
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
    assert.deepStrictEqual(runs(2, cron, timezone, after), expected)
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
    assert.deepStrictEqual(runs(expected.length, cron, timezone, after), expected)
  })

  it.each([
    ["*/15 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00.000Z", ["T01:00Z", "T01:15Z", "T01:30Z", "T01:45Z"]],
    ["0,30 2 * * *", "America/New_York", "2026-03-08T00:00:00.000Z", ["T07:00Z", "T07:30Z"]],
    // 03:00 is also the time at which the skipped 02:00 runs: one run.
    ["0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00.000Z", ["T01:00Z", "T01:30Z", "2026-03-30T00:00Z"]],
    // The gap is half an hour long: 02:00 and 02:20 run at 02:30 and 02:50.
    ["0 */20 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00:00.000Z", ["T15:10Z", "T15:30Z", "T15:40Z", "T15:50Z"]],
    // Midnight does not exist in Santiago on 6 September; a day did not exist in Apia.
    ["0,30 0 * * *", "America/Santiago", "2026-09-06T00:00:00.000Z", ["T04:00Z", "T04:30Z", "2026-09-07T03:00Z"]],
    ["0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00:00.000Z", ["2011-12-30T22:00Z", "2012-01-29T22:00Z"]],
  ])("of %j in %s has each run of a gap", (cron, timezone, after, expected) => {
    assert.deepStrictEqual(runs(expected.length, cron, timezone, after), expected)
  })

  it("is that of a reference which tries each minute, around each change of each zone's clock in ten years", () => {
    const changes = clockChanges(Date.UTC(2018, 0, 1), Date.UTC(2028, 0, 1))
    assert.isAbove(changes.length, 2_500)
    const differences: Array<string> = []
    for (const change of changes) {
      const hour = new Date(change.at + Math.min(change.before, change.later)).getUTCHours()
      const hours = [23, 24, 25, 26].map((n) => (hour + n) % 24)
      for (const cron of [
        `*/15 ${hours[1]} * * *`,
        `0,30 ${hours.toSorted((a, b) => a - b).join()} * * *`,
        `59 59 ${hours[0]} * * *`,
        "*/20 * * * *",
        "30 */2 * * *",
      ]) {
        const reference = referenceFirings(cron, change)
        const found = nextRuns(cron, change.zone, DateTime.makeUnsafe(change.at - margin - 1), reference.length + 1)
        const times = found.map(DateTime.toEpochMillis).filter((time) => time <= change.at + margin)
        if (times.join() !== reference.join())
          differences.push(`${change.zone} ${new Date(change.at).toISOString()} ${cron}: ${times} not ${reference}`)
      }
    }
    assert.deepStrictEqual(differences, [])
  })

  const Moment = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 4e12 })))
  it.prop("is always in the future; with five fields, on a whole minute", [Moment], ([millis]) => {
    for (const timezone of ["Europe/Berlin", "America/New_York", "Pacific/Apia"]) {
      for (const cron of ["*/7 * * * *", "30 2 * * *"]) {
        const found = DateTime.toEpochMillis(Result.getOrThrow(nextRun(cron, timezone, DateTime.makeUnsafe(millis))))
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
    field("9 12 18"),
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
  it.prop(
    "is, at times that no zone skips or repeats, the same as a search of all dates finds",
    [Expression, Zone, Future],
    ([cron, timezone, millis]) => {
      const searched = Result.try(() => {
        const parsed = Result.getOrThrow(Cron.parse(cron, timezone))
        return Cron.next(parsed, DateTime.makeUnsafe(millis)).getTime()
      })
      const found = Result.map(nextRun(cron, timezone, DateTime.makeUnsafe(millis)), DateTime.toEpochMillis)
      const tenYears = 3_652 * 86_400_000
      if (Result.isSuccess(searched) && searched.success < millis + tenYears)
        assert.strictEqual(Result.getOrThrow(found), searched.success)
      else assert.isTrue(Result.isFailure(found))
    },
  )

  it.each([
    ["", "cron must have five fields, or six with seconds first; it has 0"],
    ["* * * *", "cron must have five fields, or six with seconds first; it has 4"],
    ["* * * * * * *", "cron must have five fields, or six with seconds first; it has 7"],
    ["61 * * * *", "cron has 61 in its minute field: Expected a value between 0 and 59"],
    ["61 * * * * *", "cron has 61 in its second field: Expected a value between 0 and 59"],
    ["* 1,22-24,5 * * *", "cron has 22-24 in its hour field: Expected a value between 0 and 23"],
    ["* * 0 * *", "cron has 0 in its day field: Expected a value between 1 and 31"],
    ["* * * 13 *", "cron has 13 in its month field: Expected a value between 1 and 12"],
    ["* * * * MON,8", "cron has 8 in its weekday field: Expected a value between 0 and 7"],
    ["5-1 * * * *", "cron has 5-1 in its minute field: Invalid value range"],
    ["* * * * 5-1", "cron has 5-1 in its weekday field: Invalid value range"],
    ["*/60 * * * *", "cron has */60 in its minute field: Expected step value to be less than or equal to 59"],
    ["1,,2 * * * *", "cron has an empty part in its minute field: Expected a positive integer"],
    ["@never", "cron must be five or six fields, or one of @yearly"],
  ])("refuses %j with the reason", (cron, why) => {
    assert.isTrue(next(cron, "UTC", "2026-11-20T17:00:00.000Z").startsWith(why))
  })

  it.each([
    ["0 0 L * *", "L in its day field"],
    ["0 0 l-3 * *", "L in its day field"],
    ["0 0 15W * *", "15W in its day field"],
    ["0 0 LW * *", "LW in its day field"],
    ["0 0 ? * MON", "? in its day field"],
    ["0 0 1 * ?", "? in its weekday field"],
    ["0 0 * * FRI#2", "FRI#2 in its weekday field"],
    ["0 0 * * 5L", "5L in its weekday field"],
    ["0 0 * * monday", "MONDAY in its weekday field"],
    ["0 0 * jan,mon *", "MON in its month field"],
    ["H * * * *", "H in its minute field"],
    ["0 0 0 * * 1.5", "1.5 in its weekday field"],
  ])("refuses %j, which it does not support, by name and with the field", (cron, what) => {
    assert.isTrue(next(cron, "UTC", "2026-11-20T17:00:00.000Z").startsWith(`cron has ${what}`))
  })

  it.each([
    ["0 0 * * MON-SUN", "0 0 * * 1-7"],
    ["0 0 * * FRI-MON", "0 0 * * 5,6,0,1"],
    ["0 0 * * sat-sun", "0 0 * * 0,6"],
    ["0 0 * * Fri-Tue/2", "0 0 * * 5,0,2"],
    ["0 0 * * wed,sat-sun", "0 0 * * 3,6,0"],
    ["0 0 * * SUN-SAT", "0 0 * * 0-6"],
    ["0 0 1 NOV-FEB *", "0 0 1 11,12,1,2 *"],
    ["0 0 1 dec-jan *", "0 0 1 1,12 *"],
  ])("%j runs as %j", (named, numbers) => {
    const after = DateTime.makeUnsafe("2026-11-20T17:00:00.000Z")
    const found = nextRuns(named, "UTC", after, 12)
    assert.strictEqual(found.length, 12)
    assert.deepStrictEqual(found, nextRuns(numbers, "UTC", after, 12))
  })

  it.each([
    ["@hourly", "2026-11-20T18:00:00.000Z"],
    ["@daily", "2026-11-21T00:00:00.000Z"],
    ["@midnight", "2026-11-21T00:00:00.000Z"],
    [" @Weekly ", "2026-11-22T00:00:00.000Z"],
    ["@monthly", "2026-12-01T00:00:00.000Z"],
    ["@yearly", "2027-01-01T00:00:00.000Z"],
    ["@annually", "2027-01-01T00:00:00.000Z"],
  ])("takes the name %j", (cron, first) => {
    assert.strictEqual(next(cron, "UTC", "2026-11-20T17:00:00.000Z"), first)
  })

  it.each([
    ...["", "Berlin", "Europe/Nowhere", "CEST!", " UTC", "Z", "local", "UTC+2", "GMT+2", "GMT+02:00", "+5", "+0530"],
    // Beyond 14 hours, a search has no end.
    ...["+14:01", "-14:01", "+15:00", "+24:00", "+48:00", "-99:59", "+05:60", "−05:00"],
    // ICU's own names.
    ...["BST", "AST", "NST", "SST", "bst", "PST", "IST", "CST", "JST", "ECT", "SystemV/EST5", "systemv/est5edt"],
    ...["US/Pacific-New", "Canada/East-Saskatchewan"],
  ])("refuses the unknown time zone %j", (timezone) => {
    assert.strictEqual(
      next("* * * * *", timezone, "2026-11-20T17:00:00.000Z"),
      "timezone must be an IANA time zone, as in Europe/Berlin, or an offset of at most 14 hours, as in +05:30",
    )
    assert.deepStrictEqual(nextRuns("* * * * *", timezone, DateTime.makeUnsafe(0), 5), [])
  })

  it.each([
    ["+14:00", "2026-11-20T14:00:00.000Z"],
    ["-14:00", "2026-11-20T18:00:00.000Z"],
    ["+05:30", "2026-11-20T22:30:00.000Z"],
    ["-00:00", "2026-11-21T04:00:00.000Z"],
    ["utc", "2026-11-21T04:00:00.000Z"],
    ["europe/BERLIN", "2026-11-21T03:00:00.000Z"],
    ["GMT+0", "2026-11-21T04:00:00.000Z"],
    ["GMT", "2026-11-21T04:00:00.000Z"],
    ["Etc/GMT+12", "2026-11-20T16:00:00.000Z"],
    ["EST", "2026-11-21T09:00:00.000Z"],
    ["EST5EDT", "2026-11-21T09:00:00.000Z"],
    ["Asia/Calcutta", "2026-11-20T22:30:00.000Z"],
    ["GB", "2026-11-21T04:00:00.000Z"],
  ])("takes the time zone %s", (timezone, first) => {
    assert.strictEqual(next("0 4 * * *", timezone, "2026-11-20T13:00:00.000Z"), first)
  })
})
