import { Cron, DateTime, Result } from "effect"
import type { JobScheduleChanges } from "./JobScheduleRepository.ts"

const secondMillis = 1_000
const dayMillis = 86_400_000

/** A schedule must run within this time: ten years. Two 29 Februaries are at most eight years apart. */
const maxSearchDays = 3_653

/** No zone is further from UTC. */
const maxOffsetMillis = 14 * 3_600_000

/** Dates that a search tries: yesterday's and today's runs can be over, and a zone can skip a date. */
const maxDates = 7

/** Names of zones that are remembered. There are 600, and each can be written in other cases. */
const maxKnownZones = 2_000

/** A part of the time in which a zone has one offset from UTC, in milliseconds. */
interface OffsetPeriod {
  readonly offset: number
  readonly from: number
  readonly to: number
}

/** How many milliseconds a zone is ahead of UTC at a time. */
type Offsets = (millis: number) => number

/**
 * Names that `Intl` takes beside those of IANA: three letters, such as BST for Bangladesh, `SystemV`, and two that IANA
 * has no more. Source: the zones of ICU that IANA's `tzdata.zi` does not have.
 */
const notOfIana =
  /^(?!(?:CET|EET|EST|GMT|HST|MET|MST|PRC|ROC|ROK|UCT|UTC|WET)$)[A-Z]{3}$|^SystemV\/|^Canada\/East-Saskatchewan$|^US\/Pacific-New$/i

const knownZones = new Map<string, DateTime.TimeZone>()

/** The zone of an IANA name or link in any case, or of an offset as in `+05:30`. */
const zoneOf = (timezone: string): DateTime.TimeZone | undefined => {
  const [, sign, hours, minutes] = /^([+-])(\d\d):([0-5]\d)$/.exec(timezone) ?? []
  if (sign !== undefined) {
    const offset = (Number(hours) * 60 + Number(minutes)) * 60_000
    return offset <= maxOffsetMillis ? DateTime.zoneMakeOffset(sign === "+" ? offset : -offset) : undefined
  }
  const known = knownZones.get(timezone)
  if (known !== undefined) return known
  if (notOfIana.test(timezone) || !/^[a-z]/i.test(timezone)) return undefined
  try {
    // By its own name, because Effect remembers each name that it is asked for.
    const zone = DateTime.zoneMakeNamedUnsafe(
      new Intl.DateTimeFormat("en", { timeZone: timezone }).resolvedOptions().timeZone,
    )
    if (knownZones.size < maxKnownZones) knownZones.set(timezone, zone)
    return zone
  } catch {
    return undefined
  }
}

/** Remembers each offset, because `Intl` takes 10 µs for one. Use it for one request only: it never forgets. */
const offsetsOf = (zone: DateTime.TimeZone): Offsets => {
  if (DateTime.isTimeZoneNamed(zone) && zone.id === "UTC") return () => 0
  const known = new Map<number, number>()
  return (millis) => {
    const offset = known.get(millis) ?? DateTime.zonedOffset(DateTime.makeZonedUnsafe(millis, { timeZone: zone }))
    known.set(millis, offset)
    return offset
  }
}

/** The first second of a range of time whose offset is not that of its start. */
const offsetChange = (offsetAt: Offsets, from: number, to: number): number => {
  let [last, first] = [from / secondMillis, to / secondMillis]
  while (first - last > 1) {
    const middle = Math.floor((last + first) / 2)
    if (offsetAt(middle * secondMillis) === offsetAt(from)) last = middle
    else first = middle
  }
  return first * secondMillis
}

/** The periods that a date of a zone can be in: no zone is a day from UTC. Compares the offset once a day. */
const periodsAround = (offsetAt: Offsets, date: number): ReadonlyArray<OffsetPeriod> => {
  const periods: Array<OffsetPeriod> = []
  const end = date + 2 * dayMillis
  let from = date - dayMillis
  for (let day = from; day < end; day += dayMillis) {
    if (offsetAt(day) === offsetAt(day + dayMillis)) continue
    const change = offsetChange(offsetAt, day, day + dayMillis)
    periods.push({ offset: offsetAt(day), from, to: change })
    from = change
  }
  return [...periods, { offset: offsetAt(end), from, to: end }]
}

const fits = (values: ReadonlySet<number>, value: number) => values.size === 0 || values.has(value)

/** The first second of a day, counted from midnight, at or after `from` that the hours, minutes and seconds name. */
const firstSecond = ({ hours, minutes, seconds }: Cron.Cron, from: number): number | undefined => {
  for (let second = from; second < 86_400;) {
    const [hour, minute] = [Math.floor(second / 3_600), Math.floor(second / 60)]
    if (!fits(hours, hour)) second = (hour + 1) * 3_600
    else if (!fits(minutes, minute % 60)) second = (minute + 1) * 60
    else if (fits(seconds, second % 60)) return second
    else second++
  }
  return undefined
}

/** A valid expression in its zone. */
interface Expression {
  readonly cron: Cron.Cron
  /** The date fields, with a run at midnight UTC of each date. */
  readonly dates: Cron.Cron
  readonly offsetAt: Offsets
  /** Whether times that the zone has twice run twice. */
  readonly runsTwice: boolean
}

/**
 * The first run after a time, of those that a date of the zone has. Each period of the zone's offset runs at the
 * times of its own clock, and then at those that the next clock skips. What it repeats of the clock before it is left
 * out, unless the expression runs twice.
 */
const runOn = ({ cron, runsTwice, offsetAt }: Expression, date: number, after: number): number | undefined => {
  const periods = periodsAround(offsetAt, date)
  let first: number | undefined
  for (const [index, { from, offset, to }] of periods.entries()) {
    const repeated = runsTwice ? 0 : Math.max(0, (periods[index - 1]?.offset ?? offset) - offset)
    const skipped = Math.max(0, (periods[index + 1]?.offset ?? offset) - offset)
    const earliest = Math.max(after + 1, from + repeated) + offset - date
    const second = firstSecond(cron, Math.max(0, Math.ceil(earliest / secondMillis)))
    const run = second === undefined ? undefined : date + second * secondMillis - offset
    if (run !== undefined && run < to + skipped && (first === undefined || run < first)) first = run
  }
  return first
}

/** Midnight UTC of the first date on or after a day. `undefined` when there is none within ten years. */
const firstDate = (dates: Cron.Cron, from: number): number | undefined => {
  const { months, days, weekdays } = dates
  const day = new Date(from)
  for (let n = 0; n < maxSearchDays; n++) {
    const mayFit =
      (months.size === 0 || months.has(day.getUTCMonth() + 1)) &&
      (days.size === 0 || weekdays.size > 0 || days.has(day.getUTCDate()))
    // `Cron.match` decides how a day and a weekday combine.
    if (mayFit && Cron.match(dates, day)) return day.getTime()
    day.setUTCDate(day.getUTCDate() + 1)
  }
  return undefined
}

/**
 * The first run after a time; `undefined` when there is none within ten years, as on 30 February. Tries a few dates,
 * whatever the zone. Not `Cron.next`: it skips all but one of the runs of a gap, and can try 10,000 dates in the zone,
 * which takes a second of CPU.
 */
const firstRun = (expression: Expression, after: number): number | undefined => {
  const { dates, offsetAt } = expression
  const wall = after + offsetAt(after)
  // A gap can move runs of yesterday to today.
  const yesterday = wall - (((wall % dayMillis) + dayMillis) % dayMillis) - dayMillis
  let first: number | undefined
  let date = firstDate(dates, yesterday)
  for (let n = 0; n < maxDates; n++) {
    if (date === undefined || (first !== undefined && date - maxOffsetMillis >= first)) break
    const run = runOn(expression, date, after)
    if (run !== undefined && (first === undefined || run < first)) first = run
    date = firstDate(dates, date + dayMillis)
  }
  return first
}

/** The names of common expressions. Source: crontab(5) of Vixie cron. */
const named = new Map([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@monthly", "0 0 1 * *"],
  ["@weekly", "0 0 * * 0"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
])

const monthNames = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
const weekdayNames = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

interface Field {
  readonly name: string
  /** The names of its values, from `first` on. */
  readonly names?: ReadonlyArray<string>
  readonly first?: number
}

const fieldsOfCron: ReadonlyArray<Field> = [
  { name: "second" },
  { name: "minute" },
  { name: "hour" },
  { name: "day" },
  { name: "month", names: monthNames, first: 1 },
  { name: "weekday", names: weekdayNames, first: 0 },
]

/** A term of a field, with a range of names that wraps, as in `FRI-MON`, as a list of numbers. */
const unwrapped = (term: string, { first = 0, names = [] }: Field) => {
  const [, from, to, step = "1"] = /^([a-z]{3})-([a-z]{3})(?:\/([1-9]\d?))?$/.exec(term) ?? []
  const [start, end] = [names.indexOf(from!), names.indexOf(to!)]
  if (start === -1 || end === -1 || start <= end) return term
  const values: Array<number> = []
  for (let value = start; value <= end + names.length; value += Number(step))
    values.push((value % names.length) + first)
  return values.join()
}

const namedFields = `one of ${[...named.keys()].join(", ")}`

/** The fields of an expression, seconds first, with what `Cron.parse` does not know written out. */
const readFields = (given: string): Result.Result<ReadonlyArray<string>, string> => {
  const text = given.trim().toLowerCase()
  const written = (named.get(text) ?? text).split(/\s+/)
  if (text.startsWith("@") && !named.has(text)) return Result.fail(`cron must be five or six fields, or ${namedFields}`)
  if (written.length !== 5 && written.length !== 6)
    return Result.fail(
      `cron must have five fields, or six with seconds first; it has ${text === "" ? 0 : written.length}`,
    )
  const fields: Array<string> = []
  for (const [index, part] of (written.length === 5 ? ["0", ...written] : written).entries()) {
    const field = fieldsOfCron[index]!
    const isKnown = (value: string) => /^(\*|\d*)$/.test(value) || field.names?.includes(value)
    const unknown = part.split(/[,/-]/).find((value) => !isKnown(value))
    if (unknown !== undefined)
      return Result.fail(
        `cron has ${unknown.toUpperCase()} in its ${field.name} field, which takes numbers${field.names ? ", names" : ""}, ` +
          "*, ranges, lists and steps (L, W, # and ? are not supported)",
      )
    const values: Array<string> = []
    for (const term of part.split(",")) {
      const value = unwrapped(term, field)
      const parsed = Cron.parse(fieldsOfCron.map((_, at) => (at === index ? value || "-" : "*")).join(" "), "UTC")
      if (Result.isFailure(parsed)) {
        const shown = term === "" ? "an empty part" : term.toUpperCase()
        return Result.fail(`cron has ${shown} in its ${field.name} field: ${parsed.failure.message}`)
      }
      values.push(value)
    }
    fields.push(values.join())
  }
  return Result.succeed(fields)
}

/** Fails with a sentence that says what is wrong with the expression or the zone. */
const parseExpression = (given: string, timezone: string): Result.Result<Expression, string> => {
  const zone = zoneOf(timezone)
  if (zone === undefined)
    return Result.fail(
      "timezone must be an IANA time zone, as in Europe/Berlin, or an offset of at most 14 hours, as in +05:30",
    )
  return Result.map(readFields(given), (fields) => ({
    cron: Cron.parseUnsafe(fields.join(" "), "UTC"),
    dates: Cron.parseUnsafe(["0 0 0", ...fields.slice(-3)].join(" "), "UTC"),
    offsetAt: offsetsOf(zone),
    runsTwice: fields[2]!.startsWith("*"),
  }))
}

/**
 * The first run after a time, in the schedule's time zone. A local time that the zone skips, as when daylight saving
 * time begins, runs as if the clock had not changed. One that it has twice runs the first time, and both times when
 * the hour field begins with `*`. Runs at the same time are one. Fails with a sentence that says what is wrong with
 * the expression or the zone.
 */
export const nextRun = (cron: string, timezone: string, after: DateTime.Utc): Result.Result<DateTime.Utc, string> =>
  Result.flatMap(parseExpression(cron, timezone), (expression) => {
    const next = firstRun(expression, DateTime.toEpochMillis(after))
    return next === undefined
      ? Result.fail("cron names dates that never come")
      : Result.succeed(DateTime.makeUnsafe(next))
  })

/** The next runs after a time, up to `count`; none when the expression or the zone is wrong. */
export const nextRuns = (cron: string, timezone: string, after: DateTime.Utc, count: number) => {
  const runs: Array<DateTime.Utc> = []
  const expression = parseExpression(cron, timezone)
  if (Result.isFailure(expression)) return runs
  let last: number | undefined = DateTime.toEpochMillis(after)
  while (runs.length < count) {
    last = firstRun(expression.success, last)
    if (last === undefined) break
    runs.push(DateTime.makeUnsafe(last))
  }
  return runs
}

interface Run {
  readonly cron: string
  readonly timezone: string
  readonly nextAt: DateTime.Utc | null
}

/**
 * When a changed schedule runs next; `null` while it is paused. A schedule that is activated, or has another cron or
 * time zone, runs next after `now`: runs of its pause are not made up for.
 */
export const changedRun = (
  current: Run,
  changes: JobScheduleChanges,
  now: DateTime.Utc,
): Result.Result<DateTime.Utc | null, string> => {
  const { cron = current.cron, timezone = current.timezone, active = current.nextAt !== null } = changes
  const isSame = cron === current.cron && timezone === current.timezone
  if (isSame && !active) return Result.succeed(null)
  if (isSame && current.nextAt !== null) return Result.succeed(current.nextAt)
  return Result.map(nextRun(cron, timezone, now), (next) => (active ? next : null))
}
