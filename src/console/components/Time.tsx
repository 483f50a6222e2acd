import { useEffect, useState } from "preact/hooks"

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const day = 24 * hour

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })
// In numbers: "tomorrow" would also be said of what is 47 hours away.
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" })

const steps = [
  ["day", day],
  ["hour", hour],
  ["minute", minute],
  ["second", second],
] as const

/** "3 minutes ago", or "in 2 hours". */
const relativeTo = (at: number, now: number) => {
  const distance = at - now
  const [unit, millis] = steps.find(([, millis]) => Math.abs(distance) >= millis) ?? steps[3]
  return Math.abs(distance) < 5 * second ? "just now" : relative.format(Math.trunc(distance / millis), unit)
}

/** The time now, read again every so often while the component is shown. */
export const useNow = (everyMillis = 10 * second) => {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMillis)
    return () => clearInterval(timer)
  }, [everyMillis])
  return now
}

const utc = (at: string) => `${at.slice(0, 19).replace("T", " ")} UTC`

const Relative = ({ at }: { readonly at: string }) => <>{relativeTo(Date.parse(at), useNow())}</>

interface TimeProps {
  readonly at: string | null | undefined
  /** Says how long ago, or in how long; the time itself on hover. */
  readonly isRelative?: boolean
  /** What is shown for null. */
  readonly none?: string
}

/** A time in the reader's zone, and in UTC on hover. */
export const Time = ({ at, isRelative = false, none = "–" }: TimeProps) =>
  at === null || at === undefined ? (
    <span class="quiet">{none}</span>
  ) : (
    <time dateTime={at} title={isRelative ? `${full.format(new Date(at))} · ${utc(at)}` : utc(at)}>
      {isRelative ? <Relative at={at} /> : full.format(new Date(at))}
    </time>
  )

const units = [
  ["d", day, "h", hour],
  ["h", hour, "min", minute],
  ["min", minute, "s", second],
] as const

/** "1 d 4 h", "3 min 20 s", "840 ms". */
export const durationText = (millis: number): string => {
  if (millis < second) return `${Math.round(millis)} ms`
  if (millis < minute) return `${Number((millis / second).toFixed(1))} s`
  const [unit, one, part, parts] = units.find(([, one]) => millis >= one)!
  const rest = Math.floor((millis % one) / parts)
  return `${Math.floor(millis / one)} ${unit}${rest === 0 ? "" : ` ${rest} ${part}`}`
}
