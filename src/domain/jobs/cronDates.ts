import { Cron, DateTime, Option, Result } from "effect"

const dayMillis = 86_400_000

/** A schedule must fire within this time: ten years. Two 29 Februaries are at most eight years apart. */
const maxSearchDays = 3_653

/** A cron with the date fields of a valid expression that fires at midnight UTC of each date. */
const datesOf = (expression: string): Cron.Cron => {
  const dateFields = expression.trim().split(/\s+/).slice(-3)
  return Result.getOrThrow(Cron.parse(`0 0 ${dateFields.join(" ")}`, "UTC"))
}

/** Midnight UTC of the first date of `dates` on or after a day. `undefined` when there is none within ten years. */
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

/** The first firing after a time on one date of the cron's zone; `undefined` when there is none. */
const firingOn = (cron: Cron.Cron, date: Date, after: DateTime.Utc): Date | undefined => {
  const { seconds, minutes, hours, onDstOverlap } = cron
  const tz = Option.getOrUndefined(cron.tz)
  const days = [date.getUTCDate()]
  const months = [date.getUTCMonth() + 1]
  const found = Cron.next(Cron.make({ seconds, minutes, hours, days, months, weekdays: [], tz, onDstOverlap }), after)
  return found.getTime() - date.getTime() < 3 * dayMillis ? found : undefined
}

/**
 * The first firing after a time. `undefined` when the expression has none within ten years, as on 30 February. Finds the
 * date first, from the calendar: `Cron.next` can try 10,000 dates in the zone, which takes a second of CPU.
 *
 * @param cron the parsed expression, with its zone
 */
export const firstFiring = (cron: Cron.Cron, expression: string, after: DateTime.Utc): Date | undefined => {
  // Such expressions fire within two months, or in each of their months: `Cron.next` finds that quickly.
  if (cron.days.size === 0 || (cron.months.size === 0 && cron.weekdays.size === 0)) return Cron.next(cron, after)
  const zoned = DateTime.setZone(
    after,
    Option.getOrElse(cron.tz, () => DateTime.zoneMakeOffset(0)),
  )
  const { year, month, day } = DateTime.toParts(zoned)
  const today = Date.UTC(year, month - 1, day)
  const dates = datesOf(expression)
  const first = firstDate(dates, today)
  const later = first === today ? firstDate(dates, today + dayMillis) : first
  const firingToday = first === today ? firingOn(cron, new Date(today), after) : undefined
  if (firingToday !== undefined || later === undefined) return firingToday
  // Two days earlier, no zone has reached that date.
  return Cron.next(cron, Math.max(DateTime.toEpochMillis(after), later - 2 * dayMillis))
}
