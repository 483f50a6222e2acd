import { useEffect, useState } from "preact/hooks"
import { useSearch } from "../navigation/router.tsx"
import { Button } from "./Button.tsx"
import { Field } from "./Form.tsx"

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const day = 24 * hour

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })
// Numbers only: in words, 47 hours from now would be "tomorrow".
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

const pad = (value: number) => String(value).padStart(2, "0")

/** A time as the control for dates has it: in the reader's zone, to the minute. */
export const toLocal = (iso: string) => {
  const at = new Date(iso)
  if (Number.isNaN(at.getTime())) return ""
  const date = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(pad).join("-")
  return `${date}T${pad(at.getHours())}:${pad(at.getMinutes())}`
}

interface DateTimeProps {
  readonly label: string
  /** ISO 8601; undefined: no time. */
  readonly value: string | undefined
  readonly onChange: (value: string | undefined) => void
  readonly isRequired?: boolean
}

/** A time, in the reader's zone. */
export const DateTime = ({ isRequired = false, label, onChange, value }: DateTimeProps) => (
  <Field label={label}>
    <input
      class="input"
      type="datetime-local"
      required={isRequired}
      value={value === undefined ? "" : toLocal(value)}
      onChange={({ currentTarget: { value } }) => onChange(value === "" ? undefined : new Date(value).toISOString())}
    />
  </Field>
)

/** The time so many milliseconds ago, at a full minute. */
export const ago = (millis: number) => new Date(Math.floor((Date.now() - millis) / 60_000) * 60_000).toISOString()

const hourMillis = 3_600_000

/** Whether a time is a range, up to what has passed since somebody chose it. */
const isAbout = (millis: number, range: number) => Math.abs(millis - range) < range / 15
const ranges = [
  { label: "hour", hours: 1 },
  { label: "day", hours: 24 },
  { label: "7 days", hours: 7 * 24 },
  { label: "30 days", hours: 30 * 24 },
]

interface LastTimesProps {
  readonly since: string | undefined
  readonly until: string | undefined
  readonly onChoose: (since: string) => void
}

/** The ranges of time that people ask for most, until now. */
export const LastTimes = ({ onChoose, since = "", until }: LastTimesProps) => (
  <div class="row">
    <span class="quiet small" aria-hidden="true">
      Last
    </span>
    {ranges.map(({ hours, label }) => (
      <Button
        key={label}
        isSmall
        aria-label={`Last ${label}`}
        aria-pressed={until === undefined && isAbout(Date.now() - Date.parse(since), hours * hourMillis)}
        onClick={() => onChoose(ago(hours * hourMillis))}
      >
        {label}
      </Button>
    ))}
  </div>
)

export const isTime = (text: string | undefined): text is string => !Number.isNaN(Date.parse(text ?? ""))

/** Filters by a time: `since` and `until` in the address of the page. */
export const TimeRange = () => {
  const [since, setSince] = useSearch("since")
  const [until, setUntil] = useSearch("until")
  return (
    <>
      <DateTime label="From" value={since} onChange={setSince} />
      <DateTime label="To" value={until} onChange={setUntil} />
      <LastTimes
        since={since}
        until={until}
        onChoose={(since) => {
          setSince(since)
          setUntil(undefined)
        }}
      />
    </>
  )
}
