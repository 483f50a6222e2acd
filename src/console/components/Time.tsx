import { useEffect, useId, useState } from "preact/hooks"
import { serviceNow } from "../client/call.ts"
import { useSearch } from "../navigation/router.tsx"
import { Button } from "./Button.tsx"
import { Chip, Field } from "./Form.tsx"

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

/** The time of the service now, read again every so often while the component is shown. */
export const useNow = (everyMillis = 10 * second) => {
  const [now, setNow] = useState(serviceNow)
  useEffect(() => {
    const timer = setInterval(() => setNow(serviceNow()), everyMillis)
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

const pad = (value: number, digits = 2) => String(value).padStart(digits, "0")

/** A time as the control for dates has it: in the reader's zone, to the minute. */
export const toLocal = (iso: string) => {
  const at = new Date(iso)
  if (Number.isNaN(at.getTime())) return ""
  const date = [pad(at.getFullYear(), 4), pad(at.getMonth() + 1), pad(at.getDate())].join("-")
  return `${date}T${pad(at.getHours())}:${pad(at.getMinutes())}`
}

/** The time of the control for dates as ISO 8601; undefined for none. */
export const fromLocal = (text: string) => {
  const at = new Date(text)
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString()
}

/** The control for dates. With a last day, its year has four digits. */
export const dateControl = { type: "datetime-local", max: "9999-12-31T23:59" } as const

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
      {...dateControl}
      required={isRequired}
      value={value === undefined ? "" : toLocal(value)}
      onChange={({ currentTarget: { value } }) => onChange(fromLocal(value))}
    />
  </Field>
)

/** The time so many milliseconds ago, at a full minute. */
export const ago = (millis: number) => new Date(Math.floor((serviceNow() - millis) / 60_000) * 60_000).toISOString()

/** Whether a time is so many hours ago, up to what has passed since somebody chose it. */
const isAbout = (at: string, hours: number) =>
  Math.abs(serviceNow() - Date.parse(at) - hours * hour) < (hours * hour) / 15

/** The times that people ask for most, until now. */
const lastTimes = [
  { hours: 1, label: "Last hour" },
  { hours: 24, label: "Last 24 hours" },
  { hours: 7 * 24, label: "Last 7 days" },
  { hours: 30 * 24, label: "Last 30 days" },
]
const lastOf = ({ since, until }: Times) =>
  since === undefined || until !== undefined ? undefined : lastTimes.find(({ hours }) => isAbout(since, hours))

export interface Times {
  readonly since?: string | undefined
  readonly until?: string | undefined
}

interface ChooseTimesProps extends Times {
  readonly onChange: (times: Times) => void
  readonly isRequired?: boolean
}

/** What the menu of times offers: the last hours or days, since a time, or from one to another. */
export const ChooseTimes = ({ isRequired = false, onChange, since, until }: ChooseTimesProps) => (
  <>
    <div class="row">
      {lastTimes.map(({ hours, label }) => (
        <Button
          key={label}
          isSmall
          aria-pressed={lastOf({ since, until })?.label === label}
          onClick={({ currentTarget }) => {
            onChange({ since: ago(hours * hour) })
            currentTarget.closest<HTMLElement>("[popover]")?.hidePopover()
          }}
        >
          {label}
        </Button>
      ))}
    </div>
    <div class="row">
      <DateTime
        label="From"
        value={since}
        isRequired={isRequired}
        onChange={(since) => (since !== undefined || !isRequired) && onChange({ since, until })}
      />
      <DateTime label="To" value={until} onChange={(until) => onChange({ since, until })} />
    </div>
  </>
)

export const isTime = (text: string | undefined): text is string => !Number.isNaN(Date.parse(text ?? ""))

/** The menu of times, as a filter: `since` and `until` in the address of the page. */
export const TimeFilter = () => {
  const id = useId()
  const [since, setSince] = useSearch("since")
  const [until, setUntil] = useSearch("until")
  const set = ({ since, until }: Times) => {
    setSince(since)
    setUntil(until)
  }
  const own = Object.entries({ from: since, to: until }).flatMap(([word, at]) => (at ? `${word} ${toLocal(at)}` : []))
  const text = lastOf({ since, until })?.label ?? own.join(" ").replaceAll("T", " ")
  return (
    <Chip label="Time" isSet={own.length > 0} onRemove={() => set({})}>
      <button type="button" class="input" popovertarget={id}>
        <span class="quiet">Time</span> {text || "Any time"}
      </button>
      <div
        {...{ popover: true, id, class: "time-menu stack", role: "group", "aria-label": "Times" }}
        onToggle={({ currentTarget, newState }) => newState === "open" && currentTarget.querySelector("input")!.focus()}
      >
        <ChooseTimes since={since} until={until} onChange={set} />
      </div>
    </Chip>
  )
}
