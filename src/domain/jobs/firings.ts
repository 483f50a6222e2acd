import { Cron, DateTime, Result } from "effect"
import { firstFiring } from "./cronDates.ts"
import type { JobScheduleChanges } from "./JobScheduleRepository.ts"

/**
 * The first firing after a time, in the schedule's time zone. A firing that daylight saving time skips happens as if the
 * clock had not changed. A firing that it repeats happens once, or twice when the hour field is `*`. Fails with a sentence
 * that says what is wrong with the expression or the zone.
 */
export const nextFiring = (
  cron: string,
  timezone: string,
  after: DateTime.Utc,
): Result.Result<DateTime.Utc, string> => {
  const zone = DateTime.zoneFromString(timezone)
  if (zone._tag === "None") return Result.fail("timezone must be an IANA time zone, as in Europe/Berlin")
  const isHourly = cron.trim().split(/\s+/).at(-4)?.startsWith("*") === true
  return Result.match(Cron.parse(cron, zone.value, { onDstOverlap: isHourly ? "both" : "earlier" }), {
    onFailure: (error) => Result.fail(`cron is not a cron expression: ${error.message}`),
    onSuccess: (parsed) => {
      const next = firstFiring(parsed, cron, after)
      return next === undefined
        ? Result.fail("cron names dates that never come")
        : Result.succeed(DateTime.fromDateUnsafe(next))
    },
  })
}

/** The next firings after a time, up to `count`. */
export const nextFirings = (cron: string, timezone: string, after: DateTime.Utc, count: number) => {
  const firings: Array<DateTime.Utc> = []
  while (firings.length < count) {
    const next = nextFiring(cron, timezone, firings.at(-1) ?? after)
    if (Result.isFailure(next)) break
    firings.push(next.success)
  }
  return firings
}

interface Firing {
  readonly cron: string
  readonly timezone: string
  readonly nextAt: DateTime.Utc | null
}

/**
 * When a changed schedule fires next; `null` while it is paused. A schedule that is activated, or has another cron or time
 * zone, fires next after `now`: firings of its pause are not made up for.
 */
export const changedFiring = (
  current: Firing,
  changes: JobScheduleChanges,
  now: DateTime.Utc,
): Result.Result<DateTime.Utc | null, string> => {
  const { cron = current.cron, timezone = current.timezone, active = current.nextAt !== null } = changes
  const isSame = cron === current.cron && timezone === current.timezone
  if (isSame && !active) return Result.succeed(null)
  if (isSame && current.nextAt !== null) return Result.succeed(current.nextAt)
  return Result.map(nextFiring(cron, timezone, now), (next) => (active ? next : null))
}
