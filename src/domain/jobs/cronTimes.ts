import { Cron, DateTime, Result } from "effect"
import type { JobScheduleChanges } from "./JobScheduleRepository.ts"

const secondMillis = 1_000
const dayMillis = 86_400_000

/** A schedule must run within this time: ten years. Two 29 Februaries are at most eight years apart. */
const maxSearchDays = 3_653

/** No zone is further ahead of UTC. */
const maxOffsetMillis = 14 * 3_600_000

/** A part of the time in which a zone has one offset from UTC, in milliseconds. */
interface OffsetPeriod {
  readonly offset: number
  readonly from: number
  readonly to: number
}

/** How many milliseconds a zone is ahead of UTC at a time. */
type Offsets = (millis: number) => number

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
 * The first run after a time; `undefined` when there is none within ten years, as on 30 February. Not `Cron.next`:
 * it skips all but one of the runs of a gap, and can try 10,000 dates in the zone, which takes a second of CPU.
 */
const firstRun = (expression: Expression, after: number): number | undefined => {
  const { dates, offsetAt } = expression
  const wall = after + offsetAt(after)
  // A gap can move runs of yesterday to today.
  const yesterday = wall - (((wall % dayMillis) + dayMillis) % dayMillis) - dayMillis
  let first: number | undefined
  let date = firstDate(dates, yesterday)
  while (date !== undefined && (first === undefined || date - maxOffsetMillis < first)) {
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

/** Fails with a sentence that says what is wrong with the expression or the zone. */
const parseExpression = (given: string, timezone: string): Result.Result<Expression, string> => {
  const cron = named.get(given.trim().toLowerCase()) ?? given
  const zone = DateTime.zoneFromString(timezone)
  if (zone._tag === "None") return Result.fail("timezone must be an IANA time zone, as in Europe/Berlin")
  return Result.match(Cron.parse(cron, "UTC"), {
    onFailure: (error) =>
      Result.fail(
        cron.trim().startsWith("@")
          ? `cron must be five or six fields, or one of ${[...named.keys()].join(", ")}`
          : `cron is not a cron expression: ${error.message}`,
      ),
    onSuccess: (parsed) => {
      const fields = cron.trim().split(/\s+/)
      const dates = Result.getOrThrow(Cron.parse(`0 0 ${fields.slice(-3).join(" ")}`, "UTC"))
      return Result.succeed({
        cron: parsed,
        dates,
        offsetAt: offsetsOf(zone.value),
        runsTwice: fields.at(-4)!.startsWith("*"),
      })
    },
  })
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
