import { Cron, DateTime, Option, Result } from "effect"

const dayMillis = 86_400_000

/** How far ahead a schedule must fire once: ten years. From one 29 February to the next there are at most eight. */
const horizonDays = 3_653

/** The date fields of an expression that `Cron.parse` takes, as a cron that fires at midnight UTC of each date. */
const datesOf = (expression: string): Cron.Cron => {
  const dateFields = expression.trim().split(/\s+/).slice(-3)
  return Result.getOrThrow(Cron.parse(`0 0 ${dateFields.join(" ")}`, "UTC"))
}

/** Midnight UTC of the first date of `dates` from a day on. `undefined` when there is none within ten years. */
const firstDate = (dates: Cron.Cron, from: number): number | undefined => {
  const { months, days, weekdays } = dates
  const day = new Date(from)
  for (let n = 0; n < horizonDays; n++) {
    const mayFit =
      (months.size === 0 || months.has(day.getUTCMonth() + 1)) &&
      (days.size === 0 || weekdays.size > 0 || days.has(day.getUTCDate()))
    // With a day and a weekday given, whether one of them is enough is Effect's to say.
    if (mayFit && Cron.match(dates, day)) return day.getTime()
    day.setUTCDate(day.getUTCDate() + 1)
  }
  return undefined
}

/** What is left of a cron on one date of its zone; `undefined` when that has passed. */
const firingOn = (cron: Cron.Cron, date: Date, after: DateTime.Utc): Date | undefined => {
  const { seconds, minutes, hours, onDstOverlap } = cron
  const tz = Option.getOrUndefined(cron.tz)
  const days = [date.getUTCDate()]
  const months = [date.getUTCMonth() + 1]
  const found = Cron.next(Cron.make({ seconds, minutes, hours, days, months, weekdays: [], tz, onDstOverlap }), after)
  return found.getTime() - date.getTime() < 3 * dayMillis ? found : undefined
}

/**
 * The first firing after a time. `undefined` when the expression has none within ten years: 30 February never comes.
 * Looks for the date first, by the calendar alone: `Cron.next` tries up to 10,000 dates in the zone, a second of CPU.
 *
 * @param cron what `Cron.parse` makes of the expression in its zone
 */
export const firstFiring = (cron: Cron.Cron, expression: string, after: DateTime.Utc): Date | undefined => {
  // On these dates it comes within two months, or in the weeks of a month: the search is short.
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
  const left = first === today ? firingOn(cron, new Date(today), after) : undefined
  if (left !== undefined || later === undefined) return left
  // Two days before it, no zone has that date yet.
  return Cron.next(cron, Math.max(DateTime.toEpochMillis(after), later - 2 * dayMillis))
}
